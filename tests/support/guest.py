"""A stock guest kernel in the place of a machine with root and modules: boots one for a script of data/guest.

What the script noted is looked at afterwards, in the folder that it could write.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.lab.guest_memory import memory_dir
from testbed.lab.kernels import DISTRIBUTION_MODULES, distribution_kernel
from testbed.lab.uml import command, link_shim

ROOT = Path(__file__).parents[2]
SCENARIO = ROOT / "tests/data/scenarios/good/small-incast.yaml"
MEMORY_MB = 900
TIMEOUT_S = 560


@dataclass(frozen=True)
class Guest:
    """The folder in which a guest left what it saw."""

    folder: Path

    def read(self, name: str) -> str:
        """Return a file's text."""
        return (self.folder / name).read_text()

    def json(self, name: str) -> Any:
        """Return a file's content."""
        return json.loads(self.read(name))

    def has(self, name: str) -> bool:
        """Tell whether there is such a file."""
        return (self.folder / name).exists()


def boot(folder: Path, script: str) -> Guest:
    """Let a guest run a script to its end; AssertionError, with what its console said, if it does not."""
    (folder / ".lab").mkdir()
    kernel = distribution_kernel()
    link_shim(folder / ".lab", kernel)
    shutil.copy(ROOT / "tests/data/guest" / script, folder / ".lab/init.sh")
    settings = {
        "PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "ROOT": str(ROOT),
        "SCENARIO": str(SCENARIO),
        "MODULES": str(DISTRIBUTION_MODULES),
    }
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in settings.items()]
    (folder / "settings.sh").write_text("".join(lines))
    environment = {"PATH": os.environ["PATH"], "HOME": "/", "TMPDIR": str(memory_dir())}
    console = subprocess.run(
        command(kernel, MEMORY_MB),
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT_S,
    ).stdout
    assert (folder / "end.txt").exists(), console[-2000:].decode(errors="replace")
    return Guest(folder)
