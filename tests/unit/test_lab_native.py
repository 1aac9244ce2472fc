"""Why the native backend cannot run here, and what it would start."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import MachineError
from testbed.lab import native
from testbed.lab.job import Job
from testbed.lab.kernels import MODULES


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A machine with root, every tool and every module, less what a test takes away."""
    lacks: dict[str, Any] = {"uid": 0, "tools": set(), "modules": set(), "loading": ""}

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        if command[1] == "-a":
            return subprocess.CompletedProcess(command, bool(lacks["loading"]), "", lacks["loading"])
        return subprocess.CompletedProcess(command, int(command[-1] in lacks["modules"]), "", "")

    monkeypatch.setattr(native.os, "geteuid", lambda: lacks["uid"])
    monkeypatch.setattr(native.shutil, "which", lambda name: None if name in lacks["tools"] else name)
    monkeypatch.setattr(native.subprocess, "run", run)
    return lacks


def job(folder: Path) -> Job:
    return Job(folder, "os-ken", 1, 30.0, lambda step, seconds: None)


def test_a_machine_with_everything(machine: dict[str, Any]) -> None:
    assert native.missing() == []


def test_without_root_nothing_else_is_asked(machine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    machine |= {"uid": 1000, "tools": {"tc"}}
    monkeypatch.setattr(native.subprocess, "run", lambda *_, **__: pytest.fail("asked"))
    assert native.missing() == ["it needs root: use sudo, or --backend uml"]


def test_every_missing_tool_is_named(machine: dict[str, Any]) -> None:
    machine["tools"] = {"modprobe", "ovs-vswitchd"}
    assert native.missing() == ["no modprobe: run scripts/setup.sh", "no ovs-vswitchd: run scripts/setup.sh"]


def test_every_missing_module_is_named(machine: dict[str, Any]) -> None:
    machine["modules"] = {"sch_no_such", "openvswitch"} | set(MODULES)
    found = native.missing()
    absent = [name for name in MODULES if not Path("/sys/module", name).exists()]
    remedy = "boot a kernel with these modules, or use --backend uml or scripts/vm.sh"
    assert found == [f"the kernel has no {', '.join(absent)}: {remedy}"]
    assert "sch_red" in absent


def test_the_first_problem_ends_the_run(machine: dict[str, Any], tmp_path: Path) -> None:
    machine["uid"] = 1000
    with pytest.raises(MachineError) as caught:
        native.run_native(job(tmp_path))
    message = "the native backend cannot run here: it needs root: use sudo, or --backend uml"
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "said",
    ["modprobe: FATAL: Module sch_red not found.\n", "modprobe: FATAL: Module sch_red not found.\nmore"],
)
def test_a_module_that_does_not_load(machine: dict[str, Any], tmp_path: Path, said: str) -> None:
    machine["loading"] = said
    with pytest.raises(MachineError, match=r"^modprobe: modprobe: FATAL: Module sch_red not found\.$"):
        native.run_native(job(tmp_path))


def test_the_lab_gets_namespaces_of_its_own(
    machine: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    ((command, options),) = calls
    assert command[:3] == ["setpriv", "--pdeathsig", "KILL"]
    assert {"unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"} <= set(command)
    assert command[-2:] == ["sh", f"{tmp_path}/.lab/init.sh"]
    assert options["start_new_session"]
    assert (prepared[0]["record_inside"], prepared[0]["own_kernel"]) == (str(tmp_path), False)
