"""Whether links that had packets waiting sent them at their rate. Pure functions of the record.

A link with a backlog has no reason to send less than its rate. In virtual time it never does; on a real
clock it does when the machine is too slow, and then every queue and completion time is wrong. Called by
`fidelity`.
"""

from __future__ import annotations

import math

import numpy as np

from testbed.record.reader import Record
from topologies.model import Link

LEAST_NS = 1_000_000
"""A link is judged by its backlogged intervals when they add up to so much scenario time: below, the packet
that is under way at either end counts for too much."""

LEAST_PACKETS = 40
"""A slow link is judged by every second, third, ... sample, so that it sends so many packets from one to the
next: a packet counts at the moment it leaves, perhaps just behind the interval in which it was sent."""

NEAR = 4
"""Samples are near each other when a link sends so many times K_min from one to the next at most."""


def held_rates(record: Record) -> dict[str, float]:
    """Return, for each link that was backlogged for long enough, the share of its rate it sent meanwhile.

    Time in which a pause (PFC) held the port is left out. Judged are the intervals at both ends of which a
    queue held what the link sends from one judged sample to the next: it did not run empty between. It is
    enough that a marking queue stood at K_min where samples are near each other, and on a real clock, where
    too slow a machine must not pass; where KV comes in bursts, as by layers, such a queue does run empty
    between samples far apart.
    """
    kmin = {queue.link: queue.kmin_bytes for queue in record.plan.queues if queue.marking}
    rated = [link for link in record.plan.topology.all_links if link.rate_bps]
    shares = {link.name: _held(record, link, kmin.get(link.name)) for link in rated}
    return {name: share for name, share in shares.items() if share is not None}


def _held(record: Record, link: Link, kmin_bytes: int | None) -> float | None:
    series = record.series(link.name)
    sample_bytes = link.rate_bps * record.plan.measure.interval_ns / 8e9
    every = max(1, math.ceil(LEAST_PACKETS * record.plan.mtu / sample_bytes))
    sent_bytes = every * sample_bytes
    stands_at_bytes = sent_bytes
    if kmin_bytes is not None and (record.plan.clock == "real" or sent_bytes <= NEAR * kmin_bytes):
        stands_at_bytes = min(sent_bytes, kmin_bytes)
    standing = series.backlog_bytes[::every] >= stands_at_bytes
    busy = standing[:-1] & standing[1:]
    times = series.time_ns[::every]
    held = record.pausings.held.get(link.name)
    if held is not None:
        busy &= held.within_ns(times[:-1], times[1:]) == 0
    busy_ns = int(np.diff(times)[busy].sum())
    if busy_ns < LEAST_NS:
        return None
    return float(np.diff(series.bytes[::every])[busy].sum() * 8e9 / (link.rate_bps * busy_ns))
