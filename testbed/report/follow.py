"""Transfers one by one: what each received over time, and what held it up whenever that was too little.

The height of a chart is the rate of the transfer's slowest cable. What is missing up to it is coloured by
the stretch that limited the transfer just then, so a coloured area is time lost. Called by
`testbed.report.page`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from testbed.analysis import TransferLoss
from testbed.analysis.losses import CAUSES, NOTHING, Timeline
from testbed.report import svg
from testbed.report.axes import time_labels
from testbed.report.binning import Floats, Ints
from testbed.report.links import Tick
from testbed.report.numbers import format_rate
from testbed.report.transfers import TransferRow

FOLLOWED_MOST = 60
"""The slowest transfers that can be followed, by slowdown."""

SHOWN_WITHOUT_SCRIPT = 3
BINS_MOST = 240
BINS_OF_PAGE = 6_000
"""Bins are shared by the charts of all transfers, which keeps them below about 100 kB together."""

HEIGHT_UNITS = 100


@dataclass(frozen=True)
class Followed:
    """One transfer's chart with its time axis, the rate at its top, and what it lost to whom (ns)."""

    row: TransferRow
    drawing: Markup
    ticks: tuple[Tick, ...]
    rate: str
    lost: tuple[tuple[str, float], ...]
    shown: bool


def follow(rows: Sequence[TransferRow], losses: Sequence[TransferLoss]) -> tuple[Followed, ...]:
    """Return the slowest of the transfers that completed, the slowest first."""
    by_id = {loss.id: loss for loss in losses if len(loss.timeline.cause)}
    done = [row for row in rows if row.transfer.id in by_id]
    chosen = sorted(done, key=lambda row: -(row.slowdown or 0))[:FOLLOWED_MOST]
    bins = max(1, min(BINS_MOST, BINS_OF_PAGE // max(1, len(chosen))))
    return tuple(
        _followed(row, by_id[row.transfer.id], bins, place < SHOWN_WITHOUT_SCRIPT)
        for place, row in enumerate(chosen)
    )


def _followed(row: TransferRow, loss: TransferLoss, bins: int, shown: bool) -> Followed:
    line_bps = row.transfer.wire_bytes * 8e9 / loss.wire_ns
    start, end = float(loss.timeline.start_ns[0]), float(loss.timeline.end_ns[-1])
    share, cause = binned(loss.timeline, line_bps, np.linspace(start, end, bins + 1))
    lost = tuple(sorted(((name, ns) for name, ns in loss.by_segment.items() if ns >= 1), key=lambda x: -x[1]))
    label = f"Transfer {row.transfer.id}, {row.pair}: share of {format_rate(line_bps)} received over time"
    return Followed(
        row=row,
        drawing=svg.drawing(bins, HEIGHT_UNITS, label, *_areas(share, cause), class_="follow"),
        ticks=tuple(Tick(*label) for label in time_labels(start, end, 7)),
        rate=format_rate(line_bps),
        lost=lost,
        shown=shown,
    )


def binned(timeline: Timeline, line_bps: float, edges_ns: Floats) -> tuple[Floats, Ints]:
    """Return, for each bin, the share of `line_bps` received (0 to 1) and the cause that cost it most.

    The cause is a position in `CAUSES`.
    """
    moments = np.append(timeline.start_ns, timeline.end_ns[-1])
    length = np.diff(moments)
    width = np.diff(edges_ns)
    share = _per_bin(moments, timeline.rate_bps / line_bps * length, edges_ns) / width
    missing = np.maximum(0.0, 1 - timeline.rate_bps / line_bps) * length
    cost = [
        _per_bin(moments, np.where(timeline.cause == number, missing, 0.0), edges_ns)
        for number in range(len(CAUSES))
    ]
    most = np.argmax(cost, axis=0)
    return np.clip(share, 0, 1), np.where(np.max(cost, axis=0) > 0, most, CAUSES.index(NOTHING))


def _per_bin(moments: Floats, amounts: Floats, edges_ns: Floats) -> Floats:
    """Return the part of the intervals' `amounts` that falls into each bin."""
    total = np.concatenate(([0.0], np.cumsum(amounts)))
    return np.diff(np.interp(edges_ns, moments, total))


def _areas(share: Floats, cause: Ints) -> list[Markup]:
    """Draw what was received as one area, and what was missing as one for each cause that cost anything."""
    missing = np.rint((1 - share) * HEIGHT_UNITS).astype(np.int64)
    received = svg.element("path", class_="received", d=svg.filled_steps(missing, HEIGHT_UNITS))
    causes = [number for number, name in enumerate(CAUSES) if name != NOTHING]
    drawn = [(CAUSES[number], _hanging(np.where(cause == number, missing, 0))) for number in causes]
    return [received, *(svg.element("path", class_=f"seg-{name}", d=path) for name, path in drawn if path)]


def _hanging(depths: Ints) -> str:
    """Return the path of bars that hang down from the top, neighbours joined."""
    turns = np.flatnonzero(np.diff(depths)) + 1
    starts = np.concatenate(([0], turns, [len(depths)]))
    parts, down = [], False
    for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        depth = int(depths[begin])
        if depth:
            parts.append(f"{'' if down else f'M{begin} 0'}V{depth}h{end - begin}")
        elif down:
            parts.append("V0z")
        down = depth > 0
    return "".join(parts) + ("V0z" if down else "")
