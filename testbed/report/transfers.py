"""The transfers on the page: completion CDF, a bar for each transfer's time, the table of the slowest.

A bar is the whole of a transfer's time, from its start to its end: first the part it would have needed at
line rate, then the time it lost, divided by the stretch that limited it. The parts are amounts, they do not
say when within the transfer the time was lost. Called by `testbed.report.page`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from testbed.analysis import TransferLoss
from testbed.analysis.losses import SENDER
from testbed.plan.model import Transfer
from testbed.record.outcomes import Outcome
from testbed.record.reader import Record
from testbed.report import svg
from testbed.report.axes import time_labels
from testbed.report.binning import Ints
from testbed.report.linkchart import Window
from testbed.report.links import Tick
from testbed.report.numbers import format_factor, format_ns
from topologies.model import SEGMENTS

CDF_COLUMNS = 1000
CDF_UNITS = 400
BARS_MOST = 400
"""Bars drawn at most: of more transfers the slowest, by slowdown."""

ROW_UNITS = 10
BAR_UNITS = 7
ROW_PX_MOST = 16
TIMELINE_PX_MOST = 640
LABEL_ROW_PX = 13
"""Rows lower than this carry no label."""

TABLE_ROWS = 20


@dataclass(frozen=True)
class TransferRow:
    """A transfer's plan and outcome together, times in ns. `fct_ns` is None when it did not complete."""

    transfer: Transfer
    outcome: Outcome
    fct_ns: int | None
    slowdown: float | None
    lost_ns: Mapping[str, float]
    path: tuple[str, ...] | None

    @property
    def pair(self) -> str:
        """Source and destination as one label."""
        return f"{self.transfer.src}\N{RIGHTWARDS ARROW}{self.transfer.dst}"

    @property
    def limiting(self) -> str | None:
        """The stretch that cost this transfer most; None when nothing was lost or it is not known."""
        worst = max(self.lost_ns, key=lambda segment: self.lost_ns[segment], default=None)
        return worst if worst is not None and self.lost_ns[worst] > 0 else None


@dataclass(frozen=True)
class DecodeRow:
    """How long the transfers to one decode host took, what they lost in all (ms), and mostly to whom."""

    host: str
    p50_ms: float | None
    p99_ms: float | None
    lost_ms: float | None
    limiting: str | None


@dataclass(frozen=True)
class Cdf:
    """The completion curve with its time axis; `end_ns` is the axis' right end."""

    drawing: Markup
    ticks: tuple[Tick, ...]
    end_ns: float


@dataclass(frozen=True)
class Timeline:
    """The bars, `shown` of `total`; `labels` is empty where rows are too low for words."""

    drawing: Markup
    height_px: int
    row_px: float
    labels: tuple[str, ...]
    shown: int
    total: int
    segments: tuple[str, ...]
    has_losses: bool


def transfer_rows(record: Record, losses: Sequence[TransferLoss]) -> tuple[TransferRow, ...]:
    """Join plan, outcomes, measured paths and losses, in the order of the plan."""
    lost = {loss.id: loss.by_segment for loss in losses}
    outcomes = {outcome.id: outcome for outcome in record.outcomes}
    return tuple(
        _row(transfer, outcomes[transfer.id], lost.get(transfer.id, {}), record.paths.get(transfer.id))
        for transfer in record.plan.transfers
        if transfer.id in outcomes
    )


def _row(
    transfer: Transfer, outcome: Outcome, lost_ns: Mapping[str, float], path: tuple[str, ...] | None
) -> TransferRow:
    ended = outcome.end_ns if outcome.completed else None
    fct_ns = None if ended is None else ended - outcome.start_ns
    slowdown = None if fct_ns is None or not transfer.ideal_ns else fct_ns / transfer.ideal_ns
    return TransferRow(transfer, outcome, fct_ns, slowdown, lost_ns, path)


def slowest(rows: Sequence[TransferRow], most: int = TABLE_ROWS) -> tuple[TransferRow, ...]:
    """Return the rows with the largest slowdown, those that did not complete before all others."""
    return tuple(sorted(rows, key=lambda row: -(row.slowdown or np.inf))[:most])


def decode_rows(summary: Mapping[str, Any]) -> tuple[DecodeRow, ...]:
    """Return a row for each decode host, the one with the longest p99 first; none where there is only one."""
    times = summary["ttft_ms"].get("by_decode", {})
    blamed = summary["verdict"].get("by_decode", {})
    rows = [_decode_row(host, times[host], blamed.get(host, {})) for host in times]
    return tuple(sorted(rows, key=lambda row: -(row.p99_ms or 0))) if len(rows) > 1 else ()


