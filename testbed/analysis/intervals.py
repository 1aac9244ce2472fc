"""What each transfer received when, cut into the intervals of its progress, and what it lost in each.

The arithmetic below the split of losses: it knows paths and progress, and no queues. Called by `losses`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testbed.analysis.stats import Floats, Ints
from testbed.analysis.transfers import Completion
from testbed.plan.releases import alone, posting_ns
from testbed.record.reader import Record


@dataclass(frozen=True)
class Way:
    """What is known of a transfer's path: its certain links in order, stages inside hosts among them, and
    the rate of the path's slowest cable."""

    links: tuple[str, ...]
    rate_bps: int


@dataclass(frozen=True, eq=False)
class Intervals:
    """All progress intervals of all transfers: owner's position, edges (ns), rate received (bits/s on the
    wire), and what was lost for good (ns)."""

    owner: Ints
    start_ns: Floats
    end_ns: Floats
    rate_bps: Floats
    lost_ns: Floats


def way_of(record: Record, completion: Completion) -> Way:
    """Return the way of a transfer. A stage inside a host never counts for the rate: what a slow rail costs
    is a loss, and only a cable is what the transfer could have had."""
    transfer, topology = completion.transfer, record.plan.topology
    cables = topology.cables
    measured = record.paths.get(transfer.id)
    if measured:
        return Way(measured, min(cables[name].rate_bps for name in measured if name in cables))
    candidates = topology.candidate_paths(transfer.src, transfer.dst, transfer.src_nic, transfer.dst_nic)
    certain = tuple(name for name in candidates[0] if all(name in path for path in candidates))
    ends = (transfer.src, transfer.src_gpu, transfer.dst, transfer.dst_gpu)
    return Way(
        topology.through_hosts(*ends, certain),
        max(min(cables[name].rate_bps for name in path) for path in candidates),
    )


def wire_ns(record: Record, completion: Completion, way: Way) -> float:
    """Return how long the transfer's bytes need at the rate of its slowest cable, or to be posted, waiting
    included for those that could not leave earlier."""
    return _alone(record, completion, way)[1][-1]


def _alone(record: Record, completion: Completion, way: Way) -> tuple[list[float], list[float]]:
    transfer = completion.transfer
    releases = record.served.releases.get(transfer.id, ())
    serial_ns = max(transfer.wire_bytes * 8e9 / way.rate_bps, posting_ns(transfer))
    return alone(releases, transfer.bytes, serial_ns)


def progress_intervals(record: Record, completion: Completion, way: Way) -> tuple[Intervals, float]:
    """Return the intervals of one transfer after its unavoidable start, and how long that start was (ns)."""
    start, (shares, due) = completion.outcome.start_ns, _alone(record, completion, way)
    unavoidable = max(0.0, completion.transfer.ideal_ns - due[-1])
    moments, share = _received_share(record, completion, start + unavoidable)
    behind = (moments - start) - np.interp(share, shares, due)
    # What is still missing at the end, looking back: the largest lag that is never made good later.
    kept = np.maximum(np.minimum.accumulate(behind[::-1])[::-1], 0.0)
    kept[0] = 0.0
    length = np.diff(moments)[1:]
    bits = np.diff(share)[1:] * completion.transfer.wire_bytes * 8e9
    rate = np.divide(bits, length, out=np.zeros(len(length)), where=length > 0)
    owner = np.zeros(len(moments) - 2, np.int64)
    return Intervals(owner, moments[1:-1], moments[2:], rate, np.diff(kept)[1:]), float(kept[1])


def _received_share(record: Record, completion: Completion, begun_ns: float) -> tuple[Floats, Floats]:
    """Return moments from start to end (ns) and the share of the transfer that had arrived by each.

    The first is the start, the second where the unavoidable start-up is over. Nothing arrives before the
    first byte does.
    """
    times, received = record.progress(completion.transfer.id)
    start, end = completion.outcome.start_ns, completion.end_ns
    begun = min(begun_ns, end)
    inside = (times > begun) & (times < end)
    total = max(completion.transfer.bytes, 1)
    arrived = (
        np.clip(np.maximum.accumulate(received), 0, total) / total if len(received) else received / total
    )
    earlier = arrived[times <= begun]
    at_begun = float(earlier[-1]) if len(earlier) else 0.0
    first = completion.outcome.first_byte_ns
    quiet = [first] if first is not None and begun < first < min(times[inside], default=end) else []
    moments = np.concatenate(([start, begun], quiet, times[inside], [end])).astype(np.float64)
    share = np.concatenate(([0.0, at_begun], [at_begun] * len(quiet), arrived[inside], [1.0]))
    return moments, share


def joined(parts: Sequence[Intervals]) -> Intervals:
    """Return the intervals of all transfers as one; each part's owner becomes its position."""
    if not parts:
        return Intervals(np.empty(0, np.int64), *(np.empty(0) for _ in range(4)))
    return Intervals(
        np.repeat(np.arange(len(parts)), [len(part.owner) for part in parts]),
        np.concatenate([part.start_ns for part in parts]),
        np.concatenate([part.end_ns for part in parts]),
        np.concatenate([part.rate_bps for part in parts]),
        np.concatenate([part.lost_ns for part in parts]),
    )
