"""Who lost how much, and who is to blame for it: the rule of the verdict.

A pure function of the losses. Called by `verdict`, which says it, and by `summary`.

The rule. A segment is accused when both hold:

* it cost at least 5 % of the transfers' ideal time. A transfer on an idle fabric loses some too (slow
start, the ACK clock, a queue that rises before the first marks return); less than a twentieth would be
noise in a tail latency, and accusing a healthy network is worse than staying silent about a small loss;
* no other segment, and not the sender either, cost more. What has the most of the loss is what to change
first.

The rule is applied to all transfers and then to the slowest 1 % (at least one), because a burst that a
thousand transfers do not notice can still be the p99. What the first look accuses stands; the second is
heard only when the first accuses nobody, and `scope` says which one spoke.

A second segment is a culprit beside the accused when it cost a quarter of all time lost, and meets the
conditions of the accused but for being first: a twentieth of the ideal time, and more than the sender. Where
one segment alone is to blame, what the samples put down to others (the ramp, a queue that has not drained
yet) stays below a tenth. A quarter is far from that, and enough that repairing the first culprit alone
would disappoint.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.analysis.losses import SENDER, TransferLoss
from topologies.model import SEGMENTS

LEAST_COST = 0.05
"""A segment must have cost this share of the transfers' ideal time."""

TAIL = 0.01
"""The slowest so many of the transfers are the tail, at least one of them."""

CULPRIT_SHARE = 0.25
"""A segment beside the accused is a culprit too from this share of the time lost on."""


@dataclass(frozen=True)
class Blame:
    """Who lost how much time of some transfers, in ns, and who is accused (None: nobody)."""

    segment: str | None
    link: str | None
    by_segment: Mapping[str, float]
    by_link: Mapping[str, float]
    ideal_ns: float

    @property
    def lost_ns(self) -> float:
        """All time lost to segments and sender."""
        return math.fsum(self.by_segment.values())

    @property
    def shares(self) -> dict[str, float]:
        """Each segment's and the sender's part of the time lost; all 0 when none was lost."""
        total = self.lost_ns
        return {name: lost / total if total > 0 else 0.0 for name, lost in self.by_segment.items()}


@dataclass(frozen=True)
class Culprit:
    """A segment to blame, its costliest link, and the shares of both in the time lost."""

    segment: str
    link: str
    share: float
    link_share: float


def blame(losses: Sequence[TransferLoss], segment_of: Mapping[str, str]) -> Blame:
    """Add up the losses and apply the rule of this module's docstring; `segment_of` maps links to segments.

    The link is the one of the accused segment that cost most.
    """
    by_segment = {name: math.fsum(loss.by_segment[name] for loss in losses) for name in (*SEGMENTS, SENDER)}
    by_link: dict[str, float] = defaultdict(float)
    for loss in losses:
        for name, lost in loss.by_link.items():
            by_link[name] += lost
    ideal = float(sum(loss.ideal_ns for loss in losses))
    segment = max(SEGMENTS, key=lambda name: by_segment[name])
    cost = by_segment[segment]
    if ideal == 0 or cost < LEAST_COST * ideal or cost <= by_segment[SENDER]:
        return Blame(None, None, by_segment, by_link, ideal)
    return Blame(segment, _costliest(segment, by_link, segment_of), by_segment, by_link, ideal)


def culprits(part: Blame, segment_of: Mapping[str, str]) -> list[Culprit]:
    """Return the accused segment and those beside it that are to blame too, largest share first.

    Empty when nobody is accused.
    """
    if part.segment is None:
        return []
    sender = part.by_segment[SENDER]
    least = max(CULPRIT_SHARE * part.lost_ns, LEAST_COST * part.ideal_ns)
    others = [name for name in SEGMENTS if part.by_segment[name] >= least and part.by_segment[name] > sender]
    names = sorted({part.segment, *others}, key=lambda name: (-part.by_segment[name], SEGMENTS.index(name)))
    return [_culprit(part, name, segment_of) for name in names]


def _culprit(part: Blame, segment: str, segment_of: Mapping[str, str]) -> Culprit:
    link = _costliest(segment, part.by_link, segment_of)
    return Culprit(segment, link, part.shares[segment], part.by_link[link] / part.lost_ns)


def _costliest(segment: str, by_link: Mapping[str, float], segment_of: Mapping[str, str]) -> str:
    return max((name for name in by_link if segment_of[name] == segment), key=lambda name: by_link[name])


def slowest(losses: Sequence[TransferLoss]) -> list[TransferLoss]:
    """Return the slowest 1 % by slowdown, at least one; of equals the first in the plan."""
    count = math.ceil(TAIL * len(losses))
    return sorted(losses, key=lambda loss: -loss.fct_ns / loss.ideal_ns)[:count]


def limiting_links(losses: Sequence[TransferLoss], paths: Mapping[int, Sequence[str] | None]) -> list[str]:
    """Return the links whose queue cost the transfers over them 5 % of their ideal time or more, by name.

    A queue by itself is no harm: behind a sender of the same rate it neither grows nor drains, and delays
    nothing. `paths` are the record's; a link that a transfer lost time to was on its path.
    """
    cost: dict[str, float] = defaultdict(float)
    ideal: dict[str, float] = defaultdict(float)
    for loss in losses:
        for name in {*(paths.get(loss.id) or ()), *loss.by_link}:
            ideal[name] += loss.ideal_ns
            cost[name] += loss.by_link.get(name, 0.0)
    return sorted(name for name, lost in cost.items() if lost >= LEAST_COST * ideal[name])
