"""Where the time of each transfer went: exactly fct - wire time, split over links, sender and start-up.

A transfer alone on its path receives at r0, the rate of the path's slowest link. Receiving at r(t) it falls
behind by the integral of 1 - r(t)/r0, which over the whole transfer is its completion time minus its wire
bytes at r0. The receiver's progress cuts that integral into intervals; the samples say which queue on the
transfer's own path stood meanwhile. Not a judgement (`verdict` makes it), and no packet is followed. Called
by `summary`, the report and the checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from testbed.analysis.links import STANDING_PACKETS, full_packet_bytes
from testbed.analysis.stats import Floats, Ints, integral_of
from testbed.analysis.transfers import Completion, completions
from testbed.record.reader import LinkSeries, Record
from topologies.model import SEGMENTS, Link

SENDER = "sender"

BUSY_SHARE = 0.9
"""A queue held a transfer up during an interval only if it was not empty for at least this share of it: a
link whose queue drains every so often has capacity to spare. Not 1, because a sample can fall between two
packets."""


@dataclass(frozen=True)
class TransferLoss:
    """The time one completed transfer took beyond its wire time, in ns, by cause.

    `lost_ns` = `fct_ns` - `wire_ns` = the sum of `by_link` + `sender_ns` + `unavoidable_ns` + `ahead_ns`.
    `unavoidable_ns` is what it would lose alone as well (propagation). `ahead_ns` is 0 unless the whole
    transfer beat its wire time (a shaper's burst can do that), and negative then. All others are at least
    0.
    """

    id: int
    src: str
    dst: str
    fct_ns: int
    ideal_ns: int
    wire_ns: float
    unavoidable_ns: float
    ahead_ns: float
    sender_ns: float
    by_link: Mapping[str, float] = field(default_factory=dict)
    by_segment: Mapping[str, float] = field(default_factory=dict)

    @property
    def lost_ns(self) -> float:
        """Completion time beyond the wire time."""
        return self.fct_ns - self.wire_ns

    @property
    def avoidable_ns(self) -> float:
        """What could have been better: the losses to links and to the sender."""
        return sum(self.by_link.values()) + self.sender_ns


@dataclass(frozen=True)
class _Way:
    """What is known of a transfer's path: its certain links in order, and the rate of the slowest of the
    path."""

    links: tuple[str, ...]
    rate_bps: int


@dataclass(frozen=True)
class _Intervals:
    """All progress intervals of all transfers: owner's position, edges (ns), and what was lost for good."""

    owner: Ints
    start_ns: Floats
    end_ns: Floats
    lost_ns: Floats


def transfer_losses(record: Record) -> list[TransferLoss]:
    """Return the split of each completed transfer's loss, in the plan's order.

    An interval's loss goes to the link of the transfer's path with the largest drain time (mean backlog x 8
    / rate) among those with a standing queue: more than two full packets on average and hardly ever empty.
    Without one it goes to the sender. Where the path was not measured, only the links that all its
    candidate paths share are considered. Bytes that arrive faster than r0 make up for time lost just before
    them, so that only what was never made good counts.
    """
    done = completions(record)
    links = {link.name: link for link in record.plan.topology.all_links}
    ways = [_way(record, completion, links) for completion in done]
    parts = [_progress_intervals(record, *pair) for pair in zip(done, ways, strict=True)]
    intervals = _joined([part for part, _ in parts])
    culprits = _culprits(record, intervals, ways, links)
    names = list(links)
    table = np.zeros((len(done), len(names) + 1))
    np.add.at(table, (intervals.owner, culprits), intervals.lost_ns)  # the last column is the sender's
    return [
        _loss(completion, way, unavoidable, row, names, links)
        for completion, way, (_, unavoidable), row in zip(done, ways, parts, table, strict=True)
    ]


def path_is_known(record: Record, completion: Completion) -> bool:
    """Return whether the links a transfer took were measured, or there is only one way it could have gone."""
    transfer = completion.transfer
    if record.paths.get(transfer.id):
        return True
    return len(record.plan.topology.candidate_paths(transfer.src, transfer.dst)) == 1


def _way(record: Record, completion: Completion, links: Mapping[str, Link]) -> _Way:
    transfer = completion.transfer
    measured = record.paths.get(transfer.id)
    if measured:
        return _Way(measured, min(links[name].rate_bps for name in measured))
    candidates = record.plan.topology.candidate_paths(transfer.src, transfer.dst)
    certain = tuple(name for name in candidates[0] if all(name in path for path in candidates))
    return _Way(certain, max(min(links[name].rate_bps for name in path) for path in candidates))


def _wire_ns(completion: Completion, way: _Way) -> float:
    return completion.transfer.wire_bytes * 8e9 / way.rate_bps


def _progress_intervals(record: Record, completion: Completion, way: _Way) -> tuple[_Intervals, float]:
    """Return the intervals of one transfer after its unavoidable start, and how long that start was (ns)."""
    start, wire_ns = completion.outcome.start_ns, _wire_ns(completion, way)
    unavoidable = max(0.0, completion.transfer.ideal_ns - wire_ns)
    moments, share = _received_share(record, completion, start + unavoidable)
    behind = (moments - start) - share * wire_ns
    # What is still missing at the end, looking back: the largest lag that is never made good later.
    kept = np.maximum(np.minimum.accumulate(behind[::-1])[::-1], 0.0)
    kept[0] = 0.0
    owner = np.zeros(len(moments) - 2, np.int64)
    return _Intervals(owner, moments[1:-1], moments[2:], np.diff(kept)[1:]), float(kept[1])


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


def _joined(parts: Sequence[_Intervals]) -> _Intervals:
    if not parts:
        return _Intervals(np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0))
    return _Intervals(
        np.repeat(np.arange(len(parts)), [len(part.owner) for part in parts]),
        np.concatenate([part.start_ns for part in parts]),
        np.concatenate([part.end_ns for part in parts]),
        np.concatenate([part.lost_ns for part in parts]),
    )


