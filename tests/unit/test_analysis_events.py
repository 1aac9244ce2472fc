"""When things happened: each moment worked out by hand from a few samples, and null where nothing did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.analysis import summarise, transfer_losses
from testbed.analysis.events import _stretches, events
from testbed.record import layout
from testbed.record.reader import Record, SampleGroup
from tests.support.synthetic import CASES, baseline, incast, write_record

STEP_NS = 20_000
LINK = "leaf3-d1"
XOFF = 2_000_000


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """One transfer p1 -> d1 from 0 on; XOFF of leaf3-d1 is 2 MB."""
    return Record.open(write_record(tmp_path_factory.mktemp("toy"), baseline(senders=1)))


def _sampled(
    record: Record,
    sent: Sequence[int] = (),
    backlog: Sequence[int] = (),
    marks: Sequence[int] = (),
    end_ns: int | None = None,
) -> Record:
    """Return `record` with kB sent by p1 in each 20 us, and leaf3-d1's backlog and marks at each sample."""
    rows = max(len(sent) + 1, len(backlog), len(marks))
    table = np.zeros((rows, layout.sample_columns(2)), np.int64)
    table[:, 0] = np.arange(rows) * STEP_NS
    column = {name: number + 1 for number, name in enumerate(layout.SAMPLE_FIELDS)}
    width = len(layout.SAMPLE_FIELDS)
    table[: len(backlog), 1] = backlog
    table[:, column["ce_marks"]] = np.pad(np.cumsum(marks), (0, rows - len(marks)), "edge") if marks else 0
    carried = np.cumsum([0, *sent]) * 1000
    table[:, width + column["bytes"]] = np.pad(carried, (0, rows - len(carried)), "edge")
    outcome = replace(record.outcomes[0], end_ns=end_ns or rows * STEP_NS)
    group = SampleGroup("one", (LINK, "p1-leaf1"), table)
    return replace(record, groups=(group,), outcomes=(outcome,))


def _events(record: Record, accused: str | None = LINK) -> dict[str, Any]:
    return events(record, transfer_losses(record), accused)


def test_the_first_mark_is_the_first_sample_that_counts_one(toy: Record) -> None:
    found = _events(_sampled(toy, marks=[0, 0, 0, 2, 5, 0]))
    assert (found["first_ce_ms"], found["first_ce_link"]) == (0.06, LINK)
    assert found["links"][LINK]["first_ce_ms"] == 0.06
    assert found["links"]["p1-leaf1"]["first_ce_ms"] is None


def test_the_accused_queue_peaks_at_its_longest_sample(toy: Record) -> None:
    record = _sampled(toy, backlog=[0, 500, 900, 900, 100])
    found = _events(record)
    assert (found["queue_peak_ms"], found["queue_peak_link"]) == (0.04, LINK)
    assert found["links"][LINK]["queue_peak_ms"] == 0.04
    unaccused = _events(record, None)
    assert (unaccused["queue_peak_ms"], unaccused["peak_before_slowdown"]) == (None, None)


def test_xoff_is_crossed_from_its_level_on_until_a_sample_below(toy: Record) -> None:
    backlog = [0, XOFF, XOFF + 5, XOFF - 1, XOFF, 0]
    found = _events(_sampled(toy, backlog=backlog))
    crossed = {"first_ms": 0.02, "crossings": 2, "total_ms": 0.06, "longest_ms": 0.04}
    assert found["links"][LINK]["xoff"] == crossed
    assert found["xoff"] == {**crossed, "link": LINK, "links": 1}


def test_xoff_that_was_not_reached_is_zero_and_what_nobody_watches_is_null(toy: Record) -> None:
    record = _sampled(toy, backlog=[0, XOFF - 1, 0])
    found = _events(record)
    assert found["xoff"] == {
        **dict.fromkeys(("link", "first_ms")),
        **dict.fromkeys(("links", "crossings", "total_ms", "longest_ms"), 0),
    }
    assert found["links"][LINK]["xoff"] is None
    unwatched = tuple(replace(queue, xoff_bytes=None) for queue in record.plan.queues)
    assert _events(replace(record, plan=replace(record.plan, queues=unwatched)))["xoff"] is None


FAST, SLOW = [200] * 8, [100] * 12


def _slowdown(record: Record, sent: Sequence[int], marks: Sequence[int] = (1,), **more: int) -> float | None:
    found = _events(_sampled(record, sent, [1] * len(sent), marks, **more))
    moment: float | None = found["first_slowdown_ms"]
    assert found["first_slowdown_host"] == (None if moment is None else "p1")
    return moment


def test_a_sender_that_sends_half_has_slowed_down_from_that_sample_on(toy: Record) -> None:
    assert _slowdown(toy, FAST + SLOW) == 0.16


@pytest.mark.parametrize(("after", "moment"), [(139, 0.16), (140, None)])
def test_less_than_seven_tenths_is_slower(toy: Record, after: int, moment: float | None) -> None:
    assert _slowdown(toy, FAST + [after] * 12) == moment


def test_a_gap_between_two_bursts_is_no_slowdown(toy: Record) -> None:
    assert _slowdown(toy, [200, 200, 0, 400] * 10) is None
    assert _slowdown(toy, [*FAST, 100, 100, 100, 100, *[200] * 20]) is None


