"""A fluid toy model of transfers over a fabric: max-min fair rates from one event to the next.

A saturated link has a standing queue, everything else is idle; no packet is modelled. Called by
`tests.support.synthetic`, which writes what comes out of it as a record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.plan.model import Plan, Transfer
from topologies.model import Link

Floats = NDArray[np.float64]

RAMP_NS = 60_000
RAMP_SHARE = 0.25
"""A toy slow start: so long a new transfer gets at most this share of its line rate."""


@dataclass(frozen=True)
class Case:
    """A toy run: what is planned, the path of each transfer, and how fast each sender is at most (bits/s)."""

    plan: Plan
    paths: tuple[tuple[str, ...], ...]
    sender_bps: tuple[float, ...]


@dataclass(frozen=True)
class Span:
    """From `start_ns` to `end_ns` transfer i receives `rates[i]` bits/s; `queued` links have standing
    queues."""

    start_ns: float
    end_ns: float
    rates: dict[int, float]
    queued: frozenset[str]


def spans_of(case: Case) -> list[Span]:
    """Run the toy from event to event: a start, the end of a ramp, the last byte of a transfer."""
    links = {link.name: link for link in case.plan.topology.all_links}
    delays = [sum(links[name].delay_ns for name in path) for path in case.paths]
    begin = [t.start_ns + delay for t, delay in zip(case.plan.transfers, delays, strict=True)]
    left = [t.wire_bytes * 8.0 for t in case.plan.transfers]
    now, spans = float(min(begin)), []
    while any(bits > 0 for bits in left):
        active = [i for i, bits in enumerate(left) if bits > 0 and begin[i] <= now]
        caps = {i: _cap(case, links, i, now - begin[i]) for i in active}
        rates, queued = _max_min(active, case.paths, links, caps)
        changes = [t for start in begin for t in (start, start + RAMP_NS) if t > now]
        ends = [now + left[i] / rates[i] * 1e9 for i in active]
        following = min(changes + ends)
        for i in active:
            left[i] -= rates[i] * (following - now) / 1e9
            left[i] = 0.0 if left[i] < 1e-3 else left[i]
        spans.append(Span(now, following, rates, queued))
        now = following
    return spans


def _cap(case: Case, links: dict[str, Link], i: int, age_ns: float) -> float:
    line = min(links[name].rate_bps for name in case.paths[i])
    return min(case.sender_bps[i], RAMP_SHARE * line if age_ns < RAMP_NS else math.inf)


def _max_min(
    active: Sequence[int],
    paths: Sequence[tuple[str, ...]],
    links: dict[str, Link],
    caps: dict[int, float],
) -> tuple[dict[int, float], frozenset[str]]:
    """Share max-min fairly; a link that holds transfers below their cap is saturated and gets a queue.

    Of links in a row that would be saturated alike, the first is: the later ones see no more than it lets
    through.
    """
    rates: dict[int, float] = {}
    queued: set[str] = set()
    free = {name: float(link.rate_bps) for name, link in links.items()}
    while waiting := [i for i in active if i not in rates]:
        users = {name: [i for i in waiting if name in paths[i]] for i in waiting for name in paths[i]}
        hop = {name: min(paths[i].index(name) for i in using) for name, using in users.items()}
        tightest = min(users, key=lambda name: (round(free[name] / len(users[name])), hop[name], name))
        share = free[tightest] / len(users[tightest])
        capped = [i for i in waiting if caps[i] < share]
        for i in capped or users[tightest]:
            rates[i] = min(share, caps[i])
            for name in paths[i]:
                free[name] -= rates[i]
        if not capped:
            queued.add(tightest)
    return rates, frozenset(queued)


def arrival(spans: Sequence[Span], transfer: Transfer) -> tuple[Floats, Floats]:
    """Return when (ns) how many payload bytes of a transfer have arrived, at each event."""
    mine = [span for span in spans if transfer.id in span.rates]
    times = np.array([mine[0].start_ns] + [span.end_ns for span in mine])
    bits = np.array([0.0] + [span.rates[transfer.id] * (span.end_ns - span.start_ns) / 1e9 for span in mine])
    received = np.cumsum(bits) / 8 * transfer.bytes / transfer.wire_bytes
    return times, received * transfer.bytes / received[-1]
