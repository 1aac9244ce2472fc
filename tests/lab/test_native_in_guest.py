"""The native backend, run by a stock guest kernel in the place of a machine with root and modules.

One guest does it all: a run without modules, a prompt, a whole run, and two side by side of which one is
killed. What the guest noted is looked at afterwards.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.lab.guest_memory import memory_dir
from testbed.lab.kernels import DISTRIBUTION_MODULES, MODULES, distribution_kernel
from testbed.lab.uml import command, link_shim
from tests.support.command import OF_TIME, failed_checks

pytestmark = [pytest.mark.slow, pytest.mark.ovs, pytest.mark.timeout(330)]

ROOT = Path(__file__).parents[2]
SCENARIO = ROOT / "tests/data/scenarios/good/small-incast.yaml"
SCRIPT = ROOT / "tests/data/guest/native.sh"
MEMORY_MB = 900
TIMEOUT_S = 320


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which a guest left what it saw."""
    folder = tmp_path_factory.mktemp("guest")
    (folder / ".lab").mkdir()
    kernel = distribution_kernel()
    link_shim(folder / ".lab", kernel)
    shutil.copy(SCRIPT, folder / ".lab/init.sh")
    settings = {
        "PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
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
    return folder


def _read(guest: Path, name: str) -> str:
    return (guest / name).read_text()


def _json(guest: Path, name: str) -> Any:
    return json.loads(_read(guest, name))


def test_without_modules_it_says_so_and_starts_nothing(guest: Path) -> None:
    assert _read(guest, "no-modules.status") == "3\n"
    assert _read(guest, "no-modules.err") == (
        f"testbed: the native backend cannot run here: the kernel has no {', '.join(MODULES)}: "
        "boot a kernel with these modules, or use --backend uml or scripts/vm.sh\n"
    )
    assert not (guest / "no-modules").exists()


def test_doctor_finds_the_modules(guest: Path) -> None:
    assert _json(guest, "doctor.json")["backends"]["native"] is True


def test_a_whole_run(guest: Path) -> None:
    summary = _json(guest, "complete/summary.json")
    assert (summary["backend"], summary["clock"], summary["dilation"]) == ("native", "real", 1000)
    assert (summary["transfers"]["completed"], summary["verdict"]["segment"]) == (4, "dest-leaf")
    assert summary["links"]["leaf2-d1"]["ce_marks"] > 0
    valid = summary["fidelity"]["valid"]
    assert _read(guest, "complete.status") == ("0\n" if valid else "4\n")
    # The only excuse: a machine busy with something else.
    assert failed_checks(summary) <= OF_TIME


def test_every_connection_ran_dctcp_without_a_change_to_the_machine(guest: Path) -> None:
    outcomes = _json(guest, "complete/raw/outcomes.json")
    used = [(outcome["congestion_control"], outcome["ecn"]) for outcome in outcomes]
    assert used == [({"sender": "dctcp", "receiver": "dctcp"}, True)] * 4
    assert "dctcp" not in _read(guest, "allowed.txt").split()


def test_nothing_is_left_after_a_run(guest: Path) -> None:
    assert _read(guest, "after-run.txt") == _read(guest, "before.txt")


def test_commands_are_run_at_the_prompt(guest: Path) -> None:
    assert _read(guest, "shell.status") == "0\n", _read(guest, "shell.err")
    said = _read(guest, "shell.out")
    assert "1 packets transmitted, 1 received, 0% packet loss" in said
    assert _read(guest, "after-shell.txt") == _read(guest, "before.txt")


def test_a_run_beside_the_one_that_was_killed_came_to_its_end(guest: Path) -> None:
    during = _read(guest, "during.txt").splitlines()
    assert len([line for line in during if line.startswith("ovs-vswitchd")]) == 2
    summary = _json(guest, "beside/summary.json")
    assert (summary["transfers"]["completed"], summary["verdict"]["segment"]) == (4, "dest-leaf")
    assert _read(guest, "beside.status") in ("0\n", "4\n")


def test_nothing_is_left_after_the_command_was_killed(guest: Path) -> None:
    assert "ovs-vswitchd" in _read(guest, "during.txt")
    assert _read(guest, "killed.status") == "137\n"
    assert _read(guest, "after-kill.txt") == _read(guest, "before.txt")
