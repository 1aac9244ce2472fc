"""The project's code as a lab is given it: compiled, in the job's own folder. Runs outside the lab.

Whether Python finds a module compiled decides what a guest in virtual time reads and how much memory it
takes, and with that the exact bytes of a run. Beside the sources, compiled files are there for whoever may
write the checkout, and stale or missing for everybody else. So a lab never looks there: each run brings all
its modules compiled, under a path that is the same for everybody. That takes a tenth of a second.
"""

from __future__ import annotations

import importlib.util
import marshal
from collections.abc import Iterator
from pathlib import Path

from testbed.lab.kernels import PROJECT

FOLDERS = (
    *("testbed/lab", "testbed/plan", "testbed/record", "testbed/run", "testbed/bench"),
    *("topologies", "traffic", "controller"),
)
"""What a lab may import, with what stands directly in `testbed`: no analysis and no page is made there. The
bench has entries of its own into a lab."""

_BY_CONTENTS = (1).to_bytes(4, "little")
"""The flags of a compiled file that does not ask when its source was changed (PEP 552)."""

_WITHOUT_REFERENCES = 2
"""The version of marshal's format that gives the same bytes whatever else the compiling process holds."""


def put_code(folder: Path) -> None:
    """Put the lab's modules into `folder`, compiled and without their sources."""
    for source in _sources():
        target = folder / source.relative_to(PROJECT).with_suffix(".pyc")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(compiled(source))


def _sources() -> Iterator[Path]:
    yield from sorted((PROJECT / "testbed").glob("*.py"))
    for name in FOLDERS:
        yield from sorted((PROJECT / name).rglob("*.py"))


def compiled(source: Path) -> bytes:
    """Return a module as a .pyc file has it; its tracebacks name the source.

    Whole, whatever PYTHONOPTIMIZE says: the controller is known by its docstring.
    """
    text = source.read_bytes()
    code = compile(text, str(source), "exec", dont_inherit=True, optimize=0)
    head = importlib.util.MAGIC_NUMBER + _BY_CONTENTS + importlib.util.source_hash(text)
    return head + marshal.dumps(code, _WITHOUT_REFERENCES)
