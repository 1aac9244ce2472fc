"""The split of a transfer's lost time: exact in sum, and charged to the queue that stood."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.analysis.losses import CAUSES, SENDER, TransferLoss, transfer_losses
from testbed.plan.model import NO_REQUEST
from testbed.record import layout
from testbed.record.reader import Progress, Record, SampleGroup
from tests.support.synthetic import (
    CASES,
    baseline,
    shared_rail,
    slow_landing,
    slow_rail,
    slow_sender,
    write_record,
)
from topologies.model import SEGMENTS

MS = 1_000_000
PATH = ("p1-leaf1", "leaf1-spine1", "spine1-leaf3", "leaf3-d1")
STANDING = 50_000


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """One transfer p1 -> d1 of 16 MiB whose wire time is 1.363535 ms and whose propagation is 4 us."""
    return Record.open(write_record(tmp_path_factory.mktemp("idle"), baseline(senders=1)))


def _changed(
    record: Record,
    progress: Sequence[tuple[int, float]],
    backlogs: Mapping[str, Sequence[int]] | None = None,
    first_byte_ns: int | None = None,
) -> Record:
    """Return `record` with progress (ns, share received) of its only transfer and backlogs per millisecond.

    The first millisecond's backlog is that from 0 on; the transfer ends with the last progress.
    """
    transfer = record.plan.transfers[0]
    times, shares = np.array(progress, float).T
    rows = Progress(
        np.zeros(len(times), np.int64),
        times.astype(np.int64),
        np.rint(shares * transfer.bytes).astype(np.int64),
    )
    outcome = replace(record.outcomes[0], end_ns=int(times[-1]), first_byte_ns=first_byte_ns)
    groups = (_group(backlogs or {}),)
    return replace(record, all_progress=rows, outcomes=(outcome,), groups=groups)


def _group(backlogs: Mapping[str, Sequence[int]]) -> SampleGroup:
    links = tuple(backlogs) or PATH
    length = max((len(values) for values in backlogs.values()), default=2)
    table = np.zeros((length * 50, layout.sample_columns(len(links))), np.int64)
    table[:, 0] = np.arange(length * 50) * 20_000
    for number, values in enumerate(backlogs.values()):
        table[:, 1 + number * len(layout.SAMPLE_FIELDS)] = np.repeat(values, 50)
    return SampleGroup("all", links, table)


def _only(record: Record) -> TransferLoss:
    (loss,) = transfer_losses(record)
    return loss


def _avoidable(loss: TransferLoss) -> float:
    return sum(loss.by_link.values()) + loss.sender_ns


def _sum(loss: TransferLoss) -> float:
    return _avoidable(loss) + loss.unavoidable_ns + loss.ahead_ns


def test_wire_time_and_start_up_are_those_of_the_path(idle: Record) -> None:
    transfer = idle.plan.transfers[0]
    loss = _only(_changed(idle, [(MS, 0.5), (4 * MS, 1.0)]))
    assert loss.wire_ns == transfer.wire_bytes * 8 / 100
    assert loss.unavoidable_ns == pytest.approx(4000, abs=1)
    assert loss.lost_ns == 4 * MS - loss.wire_ns


def test_without_a_queue_the_sender_lost_it(idle: Record) -> None:
    loss = _only(_changed(idle, [(MS, 0.5), (4 * MS, 1.0)]))
    assert loss.by_link == {}
    assert loss.sender_ns == pytest.approx(loss.lost_ns - loss.unavoidable_ns, rel=1e-12)
    assert loss.by_segment == {
        **dict.fromkeys(SEGMENTS, 0),
        SENDER: loss.sender_ns,
    }


def test_each_interval_is_charged_to_the_queue_that_stood_in_it(idle: Record) -> None:
    backlogs = {"leaf3-d1": [0, STANDING, 0], "spine1-leaf3": [0, 0, STANDING]}
    loss = _only(_changed(idle, [(MS, 0.5), (2 * MS, 0.6), (3 * MS, 1.0)], backlogs))
    assert loss.by_link["leaf3-d1"] == pytest.approx(MS - 0.1 * loss.wire_ns, abs=1)
    assert loss.by_link["spine1-leaf3"] == pytest.approx(MS - 0.4 * loss.wire_ns, abs=1)
    assert loss.sender_ns == pytest.approx(MS - 0.5 * loss.wire_ns - loss.unavoidable_ns, abs=1)
    assert loss.by_segment["dest-leaf"] == loss.by_link["leaf3-d1"]
    assert loss.by_segment["spine"] == loss.by_link["spine1-leaf3"]


def test_of_two_queues_the_one_that_takes_longer_to_drain_is_charged(idle: Record) -> None:
    # 60 kB at 400 Gbit/s drain in 1.2 us, 50 kB at 100 Gbit/s in 4 us.
    backlogs = {"spine1-leaf3": [60_000] * 4, "leaf3-d1": [STANDING] * 4}
    assert set(_only(_changed(idle, [(4 * MS, 1.0)], backlogs)).by_link) == {"leaf3-d1"}


def test_a_queue_of_two_packets_is_no_congestion(idle: Record) -> None:
    two = 2 * (idle.plan.mtu + 14)
    assert _only(_changed(idle, [(4 * MS, 1.0)], {"leaf3-d1": [two] * 5})).by_link == {}
    assert set(_only(_changed(idle, [(4 * MS, 1.0)], {"leaf3-d1": [two + 1] * 5})).by_link) == {"leaf3-d1"}


def test_a_queue_that_is_small_on_average_is_not_charged(idle: Record) -> None:
    record = _changed(idle, [(4 * MS, 1.0)], {"leaf3-d1": [STANDING] + [100] * 4})
    assert set(_only(record).by_link) == {"leaf3-d1"}
    record = _changed(idle, [(4 * MS, 1.0)], {"leaf3-d1": [30_000] + [100] * 4})
    assert _only(record).by_link == {}


def test_a_queue_that_drains_is_not_charged(idle: Record) -> None:
    record = _changed(idle, [(4 * MS, 1.0)], {"leaf3-d1": [10 * STANDING] * 4})
    rows = np.array(record.groups[0].rows)
    rows[::5, 1] = 0
    assert _only(replace(record, groups=(replace(record.groups[0], rows=rows),))).by_link == {}


def test_a_queue_on_another_path_is_not_charged(idle: Record) -> None:
    backlogs = {"spine2-leaf3": [STANDING] * 4}
    assert _only(_changed(idle, [(4 * MS, 1.0)], backlogs)).by_link == {}


def test_an_unmeasured_path_is_charged_only_where_all_candidates_agree(idle: Record) -> None:
    backlogs = {"spine1-leaf3": [10 * STANDING, 10 * STANDING], "leaf3-d1": [0, STANDING]}
    record = replace(_changed(idle, [(MS, 0.5), (2 * MS, 1.0)], backlogs), paths={0: None})
    loss = _only(record)
    assert loss.by_link == {"leaf3-d1": pytest.approx(MS - 0.5 * loss.wire_ns, abs=1)}
    assert loss.sender_ns == pytest.approx(MS - 0.5 * loss.wire_ns - loss.unavoidable_ns, abs=1)


def test_bytes_that_catch_up_make_good_what_was_lost_before_them(idle: Record) -> None:
    # Nothing in the second and a full wire time's worth at once in the third millisecond: 1 ms - 1 ms.
    wire = _only(_changed(idle, [(MS, 1.0)])).wire_ns
    share = (MS - 4000) / wire
    backlogs = {"leaf3-d1": [0, STANDING, STANDING, 0]}
    loss = _only(_changed(idle, [(MS, share), (2 * MS, share), (2 * MS + 1000, 1.0)], backlogs))
    caught_up = (1 - share) * wire - 1000
    assert loss.by_link == {"leaf3-d1": pytest.approx(MS - caught_up, abs=1)}
    assert loss.sender_ns == pytest.approx(0, abs=1)


def test_a_transfer_that_beats_its_wire_time_is_ahead(idle: Record) -> None:
    loss = _only(_changed(idle, [(MS, 1.0)]))
    assert loss.ahead_ns == MS - loss.wire_ns < 0
    assert (loss.by_link, loss.sender_ns, loss.unavoidable_ns) == ({}, 0.0, 0.0)


def test_before_the_first_byte_nothing_arrives(idle: Record) -> None:
    backlogs = {"leaf3-d1": [0, STANDING, STANDING, 0]}
    loss = _only(_changed(idle, [(3 * MS, 1.0)], backlogs, first_byte_ns=MS))
    assert loss.sender_ns == pytest.approx(MS - loss.unavoidable_ns, abs=1)
    assert loss.by_link == {"leaf3-d1": pytest.approx(2 * MS - loss.wire_ns, abs=1)}


def test_no_progress_at_all_still_adds_up(idle: Record) -> None:
    record = _changed(idle, [(4 * MS, 1.0)], {"leaf3-d1": [STANDING] * 4})
    nothing = np.empty(0, np.int64)
    loss = _only(replace(record, all_progress=Progress(nothing, nothing, nothing)))
    assert _sum(loss) == pytest.approx(loss.lost_ns, rel=1e-9)


def test_transfers_that_did_not_complete_have_no_split(idle: Record) -> None:
    assert transfer_losses(replace(idle, outcomes=(replace(idle.outcomes[0], end_ns=None),))) == []


progress_lists = st.lists(
    st.tuples(st.integers(1, 20 * MS), st.floats(0, 1)), min_size=0, max_size=30, unique_by=lambda row: row[0]
)


@settings(max_examples=200, deadline=None)
@given(progress_lists, st.lists(st.sampled_from([0, 9_000, STANDING, 900_000]), min_size=2, max_size=20))
def test_the_parts_add_up_to_the_whole(
    idle: Record, progress: list[tuple[int, float]], queue: list[int]
) -> None:
    ordered = list(zip(sorted(row[0] for row in progress), sorted(row[1] for row in progress), strict=True))
    record = _changed(idle, [*ordered, (20 * MS + 1, 1.0)], {"leaf3-d1": queue, "leaf1-spine1": queue[::-1]})
    loss = _only(record)
    assert _sum(loss) == pytest.approx(loss.fct_ns - loss.wire_ns, rel=1e-9)
    assert sum(loss.by_segment.values()) == pytest.approx(_avoidable(loss), rel=1e-9)
    assert min([*loss.by_link.values(), loss.sender_ns, loss.unavoidable_ns]) >= 0


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_parts_add_up_in_every_toy_run(name: str, tmp_path: Path) -> None:
    losses = transfer_losses(Record.open(write_record(tmp_path, CASES[name]())))
    assert len(losses) >= 2
    for loss in losses:
        assert _sum(loss) == pytest.approx(loss.fct_ns - loss.wire_ns, rel=1e-9)


def test_transfers_that_share_a_host_lose_to_its_rail_a_third_each(tmp_path: Path) -> None:
    losses = transfer_losses(Record.open(write_record(tmp_path, shared_rail())))
    for loss in losses:
        # Each has a third of the rate: of its three wire times two are lost, less the start-up ramp's part.
        assert loss.by_link["p1-leaf1"] == pytest.approx(2 * loss.wire_ns, rel=0.05)


def test_a_slow_rail_is_a_loss_against_the_cables(tmp_path: Path) -> None:
    losses = {loss.src: loss for loss in transfer_losses(Record.open(write_record(tmp_path, slow_rail())))}
    slow = losses["p2"]
    assert slow.wire_ns == losses["p1"].wire_ns  # both at 100 Gbit/s, though p2's rail has 40
    # At 40 of 100 Gbit/s it takes 2.5 wire times, of which 1.5 are lost, less the start-up ramp's part.
    assert slow.by_link["p2g1-p2"] == pytest.approx(1.5 * slow.wire_ns, rel=0.05)
    assert losses["p1"].lost_ns - losses["p1"].sender_ns == pytest.approx(losses["p1"].unavoidable_ns, abs=1)


def test_a_slow_landing_is_charged_also_where_the_path_was_not_measured(tmp_path: Path) -> None:
    record = Record.open(write_record(tmp_path, slow_landing()))
    for loss in transfer_losses(replace(record, paths={0: None, 1: None})):
        assert set(loss.by_link) == {"d1-d1g1"}
        assert loss.wire_ns == record.plan.transfers[loss.id].wire_bytes * 8 / 100


def test_the_timeline_says_what_limited_when(idle: Record) -> None:
    backlogs = {"leaf3-d1": [0, STANDING, 0], "spine1-leaf3": [0, 0, STANDING]}
    loss = _only(_changed(idle, [(MS, 0.5), (2 * MS, 0.6), (3 * MS, 1.0)], backlogs))
    line = loss.timeline
    assert [CAUSES[number] for number in line.cause] == ["nothing", "sender", "dest-leaf", "spine"]
    assert line.start_ns.tolist() == pytest.approx([0, 4000, MS, 2 * MS], abs=1)
    assert line.end_ns.tolist() == pytest.approx([4000, MS, 2 * MS, 3 * MS], abs=1)
    bits = idle.plan.transfers[0].wire_bytes * 8
    expected = [0, 0.5 * bits / 0.996e-3, 0.1 * bits / 1e-3, 0.4 * bits / 1e-3]
    assert line.rate_bps.tolist() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_timeline_holds_all_bytes_and_all_of_the_time(name: str, tmp_path: Path) -> None:
    record = Record.open(write_record(tmp_path, CASES[name]()))
    for loss, outcome, transfer in zip(
        transfer_losses(record), record.outcomes, record.plan.transfers, strict=True
    ):
        line = loss.timeline
        assert (line.start_ns[0], line.end_ns[-1]) == (outcome.start_ns, outcome.end_ns)
        assert (line.start_ns[1:] == line.end_ns[:-1]).all()
        bits = (line.rate_bps * (line.end_ns - line.start_ns)).sum() / 1e9
        assert bits == pytest.approx(transfer.wire_bytes * 8, rel=1e-6)


@pytest.mark.parametrize(("lost", "cause"), [(0.009, "nothing"), (0.011, "dest-leaf")])
def test_a_hundredth_of_an_interval_is_no_cause(lost: float, cause: str, idle: Record) -> None:
    wire = idle.plan.transfers[0].wire_bytes * 8 / 100
    share = (MS - 4000) * (1 - lost) / wire
    record = _changed(idle, [(MS, share), (3 * MS, 1.0)], {"leaf3-d1": [STANDING] * 3})
    assert [CAUSES[number] for number in _only(record).timeline.cause] == ["nothing", cause, "dest-leaf"]


def test_what_descriptors_cost_to_post_is_no_loss(tmp_path: Path) -> None:
    case = slow_sender()  # every sender hands over 33 Gbit/s on the wire, and nothing queues
    lost = transfer_losses(Record.open(write_record(tmp_path / "sender", case)))
    assert min(loss.sender_ns for loss in lost) > 0.6 * lost[0].fct_ns
    posted = []
    for one in case.plan.transfers:
        pace_bps = 33_000_000_000 * one.bytes // one.wire_bytes
        alone_ns = math.ceil(one.bytes * 8e9 / pace_bps) + 4_000
        posted.append(replace(one, pace_bps=pace_bps, request=one.id, ideal_ns=alone_ns))
    case = replace(case, plan=replace(case.plan, transfers=tuple(posted)))
    for loss in transfer_losses(Record.open(write_record(tmp_path / "posted", case))):
        assert loss.fct_ns == pytest.approx(loss.ideal_ns, rel=0.005)
        assert _avoidable(loss) < 0.005 * loss.fct_ns
    # A pace that a scenario gives a transfer of its own is what its sender does.
    own = replace(case.plan, transfers=tuple(replace(one, request=NO_REQUEST) for one in posted))
    lost = transfer_losses(Record.open(write_record(tmp_path / "own", replace(case, plan=own))))
    assert min(loss.sender_ns for loss in lost) > 0.2 * lost[0].fct_ns
