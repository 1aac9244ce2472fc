"""Lossless fabrics in runs: held ports send nothing, nothing is lost, pauses spread, end, or deadlock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from testbed.analysis import write_outputs
from testbed.plan.build import build_plan
from testbed.plan.model import Pausing, Plan
from testbed.record.reader import Record
from testbed.run.inside import CALLED_OFF
from testbed.run.launch import run_plan
from testbed.scenario import load_scenario
from tests.support.command import Run, call, run, write_scenario

pytestmark = pytest.mark.slow

INCAST = ("p1-leaf1", "p2-leaf1", "p3-leaf1")
VICTIM = "p4-leaf1"


@pytest.fixture(scope="module")
def lossless(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("lossless") / "record", "pfc-victim")


@pytest.fixture(scope="module")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    # Its expectations are those of the lossless fabric.
    sets = ["fabric.lossless=false", "expect=[]"]
    return run(tmp_path_factory.mktemp("lossy") / "record", "pfc-victim", sets=sets)


def slowdown(done: Run, transfer: int) -> float:
    outcome, planned = done.record.outcomes[transfer], done.record.plan.transfers[transfer]
    assert outcome.end_ns is not None
    return (outcome.end_ns - outcome.start_ns) / planned.ideal_ns


# ---- nothing is lost ------------------------------------------------------------------


def test_where_a_fabric_drops_a_lossless_one_does_not(lossless: Run, lossy: Run) -> None:
    assert lossy.summary["links"]["leaf2-d1"]["drops"] > 0
    assert sum(outcome.retransmissions or 0 for outcome in lossy.record.outcomes) > 0
    assert {name: link["drops"] for name, link in lossless.summary["links"].items() if link["drops"]} == {}
    assert [outcome.retransmissions for outcome in lossless.record.outcomes] == [0] * 4
    assert lossless.summary["fidelity"]["valid"] is True
    assert lossy.summary["pauses"]["count"] == 0


def test_no_queue_needs_more_than_its_headroom(lossless: Run) -> None:
    plan = lossless.record.plan
    assert plan.pausing is not None
    for point in plan.pausing.points:
        peak = int(lossless.record.series(point.link).backlog_bytes.max())
        assert peak <= point.xoff_bytes + point.headroom_bytes, point.link
    assert lossless.summary["links"]["leaf2-d1"]["queue_bytes"]["max"] > 1_000_000


def test_a_held_port_sends_nothing_and_a_free_one_at_its_rate(lossless: Run) -> None:
    for name, held in lossless.record.pausings.held.items():
        series = lossless.record.series(name)
        begin, end = series.time_ns[:-1], series.time_ns[1:]
        closed = held.within_ns(begin, end) == end - begin
        assert closed.any(), name
        # A frame is counted when it begins to be sent, and goes on to its end.
        assert int(np.diff(series.bytes)[closed].max()) == 0, name
    port = lossless.record.series("leaf2-d1")
    busy = (port.backlog_bytes[:-1] > 50_000) & (port.backlog_bytes[1:] > 50_000)
    rate_bps = np.diff(port.bytes)[busy].sum() * 8e9 / np.diff(port.time_ns)[busy].sum()
    assert rate_bps == pytest.approx(100e9, rel=0.001)  # the rounding of a frame's time, docs/lab.md


# ---- whom it hurts --------------------------------------------------------------------


def test_pauses_spread_to_the_senders(lossless: Run) -> None:
    pauses = lossless.summary["pauses"]
    causes = {name: set(link["pauses"]["by"]) for name, link in lossless.summary["links"].items()}
    assert {name: by for name, by in causes.items() if by} == {
        "spine1-leaf2": {"leaf2-d1"},
        "leaf1-spine1": {"spine1-leaf2"},
        **{name: {"leaf1-spine1"} for name in (*INCAST, VICTIM)},
    }
    assert (pauses["first_by"], pauses["roots"], pauses["links"]) == ("leaf2-d1", ["leaf2-d1"], 6)


def test_a_flow_to_an_idle_port_waits_behind_the_others(lossless: Run, lossy: Run) -> None:
    assert slowdown(lossy, 3) < 1.02
    assert slowdown(lossless, 3) > 2.5
    # Nobody else gains by it: the three share one port either way.
    assert lossless.last_end_ns() == pytest.approx(lossy.last_end_ns(), rel=0.01)
    assert lossless.summary["links"]["leaf2-d2"]["utilisation"]["mean"] < 0.5


def test_the_victim_is_told_who_it_was(lossless: Run) -> None:
    verdict = lossless.summary["verdict"]
    assert (verdict["segment"], verdict["link"]) == ("dest-leaf", "leaf2-d1")
    assert verdict["by_decode"]["d2"]["segment"] == "dest-leaf"
    assert verdict["by_decode"]["d2"]["shares"]["dest-leaf"] > 0.9


def test_the_pauses_end_with_the_burst(lossless: Run) -> None:
    pauses = lossless.record.pausings.pauses
    last_end_ns = lossless.last_end_ns()
    assert max(pause.end_ns for pause in pauses) < last_end_ns
    assert lossless.summary["pauses"]["deadlock"] is None


def test_a_fabric_with_room_does_not_pause(tmp_path: Path) -> None:
    sets = ["fabric.lossless=true", "workload.requests.kv_bytes=8mib"]
    done = run(tmp_path / "record", "baseline", sets=sets)
    assert (done.summary["pauses"]["lossless"], done.summary["pauses"]["count"]) == (True, 0)


# ---- deadlock -------------------------------------------------------------------------

BOTH_WAYS = """\
name: both-ways
fabric:
  leaves: 2
  spines: 1
  hosts_per_leaf: 4
  host_link: {rate: 100gbit, delay: 1us}
  fabric_link: {rate: 100gbit, delay: 1us}
  mtu: 4200
  lossless: true
  queue: {limit: 4mb, xoff: 1mb, xon: 500kb}
