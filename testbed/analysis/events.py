"""When things happened: the chain from a burst to a mark, a slower sender, a full queue and XOFF.

A pure function of the record and the verdict's accusation. Called by `summary`.

All moments are those of samples, so they come up to one sampling interval late. What stands in `events`:

* the burst began: the first start of the transfers that share the accused link; without an accusation, of
all transfers.
* the first CE: the first sample at which a link's count of marks had risen.
* the first sender slowed down, by what left its host, because what arrives is cut down by the queue long
before any sender knows of it. A host's sending is cut where one of its transfers starts or ends, so that
less to send is not taken for slower sending. Within such a stretch, what a sender sent is the mean of the
last window (at the beginning: of the whole round trips there are, at least one). It has slowed down at a
sample when it sent less than SLOWER of the most it ever sent before: in the next sample, so that the moment
is right, and on average in the next half and whole window, so that a gap between two bursts of the ACK
clock does not count. A window is WINDOW_SAMPLES or WINDOW_ROUND_TRIPS of an idle fabric, whichever is
longer. It lies within the stretch: a sender that is done first never slowed. Only moments after the first
CE count (on the accused link; if that does not mark, on any; if none does, after the burst began), and only
senders of transfers over the accused link.
* the queue peaked: the sample at which the accused link's queue was longest.
* XOFF was crossed: where PFC would have paused the sender of the link. A sample holds until the next.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from testbed.analysis.losses import TransferLoss
from testbed.analysis.stats import NS_PER_MS, Floats, Ints
from testbed.record.outcomes import Outcome
from testbed.record.reader import LinkSeries, Record

Sender = tuple[str, int]
"""A host and the number of its NIC."""

WINDOW_SAMPLES = 10
"""At 20 us a window of 200 us, over 70 packets even at an eighth of 100 Gbit/s."""

WINDOW_ROUND_TRIPS = 3
"""A sender that sends its first window and waits for the answer is idle for most of two round trips."""

LEAST_SAMPLES = 2
"""Samples that must come first, and a round trip: in less, a sender is in its first burst, before any
answer."""

SLOWER = 0.7
"""A sender has slowed down below this part of what it sent. DCTCP's first cut is a half, DCQCN's as well. The
swings of an incast of eight DCTCP senders that are long in balance reach this after 2 to 17 ms, so a moment
that late is no answer to the burst."""


def events(record: Record, losses: Sequence[TransferLoss], accused: str | None) -> dict[str, Any]:
    """Return the summary's `events` in scenario ms, None for what did not happen.

    `accused` is the verdict's link. `xoff` adds up all links and names the one that crossed first, with zeros
    when none did, and is None where no queue watches it;
    `peak_before_slowdown` tells whether the accused queue was longest before any sender slowed (also when
    none did), None without an accusation. `links` has each link's own moments.
    """
    xoff = {queue.link: queue.xoff_bytes for queue in record.plan.queues}
    links = {name: _of_link(record, name, xoff.get(name)) for name in record.link_names}
    sharing = _sharing(record, losses, accused)
    begun = min((outcome.start_ns for outcome in sharing), default=None)
    ce_link = _earliest(links, "first_ce_ns")
    after = _slowdown_after(links, accused, ce_link, begun)
    slowed, slowed_host = _first_slowdown(record, sharing, after)
    peak = links[accused]["queue_peak_ns"] if accused is not None and accused in links else None
    return {
        "burst_began_ms": _ms(begun),
        "first_ce_ms": _ms(links[ce_link]["first_ce_ns"] if ce_link else None),
        "first_ce_link": ce_link,
        "first_slowdown_ms": _ms(slowed),
        "first_slowdown_host": slowed_host,
        "queue_peak_ms": _ms(peak),
        "queue_peak_link": accused if peak is not None else None,
        "peak_before_slowdown": None if peak is None else slowed is None or peak < slowed,
        "xoff": _all_xoff(links) if _is_watched(record) else None,
        "links": {name: _entry(moments) for name, moments in links.items()},
    }


def _of_link(record: Record, name: str, xoff: int | None) -> dict[str, Any]:
    series = record.series(name)
    marked = np.flatnonzero(series.ce_marks > 0)
    peak = int(np.argmax(series.backlog_bytes))
    return {
        "first_ce_ns": int(series.time_ns[marked[0]]) if len(marked) else None,
        "queue_peak_ns": int(series.time_ns[peak]) if series.backlog_bytes[peak] > 0 else None,
        "xoff": None if xoff is None else _xoff(series, xoff),
    }


def _xoff(series: LinkSeries, level_bytes: int) -> dict[str, Any] | None:
    """Return crossings of `level_bytes`, the first, the time above in all and at most at a stretch (ns)."""
    above = np.concatenate(([False], series.backlog_bytes >= level_bytes, [False]))
    turns = np.flatnonzero(above[1:] != above[:-1])
    if not len(turns):
        return None
    times = np.append(series.time_ns, series.time_ns[-1])
    lengths = times[turns[1::2]] - times[turns[::2]]
    return {
        "first_ns": int(times[turns[0]]),
        "crossings": len(lengths),
        "total_ns": int(lengths.sum()),
        "longest_ns": int(lengths.max()),
    }


def _sharing(record: Record, losses: Sequence[TransferLoss], accused: str | None) -> list[Outcome]:
    """Return the outcomes of the transfers over the accused link, of all when nobody is accused."""
    lost = {loss.id for loss in losses if accused in loss.by_link}
    return [
        outcome
        for outcome in record.outcomes
        if accused is None or outcome.id in lost or accused in (record.paths.get(outcome.id) or ())
    ]


def _earliest(links: Mapping[str, Mapping[str, Any]], what: str) -> str | None:
    """Return the link where `what` happened first, of equals the first in the plan."""
    known = [name for name in links if links[name][what] is not None]
    return min(known, key=lambda name: links[name][what], default=None)


def _slowdown_after(
    links: Mapping[str, Mapping[str, Any]], accused: str | None, ce_link: str | None, begun: int | None
) -> int | None:
    """Return the moment from which on a sender may slow down: see this module's docstring."""
    own = links[accused]["first_ce_ns"] if accused is not None and accused in links else None
    if own is not None:
        return int(own)
    return int(links[ce_link]["first_ce_ns"]) if ce_link else begun


