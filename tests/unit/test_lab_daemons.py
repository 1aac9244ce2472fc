"""The lab's other processes: Open vSwitch's daemons and the controller, as fakes that live or have ended."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import LabError
from testbed.lab import control, ovs
from testbed.lab.control import ControllerProcess, start_controller
from testbed.lab.mininet_net import CONTROLLER_PORT
from testbed.lab.ovs import Daemons
from testbed.lab.system import run
from tests.support.lab import small_plan


class FakeProcess:
    """A process with a status, None while it runs; notes what was done to it."""

    def __init__(self, returncode: int | None, name: str = "", log: list[str] | None = None) -> None:
        self.returncode = returncode
        self.name = name
        self.log = [] if log is None else log

    def poll(self) -> int | None:
        return self.returncode

    def terminate(self) -> None:
        self.log.append(f"end {self.name}")

    def wait(self) -> None:
        self.log.append(f"reap {self.name}")


def daemons(ovsdb: Any, vswitchd: Any) -> Daemons:
    return Daemons(ovsdb, vswitchd)


def controller(process: Any, ready: Path) -> ControllerProcess:
    return ControllerProcess(process, ready)


def test_daemons_that_run_are_fine() -> None:
    daemons(FakeProcess(None), FakeProcess(None)).check()


def test_a_daemon_that_ends_ends_whatever_is_waited_for() -> None:
    ovsdb, vswitchd = subprocess.Popen(["sleep", "1"]), subprocess.Popen(["sleep", "60"])
    before, began = signal.getsignal(signal.SIGCHLD), time.monotonic()
    try:
        with daemons(ovsdb, vswitchd).watched():
            run(["true"])  # other children may end
            with pytest.raises(LabError, match=r"^ovsdb-server ended with status 0; "):
                time.sleep(50)
    finally:
        vswitchd.kill()
        vswitchd.wait()
    assert time.monotonic() - began < 10
    assert signal.getsignal(signal.SIGCHLD) == before


@pytest.mark.parametrize(
    ("statuses", "message"),
    [
        ((None, 1), "ovs-vswitchd ended with status 1; see its log in the record"),
        ((-9, None), "ovsdb-server ended with status -9; see its log in the record"),
    ],
)
def test_a_daemon_that_ended_is_named(statuses: tuple[int | None, int | None], message: str) -> None:
    with pytest.raises(LabError) as caught:
        daemons(*map(FakeProcess, statuses)).check()
    assert str(caught.value) == message


def test_both_daemons_are_told_before_one_is_waited_for() -> None:
    log: list[str] = []
    daemons(FakeProcess(None, "ovsdb", log), FakeProcess(None, "vswitchd", log)).stop()
    assert log == ["end vswitchd", "end ovsdb", "reap vswitchd", "reap ovsdb"]


def test_the_version_is_the_last_word_of_the_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = "ovs-vsctl (Open vSwitch) 3.1.0\nDB Schema 8.3.1\n"
    monkeypatch.setattr(ovs, "run", lambda command: answer if command == ["ovs-vsctl", "--version"] else "")
    assert ovs.version() == "3.1.0"


def test_daemons_get_a_tmp_of_their_own_and_log_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(ovs.subprocess, "Popen", lambda command, **_: started.append(command))
    ovs._start(["ovs-vswitchd", "unix:/run/db.sock"], tmp_path)
    assert started[0][:5] == ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /tmp && exec "$@"']
    assert started[0][5:8] == ["sh", "ovs-vswitchd", "unix:/run/db.sock"]
    assert (tmp_path / "ovs-vswitchd.log").exists()


@pytest.mark.parametrize(("flows", "limit"), [(5_000, None), (5_001, "10002"), (60_000, "120000")])
def test_the_datapath_may_keep_every_flow(
    flows: int, limit: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(ovs, "run", asked.append)
    ovs.allow_flows(flows)
    both = [
        ["ovs-vsctl", "set", "Open_vSwitch", ".", f"other_config:flow-limit={limit}"],
        ["ovs-appctl", "upcall/set-flow-limit", str(limit)],
    ]
    assert asked == (both if limit else [])


def test_the_controllers_report_is_returned(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    ready.write_text('{"switches": {"1": {"groups": 1, "rules": 5}}}')
    report = controller(FakeProcess(None), ready).wait_ready()
    assert report == {"switches": {"1": {"groups": 1, "rules": 5}}}


def test_the_controllers_own_words_are_the_error(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    ready.write_text('{"error": "switch 3 refused a group"}')
    with pytest.raises(LabError, match=r"^controller: switch 3 refused a group$"):
        controller(FakeProcess(1), ready).wait_ready()


def test_a_controller_that_ended_without_a_word(tmp_path: Path) -> None:
    message = r"^the controller ended with status 1; see logs/controller\.log$"
    with pytest.raises(LabError, match=message):
        controller(FakeProcess(1), tmp_path / "ready.json").wait_ready()
    with pytest.raises(LabError, match=message):
        controller(FakeProcess(1), tmp_path / "ready.json").check()
    controller(FakeProcess(None), tmp_path / "ready.json").check()


def test_the_controller_is_started_with_the_rules_of_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    def popen(command: list[str], **_: Any) -> FakeProcess:
        started.append(command)
        return FakeProcess(None)

    monkeypatch.setattr(control.subprocess, "Popen", popen)
    plan = small_plan("controller.framework=ryu")
    running = start_controller(plan, "/ryu/python", tmp_path, tmp_path)
    assert started == [
        [
            "/ryu/python", "-m", "testbed.lab.at_once", "controller.main", "--framework", "ryu",
            "--document", f"{tmp_path}/controller.json", "--ready", f"{tmp_path}/controller-ready.json",
            "--port", str(CONTROLLER_PORT),
        ]
    ]  # fmt: skip
    assert running.ready == tmp_path / "controller-ready.json"
    document = json.loads((tmp_path / "controller.json").read_text())
    assert len(document["switches"]) == len(plan.topology.switches)


def test_a_stopped_controller_is_reaped(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    controller(process, tmp_path / "ready.json").stop()
    assert process.returncode == -15
