"""What each link carried and how long its queue was.

Pure functions of the record, one link at a time, so that memory holds the samples of a single link. Called by
`summary`; the verdict reads its result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from testbed.analysis.pauses import link_pauses
from testbed.analysis.stats import NS_PER_MS, Floats, weighted_percentile
from testbed.analysis.transfers import busy_window
from testbed.plan.model import Queue
from testbed.record.reader import LinkSeries, Record
from topologies.model import SOURCE_LEAF, SPINE, Link

ETHERNET_HEADER = 14

PEAK_BIN_NS = 1_000_000
"""Peak utilisation is the highest mean over so long a stretch (or over one sampling interval if that is
longer)."""

STANDING_PACKETS = 2
"""A queue stands while more than so many full packets are in it: one in service and one more are no
congestion."""


def full_packet_bytes(record: Record) -> int:
    """Return the largest packet as a queue counts it."""
    return record.plan.mtu + ETHERNET_HEADER


def summarise_links(record: Record) -> dict[str, dict[str, Any]]:
    """Return the summary's `links`: an entry for every link of the plan, in its order.

    Utilisation (bits carried over rate x time) and queue figures are over the busy window, from the first
    start to the last end; `bytes`, `packets`, `ce_marks`, `drops` and `xoff_crossings` over the whole
    record. Queue percentiles are time-weighted. `standing_ms` is the time within stretches of at least one
    progress interval in which each sample had more than two full packets; on a host's own egress
    (`source-rail`) that is normal whenever the host sends at full rate. A link without samples has None for
    every figure. `pauses` says how often and how long the port was held. A stage inside a host has an entry
    like any cable.
    """
    window = busy_window(record)
    queues = {queue.link: queue for queue in record.plan.queues}
    return {
        link.name: _entry(record, link, queues.get(link.name), window)
        for link in record.plan.topology.all_links
    }


def fabric_utilisation(links: dict[str, dict[str, Any]]) -> float | None:
    """Return the mean utilisation of the links between switches, None where there are none or no samples."""
    between = [entry for entry in links.values() if entry["segment"] in (SOURCE_LEAF, SPINE)]
    known = [entry["utilisation"]["mean"] for entry in between if entry["utilisation"]["mean"] is not None]
    return sum(known) / len(known) if known else None


def _entry(record: Record, link: Link, queue: Queue | None, window: tuple[int, int]) -> dict[str, Any]:
    series = record.series(link.name)
    sampled = len(series.time_ns) > 1 and window[1] > window[0]
    figures = _figures(record, link, queue, series, window) if sampled else _unknown()
    return {
        "segment": link.segment,
        "from": link.src,
        "to": link.dst,
        "rate_bps": link.rate_bps,
        **figures,
        "pauses": link_pauses(record, link.name),
    }


def _figures(
    record: Record, link: Link, queue: Queue | None, series: LinkSeries, window: tuple[int, int]
) -> dict[str, Any]:
    packets, marks = int(series.packets[-1]), int(series.ce_marks[-1])
    level = STANDING_PACKETS * full_packet_bytes(record)
    standing = standing_ns(series, level, record.plan.measure.progress_ns, window)
    xoff = queue.xoff_bytes if queue is not None else None
    return {
        "bytes": int(series.bytes[-1]),
        "packets": packets,
        "utilisation": _utilisation(series, link.rate_bps, window, record.plan.measure.interval_ns),
        "queue_bytes": queue_figures(series, window),
        "ce_marks": marks,
        "marked_share": marks / packets if packets else 0.0,
        "drops": int(series.drops[-1]),
        "standing_ms": standing / NS_PER_MS,
        "xoff_crossings": None if xoff is None else _crossings(series, xoff),
    }


def _unknown() -> dict[str, Any]:
    names = ("bytes", "packets", "ce_marks", "marked_share", "drops", "standing_ms", "xoff_crossings")
    return {
        **dict.fromkeys(names),
        "utilisation": {"mean": None, "peak": None},
        "queue_bytes": {"mean": None, "p99": None, "max": None},
    }


def _utilisation(
    series: LinkSeries, rate_bps: int, window: tuple[int, int], interval_ns: int
) -> dict[str, float]:
    start, end = window
    width = min(max(PEAK_BIN_NS, interval_ns), end - start)
    begins = np.append(np.arange(start, end - width, width), end - width)
    carried = _bytes_at(series, begins + width) - _bytes_at(series, begins)
    total = _bytes_at(series, np.array(window))
    return {
        "mean": float(total[1] - total[0]) * 8e9 / (rate_bps * (end - start)),
        "peak": float(carried.max()) * 8e9 / (rate_bps * width),
    }


def _bytes_at(series: LinkSeries, moments: np.ndarray[Any, Any]) -> Floats:
    return np.asarray(np.interp(moments, series.time_ns, series.bytes), np.float64)


def queue_figures(series: LinkSeries, window: tuple[int, int]) -> dict[str, float | int]:
    """Return mean, 99th percentile (both time-weighted) and maximum of the backlog within `window`."""
    values, held = _held_within(series, window)
    total = float(held.sum())
    some = values > 0
    if total <= 0 or not some.any():
        return {"mean": 0.0, "p99": 0, "max": 0}
    levels = np.append(values[some], 0).astype(np.float64)  # all empty samples as one: fewer to sort
    weights = np.append(held[some], total - float(held[some].sum()))
    return {
        "mean": float((values * held).sum()) / total,
        "p99": int(weighted_percentile(levels, weights, 99)),
        "max": int(values.max()),
    }


def _held_within(series: LinkSeries, window: tuple[int, int]) -> tuple[np.ndarray[Any, Any], Floats]:
    """Return the backlogs that fall into `window` and for how long (ns) each held there."""
    edges = np.clip(np.append(series.time_ns, window[1]), *window).astype(np.float64)
    held = np.diff(edges)
    inside = held > 0
    return series.backlog_bytes[inside], held[inside]


def standing_ns(series: LinkSeries, level_bytes: int, least_ns: int, window: tuple[int, int]) -> float:
    """Return how long the backlog was above `level_bytes` in stretches of `least_ns` or more within
    `window`."""
    values, held = _held_within(series, window)
    above = np.concatenate(([False], values > level_bytes, [False]))
    turns = np.flatnonzero(above[1:] != above[:-1])
    since = np.concatenate(([0.0], np.cumsum(held)))
    lengths = since[turns[1::2]] - since[turns[::2]]
    return float(lengths[lengths >= least_ns].sum())


def _crossings(series: LinkSeries, level_bytes: int) -> int:
    above = series.backlog_bytes >= level_bytes
    return int(np.count_nonzero(above[1:] & ~above[:-1])) + int(above[0])
