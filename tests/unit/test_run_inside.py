"""The entry inside the lab: what a job reports, and when transfers were given up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import DeadlineError, LabError, ReadbackError
from testbed.plan.codec import to_json
from testbed.plan.model import Plan
from testbed.record import layout
from testbed.run import inside
from tests.support.lab import small_plan

PLAN = small_plan()


# ---- a job ----------------------------------------------------------------------------


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A job of the small plan whose lab and traffic do what `bring_up` and `traffic` say."""
    for folder in (layout.RAW, layout.LOGS, ".lab", "run"):
        (tmp_path / folder).mkdir()
    (tmp_path / layout.PLAN).write_text(to_json(PLAN))
    monkeypatch.setattr(
        inside, "Path", lambda name: tmp_path / "run" if name == "/run/testbed" else Path(name)
    )

    class FakeLab:
        facts = {"readback": []}  # noqa: RUF012 - a constant

        def stop(self) -> None:
            pass

    known: dict[str, Any] = {
        "record": str(tmp_path),
        "controller_python": "python",
        "bring_up": lambda plan: FakeLab(),
        "traffic": lambda: None,
    }
    monkeypatch.setattr(inside, "bring_up", lambda plan, **_: known["bring_up"](plan))
    monkeypatch.setattr(inside, "run_traffic", lambda *_, **__: known["traffic"]())
    return known


def run(job: dict[str, Any]) -> dict[str, Any]:
    return inside.run_job(Path(job["record"]) / ".lab", job)


def test_a_job_that_went_well(job: dict[str, Any]) -> None:
    assert run(job) == {"status": "complete", "reason": None}
    record = Path(job["record"])
    assert (record / ".lab/progress.log").read_text() == "done\n"
    assert json.loads((record / layout.FACTS).read_text()) == {"readback": []}


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("part", "error", "answer"),
    [
        ("bring_up", ReadbackError("leaf1: rules"), {"error": "ReadbackError", "reason": "leaf1: rules"}),
        ("bring_up", LabError("no ovs"), {"error": "LabError", "reason": "no ovs"}),
        ("traffic", DeadlineError("late"), {"error": "DeadlineError", "reason": "late"}),
        ("traffic", KeyError("x"), {"error": "defect", "reason": "KeyError: 'x'"}),
    ],
)
def test_a_job_that_failed_says_how(
    job: dict[str, Any], part: str, error: Exception, answer: dict[str, str]
) -> None:
    job[part] = raising(error)
    assert run(job) == {"status": "failed"} | answer
    assert (Path(job["record"]) / ".lab/progress.log").read_text() == ""


def test_the_lab_runs_the_dilated_plan(job: dict[str, Any]) -> None:
    seen: list[Plan] = []
    slow = small_plan("dilation=10", clock="real")
    (Path(job["record"]) / layout.PLAN).write_text(to_json(slow))
    job["bring_up"] = lambda plan: seen.append(plan) or raising(LabError("enough"))()
    run(job)
    (plan,) = seen
    assert plan.topology.link("leaf2-d1").rate_bps == 10_000_000_000
    assert plan.topology.link("leaf2-d1").delay_ns == 10_000


@pytest.mark.parametrize("own_kernel", [True, False])
def test_the_result_is_written_before_the_guest_is_switched_off(
    job: dict[str, Any], monkeypatch: pytest.MonkeyPatch, own_kernel: bool
) -> None:
    folder = Path(job["record"]) / ".lab"
    description = {"record": job["record"], "controller_python": "python", "power_off": own_kernel}
    (folder / "job.json").write_text(json.dumps(description))
    found: list[Any] = []
    monkeypatch.setattr(inside.sys, "argv", ["inside", str(folder)])
    monkeypatch.setattr(
        inside, "power_off", lambda: found.append(json.loads((folder / "result.json").read_text()))
    )
    inside.main()
    assert found == ([{"status": "complete", "reason": None}] if own_kernel else [])
    assert sorted(path.name for path in folder.iterdir()) == ["job.json", "progress.log", "result.json"]


# ---- traffic --------------------------------------------------------------------------


def test_a_flow_has_the_addresses_and_ports_of_its_transfer() -> None:
    plan = replace(PLAN, transfers=(PLAN.transfers[0], replace(PLAN.transfers[1], start_ns=7)))
    flow = inside._flow(plan, plan.transfers[1])
    assert (flow.src.host, flow.src.ip, flow.src.port) == ("p2", "10.0.1.2", 20_000)
    assert (flow.dst.host, flow.dst.ip, flow.dst.port) == ("d1", "10.0.2.1", 5_000)
    assert (flow.id, flow.bytes, flow.start_ns) == (1, 4 << 20, 7)


def test_transfers_that_were_given_up_fail_the_run(tmp_path: Path) -> None:
    (tmp_path / layout.RAW).mkdir()
    outcomes = [{"id": 0, "error": None}, {"id": 1, "error": inside.GIVEN_UP}]
    (tmp_path / layout.OUTCOMES).write_text(json.dumps(outcomes))
    plan = replace(PLAN, dilation=2.0, deadline=replace(PLAN.deadline, scenario_ns=3_000_000))
    with pytest.raises(DeadlineError) as caught:
        inside._require_finished(plan, tmp_path)
    assert str(caught.value) == (
        "1 of 2 transfers had not ended after 1.5 ms of scenario time, the first is 1, p2 -> d1 "
        "(deadline.scenario)"
    )
    (tmp_path / layout.OUTCOMES).write_text(json.dumps(outcomes[:1]))
    inside._require_finished(plan, tmp_path)


def test_the_hosts_of_the_traffic_are_named() -> None:
    assert inside._hosts(PLAN) == "receivers on d1, senders on p1, p2"
    many = small_plan("fabric.hosts_per_leaf=8", "hosts.prefill.count=4", "hosts.decode.count=4")
    served = replace(many, transfers=(), serving=inside)
    assert inside._hosts(served) == "senders and receivers on p1, p2, p3, p4, d1 and 3 more"


# ---- the epoch ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now_ns", "epoch_ns"),
    [
        (11_300_000_000, 11_310_000_000),
        (11_300_000_008, 11_310_000_000),  # a little later: no other moment
        (11_305_000_000, 11_310_000_000),
        (11_305_000_001, 11_320_000_000),  # everybody has five milliseconds to wake up
    ],
)
def test_in_virtual_time_the_workload_begins_at_whole_ticks(now_ns: int, epoch_ns: int) -> None:
    assert inside._epoch_ns(PLAN, now_ns) == epoch_ns


@pytest.mark.parametrize(("dilation", "head_start_ns"), [(10, 250_000_000), (1000, 5_000_000_000)])
def test_with_the_real_clock_it_begins_when_all_have_woken_up(dilation: int, head_start_ns: int) -> None:
    slow = small_plan(f"dilation={dilation}", clock="real")
    assert inside._epoch_ns(slow, 11_300_000_008) == 11_300_000_008 + head_start_ns
