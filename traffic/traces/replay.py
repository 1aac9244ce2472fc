"""From the rows of a trace to requests: which part of it, how fast, and what becomes of its clock's ticks.

One row at a time: nothing but the rows of one tick is ever held.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from traffic.request import Ends, Request
from traffic.tally import Tally
from traffic.traces.rows import Row, Rows, TraceError

EndsOf = Callable[[tuple[int, int]], Ends | None]
"""Returns the hosts and GPUs of two ranks, None where a request cannot go from one to the other."""

MISPLACED = "not from a prefill to a decode GPU"


@dataclass(frozen=True)
class Part:
    """What is replayed: rows from `from_ns` to before `to_ns` (None: the end) after the trace's first row.

    Gaps are divided by `speedup`; after `limit` requests (None: no limit) it ends. With `spread_ns` above 0
    rows of one time are spread at random over that step of the trace's clock, or up to the next time where
    that comes sooner.
    """

    from_ns: int = 0
    to_ns: int | None = None
    speedup: float = 1.0
    limit: int | None = None
    spread_ns: int = 0


def replay(
    path: str, rows: Rows, part: Part, rng: random.Random, tally: Tally, ends_of: EndsOf
) -> Iterator[Request]:
    """Yield the requests of a part of a trace, in order of arrival; rows it cannot use go to `tally`.

    An arrival is counted from the beginning of the part. TraceError for a row that is earlier than the one
    above it, beside those of the format.
    """
    number = 0
    timed = _within(path, rows, part, tally)
    for at_ns, row in _spread(timed, part.spread_ns, rng) if part.spread_ns else timed:
        ends = ends_of(row.ranks) if row.ranks else None
        if row.ranks and ends is None:
            tally.skip(MISPLACED)
            continue
        yield _request(number, round((at_ns - part.from_ns) / part.speedup), row, ends)
        number += 1
        if number == part.limit:
            return


def _request(number: int, arrival_ns: int, row: Row, ends: Ends | None) -> Request:
    return Request(
        id=number,
        arrival_ns=arrival_ns,
        prompt_tokens=row.prompt_tokens,
        output_tokens=row.output_tokens,
        kv_bytes=row.kv_bytes,
        prefix_blocks=row.prefix_blocks,
        block_tokens=row.block_tokens,
        ends=ends,
    )


def _within(path: str, rows: Rows, part: Part, tally: Tally) -> Iterator[tuple[int, Row]]:
    """Yield the usable rows of a part with their time after the trace's first row, used or not."""
    first_ns = last_ns = None
    for row in rows:
        if row.at_ns is not None:
            if last_ns is not None and row.at_ns < last_ns:
                raise TraceError(path, row.line, _backwards(last_ns - row.at_ns))
            first_ns, last_ns = row.at_ns if first_ns is None else first_ns, row.at_ns
        offset_ns = (last_ns or 0) - (first_ns or 0)
        if part.to_ns is not None and offset_ns >= part.to_ns:
            return
        if offset_ns < part.from_ns:
            continue
        if isinstance(row, Row):
            yield offset_ns, row
        else:
            tally.skip(row.reason)


def _backwards(by_ns: int) -> str:
    wrong = f"arrives {by_ns / 1e9:g} s before the row above it"
    return f"{wrong}; sort the rows by time, or cut the file where its clock begins anew"


def _spread(timed: Iterator[tuple[int, Row]], step_ns: int, rng: random.Random) -> Iterator[tuple[int, Row]]:
    groups = ((at_ns, [row for _, row in group]) for at_ns, group in groupby(timed, key=itemgetter(0)))
    current = next(groups, None)
    while current is not None:
        following = next(groups, None)
        at_ns, rows = current
        room_ns = step_ns if following is None else min(step_ns, following[0] - at_ns)
        late_ns = sorted(int(rng.random() * room_ns) for _ in rows)
        yield from ((at_ns + late, row) for late, row in zip(late_ns, rows, strict=True))
        current = following
