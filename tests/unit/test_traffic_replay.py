"""Replaying a part of a trace: window, speed, limit, ticks, what is counted, and how little is held."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from traffic.request import Ends, Request
from traffic.tally import Tally
from traffic.traces import FORMATS
from traffic.traces.replay import Part, replay
from traffic.traces.rows import Reading, Row, Rows, TraceError, Unusable

S = 10**9


def row(second: float, tokens: int = 1) -> Row:
    return Row(int(second * 10) + 1, int(second * S), tokens, 1)


def no_ends(ranks: tuple[int, int]) -> Ends | None:
    return None


def taken(rows: list[Row | Unusable], part: Part, seed: int = 1) -> tuple[list[Request], Tally]:
    tally = Tally()
    stream = replay("trace", iter(rows), part, random.Random(seed), tally, no_ends)
    return list(stream), tally


def arrivals(rows: list[Row | Unusable], part: Part, seed: int = 1) -> list[float]:
    return [request.arrival_ns / S for request in taken(rows, part, seed)[0]]


TEN: list[Row | Unusable] = [row(100 + second, second + 1) for second in range(10)]


def test_arrivals_count_from_the_first_row() -> None:
    requests, _ = taken(TEN, Part())
    assert [request.id for request in requests] == list(range(10))
    assert [request.arrival_ns for request in requests] == [second * S for second in range(10)]
    assert [request.prompt_tokens for request in requests] == list(range(1, 11))


def test_a_row_becomes_a_request_field_by_field() -> None:
    (request,), _ = taken([Row(1, 5 * S, 1030, 4, (7, 8, 9), 515)], Part())
    assert request == Request(0, 0, 1030, 4, None, (7, 8, 9), 515)


def test_a_window_is_from_its_beginning_to_before_its_end() -> None:
    requests, _ = taken(TEN, Part(from_ns=2 * S, to_ns=5 * S))
    assert [(request.id, request.arrival_ns) for request in requests] == [(0, 0), (1, S), (2, 2 * S)]
    assert [request.prompt_tokens for request in requests] == [3, 4, 5]
    # An arrival counts from the beginning of the window, whether a row stands there or not.
    assert arrivals(TEN, Part(from_ns=int(2.5 * S), to_ns=4 * S)) == [0.5]


def test_nothing_is_read_behind_the_window_or_the_limit() -> None:
    def rows() -> Rows:
        yield from TEN[:5]
        raise AssertionError("read too far")

    for part in (Part(to_ns=4 * S), Part(limit=4)):
        stream = replay("trace", rows(), part, random.Random(1), Tally(), no_ends)
        assert len(list(stream)) == 4


def test_speedup_divides_the_gaps() -> None:
    assert arrivals(TEN, Part(from_ns=4 * S, speedup=4.0)) == [0, 0.25, 0.5, 0.75, 1, 1.25]
    assert arrivals(TEN[:3], Part(speedup=0.5)) == [0, 2, 4]


def test_what_cannot_be_used_is_counted_by_reason_inside_the_part() -> None:
    rows = [Unusable(1, 0, "early"), row(1), Unusable(3, S, "bad"), Unusable(4, None, "bad"), row(5)]
    rows += [Unusable(6, 6 * S, "late"), row(7)]
    requests, tally = taken(rows, Part(from_ns=S, to_ns=6 * S))
    assert [request.arrival_ns for request in requests] == [0, 4 * S]
    assert tally.skipped == Counter({"bad": 2})
    assert taken(rows, Part())[1].skipped == Counter({"early": 1, "bad": 2, "late": 1})


def test_a_clock_that_goes_back_is_an_error_with_its_line() -> None:
    with pytest.raises(TraceError) as caught:
        taken([row(5), row(4.5)], Part())
    assert str(caught.value) == (
        "trace:46: arrives 0.5 s before the row above it; "
        "sort the rows by time, or cut the file where its clock begins anew"
    )


def test_equal_times_are_equal_rows_and_not_one() -> None:
    assert arrivals([row(1), row(1), row(1)], Part()) == [0, 0, 0]


def test_ticks_are_spread_over_the_step_in_the_order_of_the_file() -> None:
    rows: list[Row | Unusable] = [*(row(3, k + 1) for k in range(200)), *(row(9, k + 1) for k in range(50))]
    requests, _ = taken(rows, Part(spread_ns=3 * S))
    times = [request.arrival_ns for request in requests]
    assert times == sorted(times)
    assert [request.prompt_tokens for request in requests] == [*range(1, 201), *range(1, 51)]
    first, second = times[:200], times[200:]
    # The step is 3 s; the next rows come 6 s later.
    assert 0 <= first[0] < 0.1 * S
    assert 2.9 * S < first[-1] < 3 * S
    assert second[0] >= 6 * S
    assert second[-1] < 9 * S
    # The mean of 200 uniform times is within five standard errors (3 s / sqrt(12 x 200)) of the middle.
    assert abs(sum(first) / 200 - 1.5 * S) < 5 * 0.062 * S


def test_a_step_ends_where_the_next_one_begins() -> None:
    rows: list[Row | Unusable] = [row(0, 1) for _ in range(100)] + [row(1, 2)]
    times = arrivals(rows, Part(spread_ns=3 * S))
    assert max(times[:100]) < 1 <= times[100]


def test_spreading_is_the_seeds() -> None:
    rows: list[Row | Unusable] = [row(0), row(0), row(3)]
    assert arrivals(rows, Part(spread_ns=3 * S), 1) == arrivals(rows, Part(spread_ns=3 * S), 1)
    assert arrivals(rows, Part(spread_ns=3 * S), 1) != arrivals(rows, Part(spread_ns=3 * S), 2)


def test_rows_between_ranks_that_are_no_pair_are_not_used() -> None:
    rows: list[Row | Unusable] = [
        Row(1, 0, 0, 0, kv_bytes=5, ranks=(0, 1)),
        Row(2, 0, 0, 0, kv_bytes=6, ranks=(1, 0)),
    ]
    tally, ends = Tally(), Ends("p1", 1, "d1", 1)
    choose: Callable[[tuple[int, int]], Ends | None] = {(0, 1): ends}.get
    assert list(replay("trace", iter(rows), Part(), random.Random(1), tally, choose)) == [
        Request(0, 0, 0, 0, 5, ends=ends)
    ]
    assert tally.skipped == Counter({"not from a prefill to a decode GPU": 1})


# ---- memory ---------------------------------------------------------------------------

PEAK_BYTES = 400_000
"""Room for buffers of the reading; 6,000 rows as objects take four times as much and more."""


def _peak(path: Path, name: str, count: int) -> int:
    tally = Tally()
    tracemalloc.start()
    try:
        rows: Iterator[Row | Unusable] = FORMATS[name].read(str(path), Reading())
        for request in replay(str(path), rows, Part(spread_ns=S), random.Random(1), tally, no_ends):
            tally.add(request, 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert tally.requests == count
    return peak


@pytest.mark.parametrize(
    ("name", "head", "line"),
    [
        (
            "mooncake",
            "",
            '{{"timestamp": {0}, "input_length": 1025, "output_length": 9, "hash_ids": [1, 2, {0}]}}\n',
        ),
        ("burstgpt", "Timestamp,Request tokens,Response tokens\n", "{0},1025,9\n"),
    ],
)
def test_memory_does_not_grow_with_the_rows(name: str, head: str, line: str, tmp_path: Path) -> None:
    path, count = tmp_path / "long", 6_000
    with path.open("w") as file:
        file.write(head)
        file.writelines(line.format(second) for second in range(count))
    assert _peak(path, name, count) < PEAK_BYTES
