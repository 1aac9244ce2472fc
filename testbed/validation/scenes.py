"""The small fabrics the validation measures on, and what to look at in their records. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testbed.record.reader import LinkSeries, Record

HEADER_BYTES = 14 + 20 + 20 + 12
"""Ethernet, IP, TCP and its padded timestamp option (RFC 7323), in front of every segment."""

STAR = """\
name: star
fabric:
  leaves: 1
  spines: 1
  hosts_per_leaf: 40
  host_link: {rate: 100gbit, delay: 1us}
  fabric_link: {rate: 400gbit, delay: 1us}
  mtu: 4200
  queue: {kmin: 100kb, kmax: 400kb, pmax: 0.2, limit: 8mb}
hosts: {prefill: {count: 2, leaves: [1]}, decode: {count: 1, leaves: [1]}}
workload: {requests: {count: 2, kv_bytes: 16mib}}
"""
"""One switch: `senders(n)` hosts send to d1 at once, through the port leaf1-d1."""

PORT = "leaf1-d1"


@dataclass(frozen=True)
class Speed:
    """A link rate with the packet size it is tried with and the payload of one transfer."""

    name: str
    rate_bps: int
    mtu: int
    payload_mib: int
    interval: str

    @property
    def sets(self) -> list[str]:
        """Settings of a scenario for it."""
        return [
            f"fabric.host_link.rate={self.name}",
            f"fabric.mtu={self.mtu}",
            f"workload.requests.kv_bytes={self.payload_mib}mib",
            f"measure.interval={self.interval}",
        ]

    @property
    def payload_bytes(self) -> int:
        """The payload of one transfer."""
        return self.payload_mib << 20


SPEEDS = (
    Speed("100mbit", 100_000_000, 1500, 1, "1ms"),
    Speed("1gbit", 1_000_000_000, 1500, 4, "100us"),
    Speed("10gbit", 10_000_000_000, 1500, 8, "20us"),
    Speed("100gbit", 100_000_000_000, 4200, 32, "5us"),
    Speed("400gbit", 400_000_000_000, 9000, 128, "5us"),
)
"""The rates the testbed is for; packets are those in use at each, payloads are some thousand packets."""


def senders(count: int) -> list[str]:
    """Return settings for `count` senders."""
    return [f"hosts.prefill.count={count}", f"workload.requests.count={count}"]


def wire_bytes(payload_bytes: int, mtu: int) -> int:
    """Return what queues count for a payload in full segments, from the sizes of the headers alone."""
    segment = mtu - (HEADER_BYTES - 14)
    return payload_bytes + -(-payload_bytes // segment) * HEADER_BYTES


def serial_ns(payload_bytes: int, mtu: int, rate_bps: float) -> float:
    """Return how long a payload's frames take at a rate, in nanoseconds."""
    return wire_bytes(payload_bytes, mtu) * 8e9 / rate_bps


def last_end_ns(record: Record) -> int:
    """Return when the last byte arrived (scenario ns); 0 when a transfer did not end."""
    ends = [outcome.end_ns for outcome in record.outcomes]
    return 0 if None in ends else max(end for end in ends if end is not None)


def sent_bps(series: LinkSeries, start_ns: float, end_ns: float) -> float:
    """Return the mean rate of a link from the first sample after `start_ns` to the last before `end_ns`."""
    inside = np.flatnonzero((series.time_ns >= start_ns) & (series.time_ns <= end_ns))
    if len(inside) < 2:
        return 0.0
    first, last = inside[0], inside[-1]
    sent = float(series.bytes[last] - series.bytes[first])
    return sent * 8e9 / float(series.time_ns[last] - series.time_ns[first])


def middle(record: Record, transfers: Sequence[int]) -> tuple[float, float]:
    """Return the moments (ns) at which 20 and 80 % of the time that all these transfers ran have passed."""
    start = max(record.outcomes[number].start_ns for number in transfers)
    ends = [record.outcomes[number].end_ns for number in transfers]
    end = min((end for end in ends if end is not None), default=start)
    return start + 0.2 * (end - start), start + 0.8 * (end - start)
