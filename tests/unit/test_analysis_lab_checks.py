"""The checks that look at the lab itself: each holds on a good record and is provoked to fail by itself."""

from __future__ import annotations

import json
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.analysis.fidelity import fidelity
from testbed.analysis.gaps import backlogged_gaps
from testbed.record import layout
from testbed.record.reader import Record
from testbed.scenario import load_scenario
from tests.support.lab import small_plan
from tests.support.synthetic import baseline, edit_samples, incast, slow_landing, write_record

CASE = incast(senders=2, size=4 << 20)
PORT = "leaf3-d1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_record(tmp_path / "run", CASE)


def _failed(record: Record) -> dict[str, str]:
    return {check["name"]: check["detail"] for check in fidelity(record)["checks"] if not check["ok"]}


def _real(record: Record, **changes: Any) -> Record:
    return replace(record, plan=replace(record.plan, clock="real", **changes))


# ---- packets --------------------------------------------------------------------------


def test_packets_larger_than_the_mtu(folder: Path) -> None:
    record = edit_samples(Record.open(folder), PORT, "packets", lambda packets: packets // 4)
    detail = _failed(record)["packets"]
    assert detail.startswith(f"packets were larger than 4214 bytes: {PORT} (")


# ---- drops ----------------------------------------------------------------------------


def test_losses_outside_the_queues_are_named(folder: Path) -> None:
    (folder / layout.STRAY_DROPS).write_text(json.dumps({"upcalls": 3, "delay stage delay-far": 2}))
    record = Record.open(folder)
    assert _failed(record) == {
        "stray_drops": "packets were lost outside the queues: upcalls (3), delay stage delay-far (2)"
    }
    # Loss that the scenario asks for happens in the delay stages.
    on_purpose = replace(record, plan=replace(record.plan, loss=0.01))
    assert _failed(on_purpose) == {"stray_drops": "packets were lost outside the queues: upcalls (3)"}


def test_a_file_of_losses_that_cannot_be_read_is_a_reason(folder: Path) -> None:
    (folder / layout.STRAY_DROPS).write_text("{")
    assert "stray_drops" in _failed(Record.open(folder))


# ---- the host's queue -----------------------------------------------------------------


def test_a_queue_in_the_hosts_where_the_networks_was_meant(folder: Path) -> None:
    record = Record.open(folder)
    backlog = record.series(PORT).backlog_bytes.copy()

    def from_port(values: Any) -> Any:
        return np.resize(backlog, len(values))

    moved = edit_samples(
        edit_samples(record, "p1-leaf1", "backlog_bytes", from_port), PORT, "backlog_bytes", lambda v: 0 * v
    )
    assert _failed(moved)["host_queue"] == "queues stood in hosts where senders met in the network: p1-leaf1"
    # A queue in both is the network's: the sender's is what has not left yet.
    both = edit_samples(record, "p1-leaf1", "backlog_bytes", from_port)
    assert "host_queue" not in _failed(both)
    # So is that of a sender which is silent until a layer is computed, and then sends as fast as it can.
    releases = dict.fromkeys(range(2), ((0, 1 << 20), (1000, 4 << 20)))
    layered = replace(moved, served=replace(moved.served, releases=releases))
    assert "host_queue" not in _failed(layered)


@pytest.mark.parametrize("case", [baseline(senders=2, size=4 << 20), slow_landing(size=4 << 20)])
def test_a_host_that_shares_no_port_or_lands_slowly_may_queue(tmp_path: Path, case: Any) -> None:
    record = Record.open(write_record(tmp_path / "run", case))
    high = edit_samples(record, "p1-leaf1", "backlog_bytes", lambda values: 0 * values + 500_000)
    assert "host_queue" not in _failed(high)


# ---- a real clock ---------------------------------------------------------------------


def test_a_second_without_idle_time(folder: Path) -> None:
    rows = [[1_000_000_000, 0.4], [2_000_000_000, 0.0], [3_000_000_000, 0.01]]
    (folder / layout.PROCESSORS).write_text(json.dumps(rows))
    record = Record.open(folder)
    assert _failed(record) == {}  # in virtual time it means nothing
    assert _failed(_real(record)) == {
        "processors": "the processors had no idle time in 2 of 3 seconds, the worst at 2 s; raise dilation"
    }


def _write_departures(folder: Path, times: Any, lost: int = 0) -> None:
    rows = [(int(time), 4214, 0, 1, number) for number, time in enumerate(times)]
    (folder / layout.departure_rows(PORT)).write_bytes(array("q", sum(rows, ())).tobytes())
    header = {"format_version": 1, "link": PORT, "rows": len(rows), "lost": lost}
    (folder / layout.departure_header(PORT)).write_text(json.dumps(header))


def _watched(folder: Path, times: Any, lost: int = 0) -> Record:
    _write_departures(folder, times, lost)
    record = edit_samples(Record.open(folder), PORT, "backlog_bytes", lambda values: 0 * values + 500_000)
    return replace(
        record, plan=replace(record.plan, measure=replace(record.plan.measure, departures=(PORT,)))
    )


FRAME_NS = 4214 * 8 / 100
EVEN = 10_000 + np.arange(1200) * FRAME_NS


def test_gaps_of_the_busiest_port(tmp_path: Path) -> None:
    slow = write_record(tmp_path / "slow", incast(senders=2, size=4 << 20, dilation=1000))
    even = _real(_watched(slow, 1000 * EVEN))
    measured, ideal = backlogged_gaps(even, PORT, 2)
    assert len(measured) > 100
    assert np.allclose(measured, ideal, atol=2)
    assert "departures" not in _failed(even)
    late = np.sort(EVEN + 0.9 * FRAME_NS * (np.arange(len(EVEN)) % 5 == 0))
    detail = _failed(_real(_watched(slow, 1000 * late)))["departures"]
    assert detail.startswith(f"gaps between departures of {PORT} are off by ")
    assert detail.endswith(" % (p99); raise dilation")
    # Virtual time's are held against theirs by `testbed validate`.
    virtual = _real(_watched(slow, 1000 * late))
    virtual = replace(virtual, plan=replace(virtual.plan, clock="virtual"))
    assert "departures" not in _failed(virtual)


def test_departures_that_are_missing(folder: Path) -> None:
    lost = _watched(folder, EVEN, lost=7)
    assert _failed(lost)["departures"] == f"7 departures of {PORT} were not recorded"
    (folder / layout.departure_rows(PORT)).unlink()
    assert _failed(lost)["departures"] == f"the departures of {PORT} were not recorded"


def test_on_a_real_clock_the_port_that_receives_most_is_watched() -> None:
    assert small_plan().measure.departures == ()
    real = small_plan(clock="real")
    assert real.measure.departures == ("leaf2-d1",)
    named = small_plan("measure.departures=[leaf2-d1, p1-leaf1]", clock="real")
    assert named.measure.departures == ("leaf2-d1", "p1-leaf1")


# ---- DCTCP without ECN ----------------------------------------------------------------


def test_dctcp_without_ecn_is_no_dctcp(folder: Path) -> None:
    record = Record.open(folder)
    off = replace(record, plan=replace(record.plan, transport=replace(record.plan.transport, ecn=False)))
    assert _failed(off)["marking"] == "dctcp ran without ECN: nothing was marked, so it is another control"
    assert load_scenario("incast").transport.ecn_on


# ---- timers ---------------------------------------------------------------------------


def _counting(record: Record, **counters: int) -> Record:
    return replace(record, tcp_counters={"p1": counters, "d1": counters})


def test_a_congestion_control_with_a_clock_of_its_own_is_not_dilated(folder: Path) -> None:
    record = Record.open(folder)
    transport = replace(record.plan.transport, congestion_control="bbr")
    outcomes = tuple(
        replace(each, sender_congestion_control="bbr", receiver_congestion_control="bbr")
        for each in record.outcomes
    )
    record = replace(record, outcomes=outcomes)
    slowed = _failed(_real(record, transport=transport, dilation=1000.0))["congestion_control"]
    assert slowed == (
        "bbr probes its round trip every 10 s for 200 ms, which dilation does not slow: its queues are "
        "others than without; use virtual time, or dctcp or reno"
    )
    assert "congestion_control" not in _failed(_real(record, transport=transport))


def test_timers_that_dilation_does_not_slow_are_told_when_they_came_into_play(folder: Path) -> None:
    record = Record.open(folder)
    slowed = _real(record, dilation=1000.0)
    assert "congestion_control" not in _failed(_counting(slowed, DelayedACKs=1))
    assert _failed(_counting(slowed, TCPSynRetrans=2))["congestion_control"] == (
        "SYNs were sent again after 1 s, which dilation does not slow: 4"
    )
    assert _failed(_counting(slowed, DelayedACKs=20))["congestion_control"] == (
        "ACKs were sent by a timer of 40 ms, which dilation does not slow: 40"
    )
    assert _failed(_counting(record, TCPSynRetrans=2, DelayedACKs=20)) == {}