hosts: {prefill: {count: 4, layout: spread}, decode: {count: 4, leaves: [1, 2], layout: spread}}
transport: {kind: tcp, congestion_control: reno}
workload:
  transfers:
    - {from: p1, to: d2, bytes: 8mib}
    - {from: p3, to: d4, bytes: 8mib}
    - {from: p2, to: d1, bytes: 8mib}
    - {from: p4, to: d3, bytes: 8mib}
"""
"""Both links up are offered twice their rate."""

TURNS = {"leaf1-spine1": "spine1-leaf1", "leaf2-spine1": "spine1-leaf2"}
"""Up-down routing has no circle. This makes one: pretend that what comes down to a leaf goes up again."""


def with_turns(plan: Plan) -> Plan:
    assert plan.pausing is not None
    points = (
        replace(point, feeders=(*point.feeders, TURNS[point.link])) if point.link in TURNS else point
        for point in plan.pausing.points
    )
    return replace(plan, pausing=Pausing(tuple(points), plan.pausing.deadlock_ns))


def test_ports_that_hold_each_other_end_the_run_and_are_named(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, BOTH_WAYS)
    scenario = load_scenario(str(path))
    plan = with_turns(build_plan(scenario, seed=1, backend="uml", clock="virtual"))
    out = tmp_path / "record"
    run_plan(plan, path.read_text(), out, lambda *_: None)
    record = Record.open(out)
    summary = write_outputs(record)
    circle = summary["pauses"]["deadlock"]["links"]
    assert set(circle) == {"leaf1-spine1", "spine1-leaf1", "leaf2-spine1", "spine1-leaf2"}
    held_by = {pause.link: pause.by for pause in record.pausings.pauses if pause.link in circle}
    assert [held_by[name] for name in circle] == [*circle[1:], circle[0]]
    # Found a millisecond after the circle closed, and not waited for until the deadline (2 s and more).
    assert summary["pauses"]["deadlock"]["at_ms"] < 5
    assert [outcome.error for outcome in record.outcomes] == [CALLED_OFF] * 4
    reason = summary["fidelity"]["reasons"][0]
    assert reason.startswith("deadlock, found ")
    told = call("report", out)
    assert "deadlock, found" in told.stdout


def test_without_the_turns_the_same_load_ends(tmp_path: Path) -> None:
    done = run(tmp_path / "record", write_scenario(tmp_path, BOTH_WAYS))
    assert done.summary["transfers"]["completed"] == 4
    assert done.summary["pauses"]["deadlock"] is None
    assert done.summary["pauses"]["count"] > 0
