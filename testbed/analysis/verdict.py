"""Names the stretch of the path that held the transfers up, or nobody.

A pure function of the losses and of the links' figures; it measures nothing. Called by `summary`.

The rule. A segment is accused when both hold:

* it cost at least 5 % of the transfers' ideal time. A transfer on an idle fabric loses some too (slow
start, the ACK clock, a queue that rises before the first marks return); less than a twentieth would be
noise in a tail latency, and accusing a healthy network is worse than staying silent about a small loss; *
no other segment, and not the sender either, cost more. What has the most of the loss is what to change
first.

The rule is applied to all transfers and then to the slowest 1 % (at least one), because a burst that a
thousand transfers do not notice can still be the p99. What the first look accuses stands; the second is
heard only when the first accuses nobody, and `scope` says which one spoke.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.analysis.losses import SENDER, TransferLoss
from testbed.analysis.stats import NS_PER_MS
from topologies.model import DEST_LANDING, DEST_LEAF, SEGMENTS, SOURCE_LEAF, SOURCE_RAIL, SPINE

LEAST_COST = 0.05
"""A segment must have cost this share of the transfers' ideal time."""

TAIL = 0.01
"""The slowest so many of the transfers are the tail, at least one of them."""

WORDS = {
    SOURCE_RAIL: "the way from the GPU to the NIC on the prefill side",
    SOURCE_LEAF: "a leaf uplink on the prefill side",
    SPINE: "a spine link",
    DEST_LEAF: "the leaf's downlink to the decode host",
    DEST_LANDING: "the way from the NIC to the GPU on the decode side",
}


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
    link = max((name for name in by_link if segment_of[name] == segment), key=lambda name: by_link[name])
    return Blame(segment, link, by_segment, by_link, ideal)


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


def verdict(
    losses: Sequence[TransferLoss],
    links: Mapping[str, Mapping[str, Any]],
    fabric: Mapping[str, Any],
    slowdown: Mapping[str, float | None],
) -> dict[str, Any]:
    """Return the summary's `verdict`.

    `links`, `fabric` and `slowdown` are those parts of the summary. `share` is the accused segment's part
    of all time lost, `link_share` its link's. `tail` is the same for the slowest 1 %, `by_decode` and
    `by_pair` for the transfers of a decode host and of a pair. Time lost leaves out what a transfer alone
    would lose too.
    """
    segment_of = {name: str(entry["segment"]) for name, entry in links.items()}
    whole, tail = blame(losses, segment_of), blame(slowest(losses), segment_of)
    spoken = whole if whole.segment or not tail.segment else tail
    return {
        "segment": spoken.segment,
        "link": spoken.link,
        "scope": None if spoken.segment is None else "all" if spoken is whole else "tail",
        "share": _share(spoken),
        "link_share": _link_share(spoken),
        "shares": whole.shares,
        "lost_ms": whole.lost_ns / NS_PER_MS,
        "unavoidable_ms": math.fsum(loss.unavoidable_ns for loss in losses) / NS_PER_MS,
        "tail": {"segment": tail.segment, "link": tail.link, "share": _share(tail), "shares": tail.shares},
        "by_decode": _grouped(losses, segment_of, lambda loss: loss.dst),
        "by_pair": _grouped(losses, segment_of, lambda loss: f"{loss.src}->{loss.dst}"),
        "text": _text(spoken, whole, tail, links, fabric, slowdown),
    }


def _grouped(
    losses: Sequence[TransferLoss],
    segment_of: Mapping[str, str],
    key: Callable[[TransferLoss], str],
) -> dict[str, Any]:
    groups: dict[str, list[TransferLoss]] = defaultdict(list)
    for loss in losses:
        groups[key(loss)].append(loss)
    found = {name: blame(members, segment_of) for name, members in groups.items()}
    return {
        name: {"segment": part.segment, "lost_ms": part.lost_ns / NS_PER_MS, "shares": part.shares}
        for name, part in found.items()
    }


def _share(part: Blame) -> float | None:
    return None if part.segment is None else part.shares[part.segment]


def _link_share(part: Blame) -> float | None:
    return None if part.link is None else part.by_link[part.link] / part.lost_ns


def _text(
    spoken: Blame,
    whole: Blame,
    tail: Blame,
    links: Mapping[str, Mapping[str, Any]],
    fabric: Mapping[str, Any],
    slowdown: Mapping[str, float | None],
) -> str:
    if whole.ideal_ns == 0:
        return "No transfer completed, so nothing can be said about where the time went."
    if spoken.segment is None or spoken.link is None:
        return _nobody(whole, slowdown)
    in_tail = tail.by_link.get(spoken.link, 0.0) / tail.lost_ns if tail.lost_ns > 0 else 0.0
    lost = f"{_percent(_link_share(spoken))} of the time lost"
    if spoken is whole:
        lost += f", and {_percent(in_tail)} of what the slowest 1 % lost,"
    else:
        lost += " by the slowest 1 %"
    return (
        f"{spoken.segment} held up the transfers: {lost} went to the queue of {spoken.link} "
        f"({WORDS[spoken.segment]}), "
        f"which was {_percent(links[spoken.link]['utilisation']['mean'])} utilised{_meanwhile(fabric)}."
    )


def _nobody(whole: Blame, slowdown: Mapping[str, float | None]) -> str:
    pace = f"transfers took {slowdown['mean']:.3g} times their ideal on average, {slowdown['p99']:.3g} at p99"
    if whole.by_segment[SENDER] >= LEAST_COST * whole.ideal_ns:
        return (
            f"No stretch of the network is accused: {pace}, but {_percent(whole.shares[SENDER])} of the time "
            "lost had no standing queue on the path: look at the senders (start-up, pacing, retransmissions)."
        )
    return f"No stretch of the network is accused: {pace}."


def _meanwhile(fabric: Mapping[str, Any]) -> str:
    mean = fabric["utilisation"]
    return "" if mean is None else f" while the links between switches averaged {_percent(mean)}"


def _percent(share: float | None) -> str:
    return "an unknown share" if share is None else f"{100 * share:.0f} %"
