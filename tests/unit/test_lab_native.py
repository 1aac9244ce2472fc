"""What the native backend loads and starts."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import MachineError
from testbed.lab import native
from testbed.lab.job import Job
from testbed.machine import LOADABLE
from tests.support.machine import FakeMachine

FOUND = {"sch_red": LOADABLE, "sch_htb": "loaded or built in", "tcp_bbr": LOADABLE}


@pytest.fixture
def modprobe(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A machine with some modules to load: what modprobe is asked, and what it says."""
    asked: dict[str, Any] = {"commands": [], "says": ""}

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked["commands"].append(command)
        return subprocess.CompletedProcess(command, bool(asked["says"]), "", asked["says"])

    monkeypatch.setattr(native, "Machine", FakeMachine)
    monkeypatch.setattr(FakeMachine, "kernel_module", lambda _, module, option: FOUND.get(module, "built in"))
    monkeypatch.setattr(native.subprocess, "run", run)
    return asked


def job(folder: Path) -> Job:
    return Job(folder, "os-ken", 1, 30.0, lambda step, seconds: None)


@pytest.mark.parametrize(
    "said",
    ["modprobe: FATAL: Module sch_red not found.\n", "modprobe: FATAL: Module sch_red not found.\nmore"],
)
def test_a_module_that_does_not_load(modprobe: dict[str, Any], tmp_path: Path, said: str) -> None:
    modprobe["says"] = said
    with pytest.raises(MachineError, match=r"^modprobe: modprobe: FATAL: Module sch_red not found\.$"):
        native.run_native(job(tmp_path))


def test_the_lab_gets_namespaces_of_its_own(
    modprobe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[list[str], dict[str, Any]]] = []

    class Ended:
        returncode = 0

    def popen(command: list[str], **options: Any) -> Ended:
        calls.append((command, options))
        return Ended()

    prepared: list[dict[str, Any]] = []
    monkeypatch.setattr(native.subprocess, "Popen", popen)
    monkeypatch.setattr(native, "prepare", lambda job, **options: prepared.append(options))
    monkeypatch.setattr(native, "watch", lambda job, process, **_: None)
    monkeypatch.setattr(native, "result", lambda job, otherwise: None)
    (tmp_path / "logs").mkdir()
    native.run_native(job(tmp_path))
    # Only what is neither loaded nor built in is loaded.
    assert modprobe["commands"] == [["modprobe", "-a", "sch_red", "tcp_bbr"]]
    ((command, options),) = calls
    assert command[:3] == ["setpriv", "--pdeathsig", "KILL"]
    assert {"unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"} <= set(command)
    assert command[-2:] == ["sh", f"{tmp_path}/.lab/init.sh"]
    assert options["start_new_session"]
    assert (prepared[0]["record_inside"], prepared[0]["own_kernel"]) == (str(tmp_path), False)