def _first_slowdown(
    record: Record, sharing: Sequence[Outcome], after_ns: int | None
) -> tuple[int | None, str | None]:
    """Return when (ns) which host was the first of the senders to slow down."""
    if after_ns is None:
        return None, None
    senders = {transfer.id: (transfer.src, transfer.src_nic) for transfer in record.plan.transfers}
    sending = sorted({senders[outcome.id] for outcome in sharing})
    interval_ns, round_trip_ns = record.plan.measure.interval_ns, _round_trip_ns(record, sharing)
    least = max(LEAST_SAMPLES, math.ceil(round_trip_ns / interval_ns))
    window = max(WINDOW_SAMPLES, math.ceil(WINDOW_ROUND_TRIPS * round_trip_ns / interval_ns))
    spans = _spans(record, senders)
    found = {sender: _slowed_ns(record, sender, spans[sender], after_ns, least, window) for sender in sending}
    known = {sender: moment for sender, moment in found.items() if moment is not None}
    first = min(known, key=lambda sender: known[sender], default=None)
    return (None, None) if first is None else (known[first], first[0])


def _round_trip_ns(record: Record, sharing: Sequence[Outcome]) -> int:
    """Return the longest round trip on an idle fabric of the transfers in `sharing`."""
    topology, transfers = record.plan.topology, {transfer.id: transfer for transfer in record.plan.transfers}
    delay_ns = {link.name: link.delay_ns for link in topology.links}
    sharers = (transfers[outcome.id] for outcome in sharing)
    pairs = {(item.src, item.dst, item.src_nic, item.dst_nic) for item in sharers}
    paths = (topology.candidate_paths(*pair)[0] for pair in pairs)
    return max((2 * sum(delay_ns[name] for name in path) for path in paths), default=0)


