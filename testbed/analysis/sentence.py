"""The verdict as one plain sentence, and the one that a reader of averages would write instead.

Words only: who is to blame is decided in `blame`. Called by `verdict`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from testbed.analysis.blame import LEAST_COST, Blame, Culprit
from testbed.analysis.losses import SENDER
from topologies.model import DEST_LANDING, DEST_LEAF, SOURCE_LEAF, SOURCE_RAIL, SPINE

Links = Mapping[str, Mapping[str, Any]]

WORDS = {
    SOURCE_RAIL: "the way from the GPU to the NIC on the prefill side",
    SOURCE_LEAF: "a leaf uplink on the prefill side",
    SPINE: "a spine link",
    DEST_LEAF: "the leaf's downlink to the decode host",
    DEST_LANDING: "the way from the NIC to the GPU on the decode side",
}

STORE = re.compile(r"s\d+(n\d+)?")
"""What a store and its NICs are called; a spine is not one."""

STORE_WORDS = {SOURCE_RAIL: "the NIC of a store", DEST_LEAF: "the leaf's downlink to a store"}

ONE_LINK_SHARE = 0.95
"""From this part of a segment's loss on, its costliest link stands for the segment."""

FULL_ON_AVERAGE = 0.7
"""From this mean utilisation on, a reader of averages calls a link full. Alarms of capacity planning stand
at 70 to 80 %; the lower one gives the averages every chance to be right."""


def sentence(
    found: Sequence[Culprit],
    whole: Blame,
    tail: Blame,
    of_all: bool,
    links: Links,
    fabric: Mapping[str, Any],
    slowdown: Mapping[str, float | None],
) -> str:
    """Return the verdict's text; `of_all` is False where only the slowest 1 % accuse anybody."""
    if whole.ideal_ns == 0:
        return "No transfer completed, so nothing can be said about where the time went."
    if not found:
        return _nobody(whole, slowdown)
    clauses = [
        _clause(culprit, culprit is found[0], of_all, tail, links) + _idle(links[culprit.link], fabric)
        for culprit in found
    ]
    names = " and ".join(culprit.segment for culprit in found)
    return f"{names} held up the transfers: {'; '.join(clauses)}{_meanwhile(fabric)}."


def naive_reading(links: Links, cables: Collection[str]) -> dict[str, Any]:
    """Return what a reader of the mean utilisation of each cable over the run would conclude.

    `link` is the busiest cable if it is full on average, otherwise None; `utilisation_mean` is the busiest
    one's in either case. The stages inside hosts have no port counter and are left out.
    """
    means = {name: links[name]["utilisation"]["mean"] for name in links if name in cables}
    known = {name: mean for name, mean in means.items() if mean is not None}
    if not known:
        text = "nothing: no link was sampled."
        return {"link": None, "utilisation_mean": None, "text": text}
    link = max(known, key=lambda name: known[name])
    mean, used = known[link], _percent(known[link])
    if mean < FULL_ON_AVERAGE:
        text = f"no link is above {used}: the network has room to spare."
        return {"link": None, "utilisation_mean": mean, "text": text}
    return {"link": link, "utilisation_mean": mean, "text": f"{link} is the busiest link, {used} utilised."}


def _clause(culprit: Culprit, first: bool, of_all: bool, tail: Blame, links: Links) -> str:
    """Say how much went to one culprit and how busy its link was."""
    one = culprit.link_share >= ONE_LINK_SHARE * culprit.share
    share = culprit.link_share if one else culprit.share
    return f"{_amount(culprit, share, one, first, of_all, tail)} to {_place(culprit, one, links)}"


def _idle(link: Mapping[str, Any], fabric: Mapping[str, Any]) -> str:
    """Say which NICs stood idle beside that of the culprit, where it is a host's that has several."""
    for use in fabric.get("nics", {}).values():
        if use["busiest"] in (link["from"], link["to"]) and use["idle"]:
            idle = f"{_some(use['idle'])} carried nothing"
            return f" and carried {_percent(use['share'])} of its host's KV ({idle})"
    return ""


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def _amount(culprit: Culprit, share: float, one: bool, first: bool, of_all: bool, tail: Blame) -> str:
    if not of_all:
        return f"{_percent(share)} of the time lost by the slowest 1 % went" if first else _percent(share)
    lost = tail.by_link.get(culprit.link, 0.0) if one else tail.by_segment[culprit.segment]
    in_tail = _percent(lost / tail.lost_ns if tail.lost_ns > 0 else 0.0)
    if first:
        return f"{_percent(share)} of the time lost, and {in_tail} of what the slowest 1 % lost, went"
    return f"{_percent(share)} and {in_tail}"


def _place(culprit: Culprit, one: bool, links: Links) -> str:
    used = f"which was {_percent(links[culprit.link]['utilisation']['mean'])} utilised"
    if one:
        return f"the queue of {culprit.link} ({_words(culprit, links)}), {used}"
    largest = f"the largest part ({_percent(culprit.link_share)}) to that of {culprit.link}"
    if _words(culprit, links) != WORDS[culprit.segment]:
        largest += f" ({_words(culprit, links)})"
    return f"the queues of {culprit.segment} ({WORDS[culprit.segment]}), {largest}, {used}"


def _words(culprit: Culprit, links: Links) -> str:
    """Say what kind of link the culprit's is. A store ends one hand-over and starts another."""
    link = links[culprit.link]
    end = link["from"] if culprit.segment == SOURCE_RAIL else link["to"]
    return STORE_WORDS.get(culprit.segment, "") * bool(STORE.fullmatch(end)) or WORDS[culprit.segment]


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