def _decode_row(host: str, times: Mapping[str, Any], blamed: Mapping[str, Any]) -> DecodeRow:
    shares = blamed.get("shares", {})
    worst = max(shares, key=lambda segment: shares[segment], default=None)
    limiting = worst if worst is not None and shares[worst] > 0 else None
    return DecodeRow(host, times["p50"], times["p99"], blamed.get("lost_ms"), limiting)


def draw_cdf(rows: Sequence[TransferRow]) -> Cdf | None:
    """Draw which share of all transfers had completed after how long, and the same for their ideal times.

    None when no transfer completed.
    """
    fct_ns = np.sort([row.fct_ns for row in rows if row.fct_ns is not None])
    if not len(fct_ns):
        return None
    ideal_ns = np.sort([row.transfer.ideal_ns for row in rows])
    end_ns = float(max(fct_ns[-1], ideal_ns[-1])) * 1.03
    curves = (
        _cumulative(ideal_ns, len(rows), end_ns, "ideal"),
        _cumulative(fct_ns, len(rows), end_ns, "actual"),
    )
    label = f"Share of transfers completed after a time: all {len(fct_ns)} by {format_ns(float(fct_ns[-1]))}"
    drawing = svg.drawing(CDF_COLUMNS, CDF_UNITS, label, *curves, class_="curves cdf")
    ticks = tuple(Tick(*label) for label in time_labels(0, end_ns, 7))
    return Cdf(drawing, ticks, end_ns)


def _cumulative(times_ns: Ints, total: int, end_ns: float, kind: str) -> Markup:
    ends = np.arange(1, CDF_COLUMNS + 1) * (end_ns / CDF_COLUMNS)
    share = np.searchsorted(times_ns, ends, side="right") / total
    return svg.element("path", class_=kind, d=svg.steps(svg.to_pixels(share, 1.0, CDF_UNITS)))


def draw_timeline(rows: Sequence[TransferRow], window: Window) -> Timeline:
    """Draw a bar for each transfer on the time axis of the link charts, in the order of their starts."""
    chosen = slowest(rows, BARS_MOST) if len(rows) > BARS_MOST else tuple(rows)
    chosen = tuple(sorted(chosen, key=lambda row: (row.outcome.start_ns, row.transfer.id)))
    row_px = min(ROW_PX_MOST, TIMELINE_PX_MOST / max(1, len(chosen)))
    bars = [_bar(row, number, window) for number, row in enumerate(chosen)]
    label = f"Start to end of {len(chosen)} transfers"
    found = {segment for row in chosen for segment, lost in row.lost_ns.items() if lost > 0}
    return Timeline(
        drawing=svg.drawing(
            window.bins, max(1, len(chosen)) * ROW_UNITS, label, *bars, class_="curves bars", data_kind="bars"
        ),
        height_px=round(row_px * max(1, len(chosen))),
        row_px=row_px,
        labels=tuple(row.pair for row in chosen) if row_px >= LABEL_ROW_PX else (),
        shown=len(chosen),
        total=len(rows),
        segments=tuple(segment for segment in (*SEGMENTS, SENDER) if segment in found),
        has_losses=any(row.lost_ns for row in rows),
    )


def _bar(row: TransferRow, number: int, window: Window) -> Markup:
    """Draw one transfer: what it needed at line rate, then what it lost in each stretch.

    One that did not complete goes on to the right edge.
    """
    start_ns = row.outcome.start_ns
    note = svg.title(_describe(row))
    if row.fct_ns is None:
        return svg.element("g", note, _piece(start_ns, window.end_ns, number, window, "unfinished"))
    lost = [(segment, max(0.0, row.lost_ns.get(segment, 0.0))) for segment in (*SEGMENTS, SENDER)]
    at_ns = start_ns + max(0.0, row.fct_ns - sum(amount for _, amount in lost))
    pieces = [_piece(start_ns, at_ns, number, window, "alone")]
    for segment, amount in lost:
        if amount > 0:
            pieces.append(_piece(at_ns, at_ns + amount, number, window, f"seg-{segment}"))
            at_ns += amount
    return svg.element("g", note, *pieces)


def _piece(from_ns: float, to_ns: float, number: int, window: Window, kind: str) -> Markup:
    left, right = window.position(from_ns), window.position(to_ns)
    y = number * ROW_UNITS + (ROW_UNITS - BAR_UNITS) / 2
    place = {"x": f"{left:.2f}", "y": f"{y:g}", "width": f"{max(0.0, right - left):.2f}"}
    return svg.element("rect", class_=kind, **place, height=BAR_UNITS)


def _describe(row: TransferRow) -> str:
    name = f"transfer {row.transfer.id}, {row.pair}"
    if row.fct_ns is None:
        return f"{name}: did not complete"
    return f"{name}: {format_ns(row.fct_ns)}, slowdown {format_factor(row.slowdown)}" + (
        f", mostly lost in {row.limiting}" if row.limiting else ""
    )
