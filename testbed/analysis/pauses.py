"""What pauses did (PFC): who was held for how long, which queue was the cause, and whether they deadlocked.

Pure functions of the record. Called by `summary`, and by `losses` for the root of a loss.

The root. A port that is held has a backlog that is not its own. So the time lost at it belongs to the queue
that held it; if that was held in its turn, to the one that held that; and so on to a queue that was free to
send. A port counts as held during an interval from HELD_SHARE of it on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from testbed.analysis.stats import NS_PER_MS, Floats, Ints
from testbed.record.pauses import Spans
from testbed.record.reader import Record
from topologies.model import Link

HELD_SHARE = 0.1
"""A port that stood still for a tenth of an interval was not the one that was too slow: the counterpart of
what a queue must be busy to count as limiting (`losses.BUSY_SHARE`)."""


def held_share(record: Record, link: str, start_ns: Floats, end_ns: Floats) -> Floats:
    """Return for which part of each interval a port was held; 0 in a fabric that drops."""
    spans = record.pausings.held.get(link)
    if spans is None:
        return np.zeros(len(start_ns))
    return spans.within_ns(start_ns, end_ns) / np.maximum(end_ns - start_ns, 1e-9)


def roots(
    record: Record, culprits: Ints, start_ns: Floats, end_ns: Floats, links: Mapping[str, Link]
) -> Ints:
    """Return for each interval the link at the root of the one in `culprits`; see this module's docstring.

    Links are given by their position in `links`; other numbers (nobody) stay.
    """
    numbers = {name: number for number, name in enumerate(links)}
    root, moving = culprits.copy(), np.ones(len(culprits), np.bool_)
    # No way is longer than there are links; ports that hold each other in a circle would be one without end.
    for _ in numbers:
        before = root.copy()
        for name, causes in record.pausings.by_link.items():
            at = np.flatnonzero((before == numbers[name]) & moving)
            moving[at] = held_share(record, name, start_ns[at], end_ns[at]) >= HELD_SHARE
            at = at[moving[at]]
            root[at] = _longest(causes, start_ns[at], end_ns[at], numbers)
        if np.array_equal(root, before):
            break
    return root


def _longest(
    causes: Mapping[str, Spans], start_ns: Floats, end_ns: Floats, numbers: Mapping[str, int]
) -> Ints:
    """Return for each interval the number of the queue that held a port longest in it."""
    held = np.array([spans.within_ns(start_ns, end_ns) for spans in causes.values()])
    of_cause = np.array([numbers[by] for by in causes], np.int64)
    return np.asarray(of_cause[np.argmax(held, axis=0)], np.int64)


def link_pauses(record: Record, link: str) -> dict[str, Any]:
    """Return how often and how long a port was held (ms), and by which queues."""
    spans = record.pausings.held.get(link)
    causes = record.pausings.by_link.get(link, {})
    return {
        **_figures(spans),
        "by": {by: int(part.lengths_ns.sum()) / NS_PER_MS for by, part in causes.items()},
    }


VICTIM_SHARE = 0.1
"""A transfer is a victim that waited for a queue which is not on its way for so much of its ideal time."""


def summarise_pauses(record: Record, off_path: Mapping[int, Mapping[str, float]]) -> dict[str, Any]:
    """Return the summary's `pauses`; a fabric that drops has the same keys and no pause.

    `count` and `total_ms` are sums over all ports, `longest_ms` is the longest pause of one. `first_by` is
    the queue that was the first to hold anybody, `roots` the queues that held others without being held.
    `off_path` is what transfers lost (ns) to links that are not on their way: `victims` counts those that
    waited so, and says which waited longest, and for what.
    """
    held = record.pausings.held
    each = [_figures(spans) for spans in held.values()]
    pauses, deadlock = record.pausings.pauses, record.pausings.deadlock
    return {
        "lossless": record.plan.pausing is not None,
        "count": sum(figures["count"] for figures in each),
        "total_ms": sum(figures["total_ms"] for figures in each),
        "longest_ms": max((figures["longest_ms"] for figures in each), default=0.0),
        "links": len(held),
        "first_ms": pauses[0].start_ns / NS_PER_MS if pauses else None,
        "first_by": pauses[0].by if pauses else None,
        "roots": sorted({pause.by for pause in pauses} - held.keys()),
        "victims": _victims(record, off_path),
        "last_end_ms": max(pause.end_ns for pause in pauses) / NS_PER_MS if pauses else None,
        "deadlock": deadlock and {"at_ms": deadlock.time_ns / NS_PER_MS, "links": list(deadlock.links)},
    }


def _victims(record: Record, off_path: Mapping[int, Mapping[str, float]]) -> dict[str, Any]:
    waited = {
        transfer.id: sum(off_path.get(transfer.id, {}).values())
        for transfer in record.plan.transfers
        if sum(off_path.get(transfer.id, {}).values()) > VICTIM_SHARE * transfer.ideal_ns
    }
    if not waited:
        return {"count": 0, "worst": None}
    worst = next(one for one in record.plan.transfers if waited.get(one.id) == max(waited.values()))
    lost = off_path[worst.id]
    return {
        "count": len(waited),
        "worst": {
            "id": worst.id,
            "from": worst.src,
            "to": worst.dst,
            "lost_ms": waited[worst.id] / NS_PER_MS,
            "link": max(lost, key=lambda name: lost[name]),
        },
    }


def _figures(spans: Spans | None) -> dict[str, Any]:
    lengths = np.empty(0, np.int64) if spans is None else spans.lengths_ns
    return {
        "count": len(lengths),
        "total_ms": int(lengths.sum()) / NS_PER_MS,
        "longest_ms": int(lengths.max()) / NS_PER_MS if len(lengths) else 0.0,
    }
