"""What happened when: the moments from the burst to XOFF in their order, over the accused queue.

Reads the summary's `events`, and the samples of the accused link for the drawing. Called by
`testbed.report.page`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from testbed.record.reader import Record
from testbed.report import axes, svg
from testbed.report.binning import bin_level
from testbed.report.linkchart import Window
from testbed.report.links import Tick
from testbed.report.numbers import format_bytes, format_count, format_ms

BINS_MOST = 300
HEIGHT_UNITS = 360
LEAST_SAMPLES = 20
"""So many sampling intervals are shown at least, however close the moments are."""

AFTERWARDS = 0.3
"""The drawing goes on for this part of the time from the first to the last moment."""

NUMBER_APART = 0.022
"""Least distance of two numbers over the drawing, as a fraction of its width."""


NOT_WATCHED: Mapping[str, Any] = {"link": None, "first_ms": None, "crossings": 0}


@dataclass(frozen=True)
class Moment:
    """Something that happened at `at_ms`, `since_ms` after the burst began, at a link or host (`where`).

    `left` and `number_left` are where its line and its number stand in the drawing, as fractions.
    """

    text: str
    where: str
    at_ms: float
    since_ms: float | None
    kind: str
    left: float = 0.0
    number_left: float = 0.0


@dataclass(frozen=True)
class Chain:
    """The moments in the order of time, what did not happen, and the accused queue meanwhile (or None)."""

    moments: tuple[Moment, ...]
    missing: tuple[str, ...]
    link: str | None
    drawing: Markup | None
    ticks: tuple[Tick, ...]
    top_bytes: float


def chain(record: Record, summary: Mapping[str, Any]) -> Chain:
    """Return the moments of a run. A moment that did not come is named in `missing`."""
    found = summary.get("events") or {}
    link = summary["verdict"]["link"]
    moments = sorted(_moments(found, summary), key=lambda moment: moment.at_ms)
    series = record.series(link) if link in record.link_names else None
    if series is None or not moments:
        return Chain(tuple(moments), _missing(found), None, None, (), 0.0)
    window = _window(record, moments)
    queue = bin_level(series.time_ns, series.backlog_bytes, window.edges_ns)
    top = max(float(queue.maximum.max()), 1.0) * 1.05
    placed = _placed(moments, window)
    levels = svg.to_pixels(queue.maximum, top, HEIGHT_UNITS)
    curve = svg.element("path", class_="max", d=svg.filled_steps(levels, HEIGHT_UNITS))
    lines = [_line(moment, window) for moment in placed]
    label = f"Queue of {link} from the burst on: peak {format_bytes(float(queue.maximum.max()))}"
    drawing = svg.drawing(window.bins, HEIGHT_UNITS, label, curve, *lines, class_="curves chain")
    ticks = tuple(Tick(*label) for label in axes.time_labels(window.start_ns, window.end_ns, 7))
    return Chain(tuple(placed), _missing(found), link, drawing, ticks, top)


def _moments(found: Mapping[str, Any], summary: Mapping[str, Any]) -> list[Moment]:
    began, xoff = found.get("burst_began_ms"), found.get("xoff") or NOT_WATCHED
    last = summary["transfers"]["last_end_ms"]
    known = (
        ("the burst began", "", began, "start"),
        ("first CE mark", found.get("first_ce_link"), found.get("first_ce_ms"), "ce"),
        (
            "first sender slowed down",
            found.get("first_slowdown_host"),
            found.get("first_slowdown_ms"),
            "slow",
        ),
        ("the accused queue peaked", found.get("queue_peak_link"), found.get("queue_peak_ms"), "peak"),
        (_crossed(xoff, summary["pauses"]["lossless"]), xoff["link"], xoff["first_ms"], "xoff"),
        ("the last transfer ended", "", last, "end"),
    )
    return [
        Moment(text, where or "", at_ms, None if began is None else at_ms - began, kind)
        for text, where, at_ms, kind in known
        if at_ms is not None
    ]


def _crossed(xoff: Mapping[str, Any], lossless: bool) -> str:
    if not xoff["crossings"]:
        return ""
    times = f"{format_count(xoff['crossings'])} time{'s' if xoff['crossings'] > 1 else ''}"
    links = "" if xoff["links"] == 1 else f" on {xoff['links']} links"
    above = f"{format_ms(xoff['total_ms'])} above, {format_ms(xoff['longest_ms'])} at a stretch"
    paused = "PFC paused" if lossless else "PFC would have paused"
    return f"XOFF crossed: {paused} the sender ({times}{links}; {above})"


def _missing(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what did not happen; XOFF only where a queue watches it."""
    if not found:
        return ()
    said = {
        "no CE mark was set": found["first_ce_ms"] is None,
        "no sender slowed down": found["first_slowdown_ms"] is None,
        "XOFF was not reached": found["xoff"] is not None and not found["xoff"]["crossings"],
    }
    return tuple(text for text, missing in said.items() if missing)


def _window(record: Record, moments: Sequence[Moment]) -> Window:
    """Return the stretch from before the first to after the last moment; the last end is not waited for."""
    times = [moment.at_ms * 1e6 for moment in moments if moment.kind != "end"] or [moments[0].at_ms * 1e6]
    interval = record.plan.measure.interval_ns
    span = max((max(times) - min(times)) * (1 + AFTERWARDS), LEAST_SAMPLES * interval)
    start, end = min(times) - span / 25, min(times) + span
    return Window(start, end, max(1, min(BINS_MOST, round((end - start) / interval))))


def _placed(moments: Sequence[Moment], window: Window) -> list[Moment]:
    lefts = [window.position(moment.at_ms * 1e6) / window.bins for moment in moments]
    shown = [left for left in lefts if left <= 1]
    numbers = [*axes.spread(shown, NUMBER_APART, 0.0, 1.0), *(1.0 for left in lefts if left > 1)]
    return [
        Moment(**{**vars(moment), "left": left, "number_left": number})
        for moment, left, number in zip(moments, lefts, numbers, strict=True)
    ]


def _line(moment: Moment, window: Window) -> Markup:
    if moment.left > 1:
        return Markup("")
    at = np.clip(moment.left, 0, 1) * window.bins
    return svg.element("path", class_=f"moment {moment.kind}", d=f"M{at:.2f} 0v{HEIGHT_UNITS}")
