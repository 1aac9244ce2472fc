"""Figures of a link against values worked out by hand from a few samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.analysis.links import fabric_utilisation, queue_figures, standing_ns, summarise_links
from testbed.record import layout
from testbed.record.reader import LinkSeries, Record, SampleGroup
from tests.support.synthetic import baseline, incast, write_record

US = 1_000


def _series(times_us: list[int], backlog: list[int]) -> LinkSeries:
    nothing = np.zeros(len(backlog), np.int64)
    return LinkSeries(np.array(times_us) * US, np.array(backlog), nothing, nothing, nothing, nothing)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """One transfer from 0 to 1.412535 ms over p1-leaf1 and leaf3-d1."""
    return Record.open(write_record(tmp_path_factory.mktemp("toy"), baseline(senders=1)))


def _with_rows(record: Record, rows: list[list[int]], link: str = "leaf3-d1", end_ms: float = 4) -> Record:
    """Return `record` with one sampled link; a row is us, backlog, bytes, packets, drops, marks."""
    table = np.array(rows, np.int64)
    table[:, 0] *= US
    outcome = replace(record.outcomes[0], end_ns=round(end_ms * 1e6))
    return replace(record, groups=(SampleGroup("one", (link,), table),), outcomes=(outcome,))


def _entry(record: Record, link: str = "leaf3-d1") -> dict[str, Any]:
    return summarise_links(record)[link]


def test_every_link_of_the_plan_has_an_entry_that_says_where_it_is(toy: Record) -> None:
    links = summarise_links(toy)
    assert list(links) == [link.name for link in toy.plan.topology.links]
    entry = links["spine1-leaf3"]
    assert (entry["segment"], entry["from"], entry["to"]) == ("spine", "spine1", "leaf3")
    assert entry["rate_bps"] == 400_000_000_000


def test_mean_utilisation_is_what_was_carried_in_the_busy_window(toy: Record) -> None:
    # 100 Gbit/s carry 50 MB in the window's 4 ms; 20 MB of the 30 MB fall into it.
    rows = [[-1000, 0, 500, 0, 0, 0], [0, 0, 5_000_500, 0, 0, 0], [4000, 0, 25_000_500, 0, 0, 0]]
    entry = _entry(_with_rows(toy, [*rows, [5000, 0, 30_000_500, 0, 0, 0]]))
    assert entry["utilisation"]["mean"] == pytest.approx(0.4, rel=1e-12)
    assert entry["bytes"] == 30_000_000


def test_peak_utilisation_is_that_of_the_busiest_millisecond(toy: Record) -> None:
    carried = [0, 0, 10_000_000, 12_000_000, 12_000_000]  # bytes by the end of each millisecond
    rows = [[1000 * number, 0, total, 0, 0, 0] for number, total in enumerate(carried)]
    assert _entry(_with_rows(toy, rows))["utilisation"]["peak"] == pytest.approx(0.8, rel=1e-12)


def test_a_window_shorter_than_a_bin_is_one_bin(toy: Record) -> None:
    rows = [[0, 0, 0, 0, 0, 0], [500, 0, 5_000_000, 0, 0, 0], [1000, 0, 5_000_000, 0, 0, 0]]
    utilisation = _entry(_with_rows(toy, rows, end_ms=0.5))["utilisation"]
    assert utilisation == {"mean": pytest.approx(0.8), "peak": pytest.approx(0.8)}


def test_totals_are_of_the_whole_record_and_begin_at_the_first_sample(toy: Record) -> None:
    entry = _entry(
        _with_rows(toy, [[-50, 0, 7, 100, 3, 20], [0, 0, 7, 100, 3, 20], [9000, 0, 8, 180, 5, 40]])
    )
    assert (entry["packets"], entry["drops"], entry["ce_marks"], entry["marked_share"]) == (80, 2, 20, 0.25)


def test_queue_figures_are_weighted_by_time_and_bounded_by_the_window() -> None:
    # 1000 for 10 us before the window, then 0 for 90 us, 500 for 8 us, 900 for 2 us, and 7000 after it.
    series = _series([-10, 0, 90, 98, 100], [1000, 0, 500, 900, 7000])
    assert queue_figures(series, (0, 100 * US)) == {"mean": pytest.approx(58), "p99": 900, "max": 900}
    assert queue_figures(series, (0, 98 * US))["p99"] == 500
    assert queue_figures(series, (-5 * US, 95 * US)) == {"mean": pytest.approx(75), "p99": 1000, "max": 1000}


def test_an_empty_queue_is_zero_throughout() -> None:
    assert queue_figures(_series([0, 10], [0, 0]), (0, 10 * US)) == {"mean": 0.0, "p99": 0, "max": 0}


def test_the_last_sample_holds_to_the_end_of_the_window() -> None:
    assert queue_figures(_series([0, 10], [0, 100]), (0, 20 * US))["mean"] == 50


def test_a_queue_stands_only_while_it_stays_above_the_level_for_long_enough() -> None:
    series = _series([0, 10, 20, 30, 40, 50, 60, 70], [9, 9, 0, 9, 9, 9, 5, 9])
    window = (0, 80 * US)
    assert standing_ns(series, 5, 10 * US, window) == 60 * US
    assert standing_ns(series, 5, 20 * US, window) == 50 * US
    assert standing_ns(series, 5, 30 * US, window) == 30 * US
    assert standing_ns(series, 5, 31 * US, window) == 0
    assert standing_ns(series, 5, 30 * US, (0, 55 * US)) == 0


def test_each_rise_to_xoff_counts_once(toy: Record) -> None:
    levels = [2_000_000, 1_999_999, 2_000_000, 3_000_000, 0, 2_500_000]
    rows = [[1000 * number, level, 0, 0, 0, 0] for number, level in enumerate(levels)]
    assert _entry(_with_rows(toy, rows))["xoff_crossings"] == 3
    assert _entry(_with_rows(toy, rows, "p1-leaf1"), "p1-leaf1")["xoff_crossings"] is None


def test_a_link_that_was_not_sampled_has_no_figures(toy: Record) -> None:
    entry = _entry(replace(toy, groups=()))
    assert entry["utilisation"] == {"mean": None, "peak": None}
    assert entry["queue_bytes"] == {"mean": None, "p99": None, "max": None}
    assert (entry["bytes"], entry["drops"], entry["standing_ms"]) == (None, None, None)
    assert fabric_utilisation(summarise_links(replace(toy, groups=()))) is None


def test_fabric_utilisation_is_the_mean_of_the_links_between_switches(tmp_path: Path) -> None:
    record = Record.open(write_record(tmp_path, incast()))
    found = fabric_utilisation(summarise_links(record))
    # 8 transfers fill 100 Gbit/s and cross two of twelve links of 200 Gbit/s each.
    assert found == pytest.approx(8 * 2 * 12.5 / 200 / 12, rel=0.01)


def test_the_layout_of_a_sample_row_is_the_one_these_tests_write() -> None:
    assert layout.SAMPLE_FIELDS == ("backlog_bytes", "bytes", "packets", "drops", "ce_marks")