def _spans(record: Record, senders: Mapping[int, Sender]) -> dict[Sender, list[tuple[int, int]]]:
    """Return start and end (ns) of what each NIC of a host sent."""
    found: dict[Sender, list[tuple[int, int]]] = {sender: [] for sender in senders.values()}
    for outcome in record.outcomes:
        if outcome.end_ns:
            found[senders[outcome.id]].append((outcome.start_ns, outcome.end_ns))
    return found


def _slowed_ns(
    record: Record, sender: Sender, spans: Sequence[tuple[int, int]], after_ns: int, least: int, window: int
) -> int | None:
    """Return when a host first slowed down at one of its NICs after `after_ns`, None when it never did.

    `spans` are those of its transfers; `least` and `window` are in samples.
    """
    host, nic = sender
    series = record.series(record.plan.topology.host(host).nic(nic).up)
    for start_ns, end_ns in _stretches(spans):
        first = np.searchsorted(series.time_ns, start_ns)
        inside = slice(first, np.searchsorted(series.time_ns, end_ns, side="right"))
        slowed = _slowed_at(series.bytes[inside], series.time_ns[inside], after_ns, least, window)
        if slowed is not None:
            return slowed
    return None


def _stretches(spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the times (ns) in which the transfers that a NIC of a host sends stay the same ones."""
    begins, ends = sorted(begin for begin, _ in spans), sorted(end for _, end in spans)
    for start_ns, end_ns in pairwise(sorted({*begins, *ends})):
        if bisect_right(begins, start_ns) > bisect_right(ends, start_ns):
            yield start_ns, end_ns


def _slowed_at(sent: Ints, time_ns: Ints, after_ns: int, least: int, window: int) -> int | None:
    """Return the first of `time_ns` from which on less was `sent` (a running count of bytes).

    The last samples in which nothing more was sent are left out: there was no more to send.
    """
    if not len(sent):
        return None
    at = np.arange(least, int(np.searchsorted(sent, sent[-1])) - window + 1)
    if not len(at):
        return None
    behind = np.minimum(window, at // least * least)  # whole round trips: each has its burst
    before = np.maximum.accumulate(_rate(sent, time_ns, at - behind, at))
    slowed = time_ns[at] >= after_ns
    for length in (1, window // 2, window):
        slowed &= _rate(sent, time_ns, at, at + length) < SLOWER * before
    return int(time_ns[at[slowed][0]]) if slowed.any() else None


def _rate(sent: Ints, time_ns: Ints, begin: Ints, end: Ints) -> Floats:
    """Return bytes per ns from each sample of `begin` to that of `end`."""
    return np.asarray((sent[end] - sent[begin]) / np.maximum(time_ns[end] - time_ns[begin], 1), np.float64)


def _is_watched(record: Record) -> bool:
    """Whether XOFF is a level of any queue that was sampled."""
    sampled = set(record.link_names)
    return any(queue.xoff_bytes is not None and queue.link in sampled for queue in record.plan.queues)


def _all_xoff(links: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    crossed = {name: moments["xoff"] for name, moments in links.items() if moments["xoff"]}
    first = min(crossed, key=lambda name: crossed[name]["first_ns"], default=None)
    return {
        "link": first,
        "first_ms": _ms(crossed[first]["first_ns"]) if first else None,
        "links": len(crossed),
        "crossings": sum(part["crossings"] for part in crossed.values()),
        "total_ms": _ms(sum(part["total_ns"] for part in crossed.values())),
        "longest_ms": _ms(max((part["longest_ns"] for part in crossed.values()), default=0)),
    }


def _entry(moments: Mapping[str, Any]) -> dict[str, Any]:
    xoff = moments["xoff"]
    return {
        "first_ce_ms": _ms(moments["first_ce_ns"]),
        "queue_peak_ms": _ms(moments["queue_peak_ns"]),
        "xoff": xoff
        and {
            "first_ms": _ms(xoff["first_ns"]),
            "crossings": xoff["crossings"],
            "total_ms": _ms(xoff["total_ns"]),
            "longest_ms": _ms(xoff["longest_ns"]),
        },
    }


def _ms(time_ns: int | None) -> float | None:
    return None if time_ns is None else time_ns / NS_PER_MS