def test_a_sender_that_is_done_has_not_slowed_down(toy: Record) -> None:
    assert _slowdown(toy, [*FAST, *[0] * 20]) is None
    assert _slowdown(toy, [*FAST, *[100] * 10]) == 0.16
    assert _slowdown(toy, [*FAST, *[100] * 9]) is None
    assert _slowdown(toy, FAST + SLOW, end_ns=9 * STEP_NS) is None


def test_before_the_first_mark_nobody_slows_down_for_it(toy: Record) -> None:
    sent = FAST + SLOW + SLOW
    assert _slowdown(toy, sent, marks=[0] * 12 + [1]) == 0.24
    assert _slowdown(toy, sent, marks=[]) == 0.16  # nothing marks: from the start of the burst


def test_a_queue_that_peaks_while_all_send_on_is_said_to(toy: Record) -> None:
    backlog = [0] * 9 + [700] + [0] * 10
    late = _sampled(toy, FAST + SLOW, backlog, [1])
    assert (_events(late)["queue_peak_ms"], _events(late)["peak_before_slowdown"]) == (0.18, False)
    early = _sampled(toy, FAST + SLOW, [0] * 7 + [700] + [0] * 12, [1])
    assert (_events(early)["queue_peak_ms"], _events(early)["peak_before_slowdown"]) == (0.14, True)
    never = _sampled(toy, [200] * 20, backlog, [1])
    assert _events(never)["peak_before_slowdown"] is True


def test_one_transfer_less_is_no_slower_sender(toy: Record) -> None:
    sent = FAST + SLOW + SLOW
    first = toy.plan.transfers[0]
    plan = replace(toy.plan, transfers=(first, replace(first, id=1)))
    record = _sampled(replace(toy, plan=plan), sent)
    ends = (8 * STEP_NS, len(sent) * STEP_NS)
    outcomes = tuple(replace(record.outcomes[0], id=number, end_ns=end) for number, end in enumerate(ends))
    two = replace(record, outcomes=outcomes, paths={0: record.paths[0], 1: record.paths[0]})
    assert _events(two)["first_slowdown_ms"] is None
    assert _events(_sampled(toy, sent))["first_slowdown_ms"] == 0.16


def test_the_burst_is_that_of_the_transfers_over_the_accused_link(tmp_path: Path) -> None:
    record = Record.open(write_record(tmp_path, CASES["hot-spine"]()))
    outcomes = tuple(
        replace(outcome, start_ns=moment)
        for outcome, moment in zip(record.outcomes, (3000, 2000, 4000, 1000), strict=True)
    )
    moved = replace(record, outcomes=outcomes)
    assert events(moved, [], "spine1-leaf5")["burst_began_ms"] == 0.002  # the fourth goes over spine2
    assert events(moved, [], None)["burst_began_ms"] == 0.001


def test_a_run_without_any_fact_has_no_moments(toy: Record) -> None:
    found = events(replace(toy, groups=(), outcomes=()), [], None)
    assert found.pop("links") == {}
    assert set(found.values()) == {None}


def test_the_summary_has_the_moments_of_the_incast(tmp_path: Path) -> None:
    found = summarise(Record.open(write_record(tmp_path, incast())))["events"]
    assert (found["burst_began_ms"], found["first_ce_ms"], found["first_ce_link"]) == (0.0, 0.02, LINK)
    assert found["queue_peak_link"] == LINK
    assert len(found["links"]) == 30


def test_what_a_host_sends_between_its_transfers_is_not_theirs(toy: Record) -> None:
    first = toy.plan.transfers[0]
    plan = replace(toy.plan, transfers=(first, replace(first, id=1)))
    record = _sampled(replace(toy, plan=plan), [200] * 20 + SLOW + [200] * 8)
    spans = ((0, 12 * STEP_NS), (32 * STEP_NS, 40 * STEP_NS))
    outcomes = tuple(
        replace(record.outcomes[0], id=number, start_ns=start, end_ns=end)
        for number, (start, end) in enumerate(spans)
    )
    both = replace(record, outcomes=outcomes, paths={0: record.paths[0], 1: record.paths[0]})
    assert _events(both)["first_slowdown_ms"] is None


def test_a_sender_that_waits_for_its_first_answer_has_not_slowed_down(toy: Record) -> None:
    # Links of 10 us: a round trip of 80 us, four samples; the sender is silent for three of each four.
    links = tuple(replace(link, delay_ns=10_000) for link in toy.plan.topology.links)
    plan = replace(toy.plan, topology=replace(toy.plan.topology, links=links))
    sent = [400, 0, 0, 0, 600, 0, 0, 0, *[200] * 8, *[60] * 12]
    assert _slowdown(replace(toy, plan=plan), sent) == 0.32
    # Three round trips of 12 samples must follow within the stretch.
    assert _slowdown(replace(toy, plan=plan), sent[:-1]) is None


SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=12)


@given(spans=SPANS)
def test_a_stretch_is_one_in_which_at_least_one_transfer_runs_and_none_begins_or_ends(
    spans: list[tuple[int, int]],
) -> None:
    spans = [(begin, begin + length) for begin, length in spans]
    busy = [
        (start, until)
        for start, until in pairwise(sorted({moment for span in spans for moment in span}))
        if any(begin <= start and until <= end for begin, end in spans)
    ]
    assert list(_stretches(spans)) == busy
