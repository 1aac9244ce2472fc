"""Where the time of each transfer went: exactly fct - wire time, split over links, sender and start-up.

A transfer alone on its path receives at r0, the rate of the path's slowest cable: a stage inside a host
that is slower (PCIe, the way through host memory) is a loss like any other. Receiving at r(t) it falls
behind by the integral of 1 - r(t)/r0, which over the whole transfer is its completion time minus its wire
bytes at r0. The receiver's progress cuts that integral into intervals; the samples say which queue on the
transfer's own path stood meanwhile. Not a judgement (`verdict` makes it), and no packet is followed. Called
by `summary`, the report and the checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from testbed.analysis.intervals import Intervals, Way, joined, progress_intervals, way_of, wire_ns
from testbed.analysis.links import STANDING_PACKETS, full_packet_bytes
from testbed.analysis.pauses import HELD_SHARE, held_share, roots
from testbed.analysis.stats import Floats, Ints, integral_of
from testbed.analysis.transfers import Completion, completions
from testbed.record.reader import LinkSeries, Record
from topologies.model import SEGMENTS, Link

SENDER = "sender"
NOTHING = "nothing"
CAUSES = (*SEGMENTS, SENDER, NOTHING)
"""What can hold a transfer up at a moment."""

BUSY_SHARE = 0.9
"""A queue held a transfer up during an interval only if it was not empty for at least this share of it: a
link whose queue drains every so often has capacity to spare. Not 1, because a sample can fall between two
packets."""

NOTICED_SHARE = 0.01
"""In a timeline, an interval has a cause only if it lost at least so much of its length: a packet more or
less is no cause."""


@dataclass(frozen=True, eq=False)
class Timeline:
    """One transfer from its start to its end, as arrays of one length, an entry for each interval.

    `start_ns` and `end_ns` are scenario time, `rate_bps` what arrived meanwhile in bits/s on the wire.
    `cause` is a position in `CAUSES`: the segment on the transfer's path that limited it, the sender, or
    nothing where hardly any time was lost for good or a transfer alone would have lost it too (the first
    interval).
    """

    start_ns: Floats
    end_ns: Floats
    cause: Ints
    rate_bps: Floats


def _no_timeline() -> Timeline:
    return Timeline(np.empty(0), np.empty(0), np.empty(0, np.int64), np.empty(0))


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
    timeline: Timeline = field(default_factory=_no_timeline, compare=False, repr=False)

    @property
    def lost_ns(self) -> float:
        """Completion time beyond the wire time."""
        return self.fct_ns - self.wire_ns


def transfer_losses(record: Record) -> list[TransferLoss]:
    """Return the split of each completed transfer's loss, in the plan's order.

    An interval's loss goes to the link of the transfer's path with the largest drain time (mean backlog x 8
    / rate) among those with a standing queue: more than two full packets on average and hardly ever empty.
    Without one it goes to the sender. What a paused port cost goes to the queue at the root of the pause
    (see `pauses`), on the transfer's path or not. Where the path was not measured, only the links that all
    its candidate paths share are considered. Bytes that arrive faster than r0 make up for time lost just
    before them, so that only what was never made good counts.
    """
    done = completions(record)
    links = {link.name: link for link in record.plan.topology.all_links}
    ways = [way_of(record, completion) for completion in done]
    parts = [progress_intervals(record, *pair) for pair in zip(done, ways, strict=True)]
    intervals = joined([part for part, _ in parts])
    culprits = _culprits(record, intervals, ways, links)
    table = np.zeros((len(done), len(links) + 1))
    np.add.at(table, (intervals.owner, culprits), intervals.lost_ns)  # the last column is the sender's
    timelines = _timelines(done, [part for part, _ in parts], _causes(intervals, culprits, links))
    return [
        _loss(completion, wire_ns(record, completion, way), unavoidable, row, links, timeline)
        for completion, way, (_, unavoidable), row, timeline in zip(
            done, ways, parts, table, timelines, strict=True
        )
    ]


def off_path(record: Record, losses: Sequence[TransferLoss]) -> dict[int, dict[str, float]]:
    """Return for each transfer whose path was measured what it lost (ns) to links that are not on it."""
    return {
        loss.id: {name: lost for name, lost in loss.by_link.items() if name not in path}
        for loss in losses
        if (path := record.paths.get(loss.id))
    }


def path_is_known(record: Record, completion: Completion) -> bool:
    """Return whether the links a transfer took were measured, or there is only one way it could have gone."""
    transfer = completion.transfer
    if record.paths.get(transfer.id):
        return True
    ends = transfer.src, transfer.dst, transfer.src_nic, transfer.dst_nic
    return len(record.plan.topology.candidate_paths(*ends)) == 1


def _culprits(record: Record, intervals: Intervals, ways: Sequence[Way], links: Mapping[str, Link]) -> Ints:
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
        held = held_share(record, link.name, intervals.start_ns[mine], intervals.end_ns[mine])
        limiting = (backlog > level) & ((busy >= BUSY_SHARE) | (held >= HELD_SHARE))
        drain = np.where(limiting, backlog * 8e9 / link.rate_bps, 0.0)
        worse = drain > longest[mine]
        culprit[mine[worse]] = number
        longest[mine[worse]] = drain[worse]
    return roots(record, culprit, intervals.start_ns, intervals.end_ns, links)


def _causes(intervals: Intervals, culprits: Ints, links: Mapping[str, Link]) -> Ints:
    """Return the position in `CAUSES` for each interval; `culprits` are numbers of links, one more means
    the sender."""
    of_link = [CAUSES.index(link.segment) for link in links.values()]
    causes = np.array([*of_link, CAUSES.index(SENDER)])[culprits]
    noticed = intervals.lost_ns > NOTICED_SHARE * (intervals.end_ns - intervals.start_ns)
    return np.where(noticed, causes, CAUSES.index(NOTHING))


def _timelines(done: Sequence[Completion], parts: Sequence[Intervals], causes: Ints) -> list[Timeline]:
    """Cut the causes of all intervals by transfer, and put each transfer's unavoidable start before them."""
    ends = np.cumsum([len(part.owner) for part in parts])[:-1]
    mine = np.split(causes, ends) if len(parts) else []
    return [
        Timeline(
            np.concatenate(([completion.outcome.start_ns], part.start_ns)),
            np.concatenate((part.start_ns[:1], part.end_ns)),
            np.concatenate(([CAUSES.index(NOTHING)], own)),
            np.concatenate(([0.0], part.rate_bps)),
        )
        for completion, part, own in zip(done, parts, mine, strict=True)
    ]


def _users(ways: Sequence[Way]) -> dict[str, list[int]]:
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
    wire: float,
    unavoidable_ns: float,
    row: Floats,
    links: Mapping[str, Link],
    timeline: Timeline,
) -> TransferLoss:
    by_link = {name: float(lost) for name, lost in zip(links, row[:-1], strict=True) if lost}
    by_segment = dict.fromkeys(SEGMENTS, 0.0)
    for name, lost in by_link.items():
        by_segment[links[name].segment] += lost
    transfer = completion.transfer
    return TransferLoss(
        id=transfer.id,
        src=transfer.src,
        dst=transfer.dst,
        fct_ns=completion.fct_ns,
        ideal_ns=transfer.ideal_ns,
        wire_ns=wire,
        unavoidable_ns=unavoidable_ns,
        ahead_ns=min(0.0, completion.fct_ns - wire),
        sender_ns=float(row[-1]),
        by_link=by_link,
        by_segment={**by_segment, SENDER: float(row[-1])},
        timeline=timeline,
    )