def _culprits(record: Record, intervals: _Intervals, ways: Sequence[_Way], links: Mapping[str, Link]) -> Ints:
    """Return for each interval the number of the link it is charged to; the number of links means the
    sender."""
    culprit = np.full(len(intervals.owner), len(links), np.int64)
    longest = np.zeros(len(intervals.owner))
    users = _users(ways)
    level = STANDING_PACKETS * full_packet_bytes(record)
    for number, link in enumerate(links.values()):
        if link.name not in users:
            continue
        series = record.series(link.name)
        if not np.any(series.backlog_bytes > level):
            continue
        uses = np.zeros(len(ways), np.bool_)
        uses[users[link.name]] = True
        mine = np.flatnonzero(uses[intervals.owner] & (intervals.lost_ns > 0))
        backlog, busy = _means(series, intervals.start_ns[mine], intervals.end_ns[mine])
        drain = np.where((backlog > level) & (busy >= BUSY_SHARE), backlog * 8e9 / link.rate_bps, 0.0)
        worse = drain > longest[mine]
        culprit[mine[worse]] = number
        longest[mine[worse]] = drain[worse]
    return culprit


def _users(ways: Sequence[_Way]) -> dict[str, list[int]]:
    users: dict[str, list[int]] = {}
    for position, way in enumerate(ways):
        for name in way.links:
            users.setdefault(name, []).append(position)
    return users


def _means(series: LinkSeries, start_ns: Floats, end_ns: Floats) -> tuple[Floats, Floats]:
    """Return the mean backlog (bytes) and the share of time it was not empty, for each interval."""
    length = np.maximum(end_ns - start_ns, 1e-9)
    means = []
    for values in (series.backlog_bytes, series.backlog_bytes > 0):
        area = integral_of(series.time_ns, values)
        gained = np.interp(end_ns, series.time_ns, area) - np.interp(start_ns, series.time_ns, area)
        means.append(gained / length)
    return means[0], means[1]


def _loss(
    completion: Completion,
    way: _Way,
    unavoidable_ns: float,
    row: Floats,
    names: Sequence[str],
    links: Mapping[str, Link],
) -> TransferLoss:
    by_link = {name: float(lost) for name, lost in zip(names, row[:-1], strict=True) if lost}
    by_segment = dict.fromkeys(SEGMENTS, 0.0)
    for name, lost in by_link.items():
        by_segment[links[name].segment] += lost
    wire_ns = _wire_ns(completion, way)
    transfer = completion.transfer
    return TransferLoss(
        id=transfer.id,
        src=transfer.src,
        dst=transfer.dst,
        fct_ns=completion.fct_ns,
        ideal_ns=transfer.ideal_ns,
        wire_ns=wire_ns,
        unavoidable_ns=unavoidable_ns,
        ahead_ns=min(0.0, completion.fct_ns - wire_ns),
        sender_ns=float(row[-1]),
        by_link=by_link,
        by_segment={**by_segment, SENDER: float(row[-1])},
    )
