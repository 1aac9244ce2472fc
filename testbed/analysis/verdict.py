"""Names the stretch of the path that held the transfers up, or nobody: the summary's `verdict`.

A pure function of the losses and of the links' figures; it measures nothing. Who is to blame is decided in
`blame`, and said in words by `sentence`. Called by `summary`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from testbed.analysis.blame import Blame, blame, culprits, slowest
from testbed.analysis.losses import TransferLoss
from testbed.analysis.sentence import naive_reading, sentence
from testbed.analysis.stats import NS_PER_MS
from topologies.model import SEGMENTS


def verdict(
    losses: Sequence[TransferLoss],
    links: Mapping[str, Mapping[str, Any]],
    fabric: Mapping[str, Any],
    slowdown: Mapping[str, float | None],
    cables: Collection[str],
) -> dict[str, Any]:
    """Return the summary's `verdict`.

    `links`, `fabric` and `slowdown` are those parts of the summary. `share` is the accused segment's part
    of all time lost, `link_share` its link's. `culprits` lists the accused and who is to blame beside it,
    and `accused` says of each segment whether it is among them. `tail` is the same for the slowest 1 %,
    `by_prefill`, `by_decode` and `by_pair` for the transfers of a host and of a pair. Time lost leaves out
    what a transfer alone would lose too. `naive` is what the mean utilisation of the `cables` would say.
    """
    segment_of = {name: str(entry["segment"]) for name, entry in links.items()}
    whole, tail = blame(losses, segment_of), blame(slowest(losses), segment_of)
    spoken = whole if whole.segment or not tail.segment else tail
    found = culprits(spoken, segment_of)
    return {
        "segment": spoken.segment,
        "link": spoken.link,
        "scope": None if spoken.segment is None else "all" if spoken is whole else "tail",
        "share": found[0].share if found else None,
        "link_share": found[0].link_share if found else None,
        "culprits": [asdict(culprit) for culprit in found],
        "accused": {name: name in {culprit.segment for culprit in found} for name in SEGMENTS},
        "shares": whole.shares,
        "lost_ms": whole.lost_ns / NS_PER_MS,
        "unavoidable_ms": math.fsum(loss.unavoidable_ns for loss in losses) / NS_PER_MS,
        "tail": {"segment": tail.segment, "link": tail.link, "share": _share(tail), "shares": tail.shares},
        "by_prefill": _grouped(losses, segment_of, lambda loss: loss.src),
        "by_decode": _grouped(losses, segment_of, lambda loss: loss.dst),
        "by_pair": _grouped(losses, segment_of, lambda loss: f"{loss.src}->{loss.dst}"),
        "naive": naive_reading(links, cables),
        "text": sentence(found, whole, tail, spoken is whole, links, fabric, slowdown),
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
