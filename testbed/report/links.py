"""Which links the page shows, in which order and how large: the groups of section "Queues and utilisation".

A link is loaded when it marked or dropped, when its queue reached K_min, or when it was busy for half of its
busiest moment; the others are quiet and folded away. Drawing is `testbed.report.linkchart`'s part. Called by
`testbed.report.page`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from testbed.plan.model import Plan, Queue
from testbed.record.reader import Record
from testbed.report.axes import time_labels
from testbed.report.linkchart import LinkBins, LinkChart, Window, bin_link, draw_link, draw_thumbnail
from topologies.model import SEGMENTS, Link

BINS_MOST = 800
BINS_LEAST = 150
BINS_OF_PAGE = 17_000
"""Bins are shared by all loaded links, which keeps the page below about 1 MB."""

SAMPLES_PER_BIN = 2
OPEN_PER_SEGMENT = 3
"""So many charts of a segment are open at first: the worst ones. The others show their thumbnail."""

LOADED_UTILISATION = 0.5
"""Peak utilisation from which on a link counts as loaded even if its queue stayed low."""

HEADROOM = 1.05
"""How much further than its highest peak a queue's axis goes."""


@dataclass(frozen=True)
class LinkRow:
    """One link on the page: its part of the summary, its drawings (None: not sampled), folded or open."""

    link: Link
    figures: Mapping[str, Any]
    loaded: bool
    opened: bool
    chart: LinkChart | None
    thumbnail: Markup


@dataclass(frozen=True)
class LinkGroup:
    """The links of one segment, worst first. `idle` names those that carried nothing, which have no chart."""

    segment: str
    loaded: tuple[LinkRow, ...]
    quiet: tuple[LinkRow, ...]
    idle: tuple[str, ...]


@dataclass(frozen=True)
class Tick:
    """A label of the time axis: `left` is a fraction of its width."""

    text: str
    left: float


def window_of(record: Record, loaded: int) -> Window:
    """Return the stretch of time to show: from the first start to the last end, with a small margin.

    Where a transfer did not complete it goes on to the last sample. `loaded` links share the page's bins.
    """
    times = [record.sample_times(group) for group in record.groups if len(group.rows)]
    starts = [outcome.start_ns for outcome in record.outcomes]
    ends = [outcome.end_ns for outcome in record.outcomes if outcome.end_ns is not None]
    start = min(starts, default=0)
    end = max(ends, default=start + 1)
    if len(ends) < len(record.outcomes) or not ends:
        end = max([end, *(int(time[-1]) for time in times)])
    margin = max(1, (end - start) // 50)
    window = (start - margin, end + margin)
    within = max((int(((time >= window[0]) & (time <= window[1])).sum()) for time in times), default=0)
    return Window(*window, _bins(loaded, within))


def _bins(loaded: int, samples: int) -> int:
    share = BINS_OF_PAGE // max(1, loaded)
    return max(1, min(BINS_MOST, max(BINS_LEAST, share), max(BINS_LEAST, samples // SAMPLES_PER_BIN)))


def time_ticks(window: Window) -> tuple[Tick, ...]:
    """Return the labels of the time axis that all charts share."""
    return tuple(Tick(*label) for label in time_labels(window.start_ns, window.end_ns, 7))


def is_loaded(figures: Mapping[str, Any], queue: Queue | None) -> bool:
    """Tell whether a link deserves an open chart; `figures` is its entry in the summary."""
    marking = queue is not None and queue.marking
    reached = marking and (figures["queue_bytes"]["max"] or 0) >= queue.kmin_bytes if queue else False
    busy = (figures["utilisation"]["peak"] or 0) >= LOADED_UTILISATION
    return bool(figures["ce_marks"] or figures["drops"] or reached or busy)


def is_idle(figures: Mapping[str, Any]) -> bool:
    """Tell whether a link is known to have carried nothing at all."""
    return figures["bytes"] == 0 and not figures["queue_bytes"]["max"] and not figures["drops"]


def drain_ns(figures: Mapping[str, Any]) -> float:
    """Return how long the link needs for its longest queue, in ns: the wait of the last byte in it."""
    return float((figures["queue_bytes"]["max"] or 0) * 8e9 / figures["rate_bps"])


def badness(figures: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return the key by which links are ordered, worst highest: drops, longest wait, mean utilisation."""
    return (figures["drops"] or 0, drain_ns(figures), figures["utilisation"]["mean"] or 0)


def group_links(record: Record, summary: Mapping[str, Any]) -> tuple[Window, tuple[LinkGroup, ...]]:
    """Return the time that is shown and the groups of links, in the order of the path."""
    figures = summary["links"]
    queues = {queue.link: queue for queue in record.plan.queues}
    loaded = {name for name, figure in figures.items() if is_loaded(figure, queues.get(name))}
    window = window_of(record, len(loaded))
    named = {part["link"] for part in summary["verdict"].get("culprits", ())}
    by_segment = {segment: _of_segment(record.plan, figures, segment, named) for segment in SEGMENTS}
    return window, tuple(
        _group(segment, links, record, figures, queues, loaded, window)
        for segment, links in by_segment.items()
        if links
    )


def _of_segment(plan: Plan, figures: Mapping[str, Any], segment: str, named: Collection[str]) -> list[Link]:
    """Return a segment's links, the one that the verdict names before the others: they may be as bad."""
    links = [link for link in plan.topology.all_links if link.segment == segment and link.name in figures]
    return sorted(links, key=lambda link: (link.name in named, badness(figures[link.name])), reverse=True)


def _group(
    segment: str,
    links: Sequence[Link],
    record: Record,
    figures: Mapping[str, Any],
    queues: Mapping[str, Queue],
    loaded: set[str],
    window: Window,
) -> LinkGroup:
    """Draw the links of one segment, all on the same queue axis."""
    sampled = set(record.link_names)
    used = [link for link in links if not is_idle(figures[link.name])]
    bins = {
        link.name: bin_link(
            record.series(link.name), link.rate_bps, window, record.pausings.held.get(link.name)
        )
        for link in used
        if link.name in sampled
    }
    top_bytes = _top_bytes(bins, queues)
    opened = [link.name for link in used if link.name in loaded][:OPEN_PER_SEGMENT]
    rows = [
        LinkRow(
            link=link,
            figures=figures[link.name],
            loaded=link.name in loaded,
            opened=link.name in opened,
            chart=_chart(link.name, bins, queues, top_bytes, window),
            thumbnail=draw_thumbnail(bins[link.name], top_bytes) if link.name in bins else Markup(""),
        )
        for link in used
    ]
    return LinkGroup(
        segment=segment,
        loaded=tuple(row for row in rows if row.loaded),
        quiet=tuple(row for row in rows if not row.loaded),
        idle=tuple(link.name for link in links if is_idle(figures[link.name])),
    )


def _top_bytes(bins: Mapping[str, LinkBins], queues: Mapping[str, Queue]) -> float:
    """Return the end of a segment's queue axis: its highest peak, and K_max where queues mark."""
    peaks = [float(binned.queue.maximum.max()) for binned in bins.values()]
    marks = [float(queues[name].kmax_bytes) for name in bins if name in queues and queues[name].marking]
    return max([*peaks, *marks, 1.0]) * HEADROOM


def _chart(
    name: str, bins: Mapping[str, LinkBins], queues: Mapping[str, Queue], top_bytes: float, window: Window
) -> LinkChart | None:
    if name not in bins:
        return None
    return draw_link(name, bins[name], queues.get(name), top_bytes, window)
