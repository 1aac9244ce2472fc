"""A module that is run with its memory locked."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = """
import sys, threading
status = open("/proc/self/status").read()
locked = int(next(line for line in status.splitlines() if line.startswith("VmLck")).split()[1])
block = bytearray(8 << 20)
after = int(next(line for line in open("/proc/self/status") if line.startswith("VmLck")).split()[1])
print(__name__, sys.argv[1:], after - locked >= 8 << 10, threading.stack_size())
sys.exit(7)
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "some_module.py").write_text(MODULE)
    paths = os.pathsep.join([str(folder), str(Path(__file__).parents[2])])
    return subprocess.run(
        [sys.executable, "-m", "testbed.lab.at_once", *arguments],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(
    os.geteuid() != 0 and resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] < 1 << 28,
    reason="announced: this user may not lock memory",
)
def test_the_module_runs_as_main_and_what_it_allocates_is_locked(tmp_path: Path) -> None:
    done = run(tmp_path, "some_module", "one", "two words")
    assert done.stderr == ""
    assert done.stdout == f"__main__ ['one', 'two words'] True {1 << 20}\n"
    assert done.returncode == 7


def test_a_module_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, "no_such_module")
    assert re.search(r"ImportError: No module named no_such_module$", done.stderr)
    assert done.returncode == 1
