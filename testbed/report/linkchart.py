"""The drawings of one link: its queue, its utilisation, its marks and drops, and a thumbnail of the queue.

Takes binned values, gives inline SVG and where the labels beside it go. Which links are drawn, and in which
order, is decided by `testbed.report.links`, which calls it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from testbed.plan.model import Queue
from testbed.record.pauses import Spans
from testbed.record.reader import LinkSeries
from testbed.report import axes, svg
from testbed.report.binning import Bins, Floats, Ints, bin_edges, bin_increase, bin_level, bin_rate
from testbed.report.numbers import format_bytes, format_ns, format_percent

QUEUE_PX = 120
UTILISATION_PX = 44
LANE_PX = 14
"""Heights on the page. The y axis has UNITS_PER_PX units for each pixel, so that values read back fine."""

UNITS_PER_PX = 4
UTILISATION_TOP = 1.1
"""Top of the utilisation axis: a shaper may let a burst through a little faster than its rate."""

LABEL_PX = 13
"""Least distance of two labels beside a chart."""

THUMBNAIL_BINS = 100
THUMBNAIL_UNITS = 60


@dataclass(frozen=True)
class Window:
    """The stretch of scenario time that every chart shows, and in how many bins."""

    start_ns: float
    end_ns: float
    bins: int

    @property
    def edges_ns(self) -> Floats:
        """Edges of the bins."""
        return bin_edges(self.start_ns, self.end_ns, self.bins)

    def position(self, time_ns: float) -> float:
        """Return where a time stands on the x axis, in bins."""
        return (time_ns - self.start_ns) / (self.end_ns - self.start_ns) * self.bins


@dataclass(frozen=True)
class LinkBins:
    """One link in bins: backlog in bytes, utilisation as a fraction, counts of packets, marks and drops, and
    the part of the time that a pause held it."""

    queue: Bins
    utilisation: Bins
    packets: Ints
    ce_marks: Ints
    drops: Ints
    held_percent: Ints


@dataclass(frozen=True)
class Label:
    """A word beside a chart: `y_px` from its top; `kind` names its look."""

    text: str
    y_px: float
    kind: str


@dataclass(frozen=True)
class LinkChart:
    """What the page shows of one link: drawings and the labels to their left and right; `held` is None for a
    port that no pause held."""

    queue: Markup
    utilisation: Markup
    ce_marks: Markup
    drops: Markup
    held: Markup | None
    scale: tuple[Label, ...]
    thresholds: tuple[Label, ...]


def bin_link(series: LinkSeries, rate_bps: float, window: Window, held: Spans | None = None) -> LinkBins:
    """Bring the samples of a link of `rate_bps` down to the bins of `window`."""
    edges_ns, time_ns = window.edges_ns, series.time_ns
    byte_rate = bin_rate(time_ns, series.bytes, edges_ns)
    return LinkBins(
        queue=bin_level(time_ns, series.backlog_bytes, edges_ns),
        utilisation=Bins(byte_rate.maximum * 8 / rate_bps, byte_rate.mean * 8 / rate_bps),
        packets=bin_increase(time_ns, series.packets, edges_ns),
        ce_marks=bin_increase(time_ns, series.ce_marks, edges_ns),
        drops=bin_increase(time_ns, series.drops, edges_ns),
        held_percent=_held_percent(held, edges_ns),
    )


def _held_percent(held: Spans | None, edges_ns: Floats) -> Ints:
    if held is None:
        return np.zeros(len(edges_ns) - 1, np.int64)
    part = held.within_ns(edges_ns[:-1], edges_ns[1:]) / np.diff(edges_ns)
    return np.ceil(100 * part).astype(np.int64)


def draw_link(name: str, bins: LinkBins, queue: Queue | None, top_bytes: float, window: Window) -> LinkChart:
    """Draw a link on a queue axis that ends at `top_bytes`."""
    thresholds = _thresholds(queue)
    lines = [_level_line(value, top_bytes, kind) for _, value, kind in thresholds if value <= top_bytes]
    return LinkChart(
        queue=_two_curves(bins.queue, top_bytes, QUEUE_PX, _queue_label(name, bins, window), "queue", lines),
        utilisation=_two_curves(
            bins.utilisation,
            UTILISATION_TOP,
            UTILISATION_PX,
            f"Utilisation of {name}: mean {format_percent(float(bins.utilisation.mean.mean()))}",
            "utilisation",
            [_level_line(1.0, UTILISATION_TOP, "full", UTILISATION_PX)],
        ),
        ce_marks=_lane(bins.ce_marks, bins.packets, "ce", f"CE marks on {name}"),
        drops=_lane(bins.drops, bins.packets, "drops", f"Drops on {name}"),
        held=_held_lane(name, bins.held_percent),
        scale=_scale(top_bytes),
        thresholds=_threshold_labels(thresholds, top_bytes),
    )


def draw_thumbnail(bins: LinkBins, top_bytes: float) -> Markup:
    """Draw the peaks of a queue small, for the line that stands for a folded link."""
    groups = np.arange(0, len(bins.queue.maximum), max(1, len(bins.queue.maximum) // THUMBNAIL_BINS))
    levels = svg.to_pixels(np.maximum.reduceat(bins.queue.maximum, groups), top_bytes, THUMBNAIL_UNITS)
    path = svg.element("path", class_="max", d=svg.filled_steps(levels, THUMBNAIL_UNITS))
    return svg.drawing(len(levels), THUMBNAIL_UNITS, "", path, class_="thumbnail", aria_hidden="true")


def _two_curves(bins: Bins, top: float, height_px: int, label: str, kind: str, lines: list[Markup]) -> Markup:
    """Draw the largest values as an area, the means as a line over it, and level lines above both."""
    height = height_px * UNITS_PER_PX
    largest = svg.filled_steps(svg.to_pixels(bins.maximum, top, height), height)
    mean = svg.steps(svg.to_pixels(bins.mean, top, height))
    curves = (
        svg.element("path", class_="max", d=largest),
        svg.element("path", class_="mean", d=mean),
    )
    names = {"class_": f"curves {kind}", "data_kind": kind, "data_top": f"{top:g}"}
    return svg.drawing(len(bins.mean), height, label, *curves, *lines, **names)


def _held_lane(name: str, percent: Ints) -> Markup | None:
    if not percent.any():
        return None
    return _lane(percent, np.full_like(percent, 100), "held", f"Per cent of each bin that {name} was held")


def _lane(counts: Ints, packets: Ints, kind: str, label: str) -> Markup:
    """Draw a tick in each bin that has a count, the higher the larger its share of the bin's packets."""
    height = LANE_PX * UNITS_PER_PX
    share = np.minimum(1.0, counts / np.maximum(packets, 1))
    heights = np.where(counts > 0, np.rint(height * (0.3 + 0.7 * share)), 0).astype(np.int64)
    path = svg.element("path", class_="tick", d=svg.ticks(heights, height))
    text = f"{label}: {counts.sum():,}"
    return svg.drawing(
        len(counts), height, text, path, class_=f"lane {kind}", data_kind=kind, data_counts=svg.runs(counts)
    )


def _level_line(value: float, top: float, kind: str, height_px: int = QUEUE_PX) -> Markup:
    y = height_px * UNITS_PER_PX * (1 - value / top)
    return svg.element("path", class_=f"level {kind}", d=f"M0 {y:.1f}h100000")


def _thresholds(queue: Queue | None) -> list[tuple[str, float, str]]:
    """Return the lines of a queue, lowest first; a host's own egress does not mark and has only its limit."""
    if queue is None:
        return []
    limit = ("limit", float(queue.limit_bytes), "limit")
    marks = [("K_min", float(queue.kmin_bytes), "kmin"), ("K_max", float(queue.kmax_bytes), "kmax")]
    xoff = [] if queue.xoff_bytes is None else [("XOFF", float(queue.xoff_bytes), "xoff")]
    return sorted([*(marks if queue.marking else []), *xoff, limit], key=lambda line: line[1])


def _threshold_labels(thresholds: list[tuple[str, float, str]], top_bytes: float) -> tuple[Label, ...]:
    """Place a label at each line that is on the scale, and the others' on top with an arrow upwards."""
    highest_first = sorted(thresholds, key=lambda line: -line[1])
    above = [line for line in highest_first if line[1] > top_bytes]
    shown = [line for line in highest_first if line[1] <= top_bytes]
    heights = [0.0] * len(above) + [QUEUE_PX * (1 - value / top_bytes) for _, value, _ in shown]
    placed = axes.spread(heights, LABEL_PX, LABEL_PX / 2, QUEUE_PX - LABEL_PX / 2)
    arrows = ["\N{UPWARDS ARROW} "] * len(above) + [""] * len(shown)
    return tuple(
        Label(f"{arrow}{name} {format_bytes(value)}", y_px, kind)
        for arrow, (name, value, kind), y_px in zip(arrows, [*above, *shown], placed, strict=True)
    )


def _scale(top_bytes: float) -> tuple[Label, ...]:
    values = axes.round_ticks(0, top_bytes, 5)[::-1]
    heights = [QUEUE_PX * (1 - value / top_bytes) for value in values]
    placed = axes.spread(heights, LABEL_PX, LABEL_PX / 2, QUEUE_PX - LABEL_PX / 2)
    return tuple(
        Label(format_bytes(value), y_px, "scale") for value, y_px in zip(values, placed, strict=True)
    )


def _queue_label(name: str, bins: LinkBins, window: Window) -> str:
    peak = int(np.argmax(bins.queue.maximum))
    when = window.edges_ns[peak]
    return (
        f"Queue of {name}: peak {format_bytes(float(bins.queue.maximum[peak]))} "
        f"at {format_ns(float(when))}, mean {format_bytes(float(bins.queue.mean.mean()))}"
    )
