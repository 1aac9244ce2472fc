"""The path as five stretches: time lost in each, and its worst link beside the average that hides it.

Reads the summary only. Called by `testbed.report.page`; the terminal takes the worst link from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.analysis.losses import SENDER
from testbed.report.links import badness, drain_ns
from topologies.model import SEGMENTS

MEANING = {
    "source-rail": "prefill GPU to its NIC, and the NIC's link to the leaf",
    "source-leaf": "uplinks of the prefill side's leaves",
    "spine": "spine ports towards the decode side's leaves",
    "dest-leaf": "the leaf's port to the decode host",
    "dest-landing": "decode NIC to GPU memory",
    SENDER: "slow start, pacing, timeouts, the application: time that no queue explains",
}


PLACE = {
    "source-rail": "source host",
    "source-leaf": "source leaf",
    "spine": "spine",
    "dest-leaf": "destination leaf",
    "dest-landing": "destination host",
}
"""Where a stretch is, in words."""


@dataclass(frozen=True)
class Pair:
    """A peak beside the mean that hides it, both with their bar's length as a fraction of the longest.

    `p99` is that of the same link as the peak; None where there is none.
    """

    peak: float
    mean: float
    peak_bar: float
    mean_bar: float
    p99: float | None = None
    p99_bar: float = 0.0


@dataclass(frozen=True)
class PfcRisk:
    """How often the queues of a stretch crossed XOFF, for how long in all and at a stretch (ms), and which
    one crossed it longest (None: none did)."""

    crossings: int
    total_ms: float
    longest_ms: float
    link: str | None


@dataclass(frozen=True)
class Stretch:
    """One stretch of the path: its share of all time lost, and of what the slowest transfers lost.

    `worst` is its worst link's name; None when it has no queue in this run. `utilisation` holds fractions:
    the worst link's busiest moment, and the mean over all links of the stretch. `queue` holds bytes: the
    worst link's longest queue, and the mean queue over all of its links.
    """

    segment: str
    meaning: str
    share: float | None
    tail_share: float | None
    accused: bool
    links: int
    worst: str | None
    drain_ns: float
    utilisation: Pair | None
    queue: Pair | None
    place: str = ""
    risk: PfcRisk | None = None


def stretches(summary: Mapping[str, Any]) -> tuple[Stretch, ...]:
    """Return the five stretches in the order of the path, then the sender."""
    longest_ns = max((drain_ns(figures) for figures in summary["links"].values()), default=0.0)
    return tuple(_stretch(segment, summary, longest_ns) for segment in (*SEGMENTS, SENDER))


def _stretch(segment: str, summary: Mapping[str, Any], longest_ns: float) -> Stretch:
    verdict = summary["verdict"]
    links = {name: figures for name, figures in summary["links"].items() if figures["segment"] == segment}
    worst = worst_link(links, verdict)
    return Stretch(
        segment=segment,
        meaning=MEANING[segment],
        share=verdict["shares"].get(segment),
        tail_share=verdict.get("tail", {}).get("shares", {}).get(segment),
        accused=segment in {verdict["segment"], *(part["segment"] for part in verdict.get("culprits", ()))},
        links=len(links),
        worst=worst,
        drain_ns=drain_ns(links[worst]) if worst else 0.0,
        utilisation=_utilisation(links, worst) if worst else None,
        queue=_queue(links, worst, longest_ns) if worst else None,
        place=PLACE.get(segment, ""),
        risk=_risk(links, (summary.get("events") or {}).get("links", {})),
    )


def _risk(links: Mapping[str, Any], moments: Mapping[str, Any]) -> PfcRisk | None:
    """Add up the crossings of XOFF of some links; None where no queue watches it."""
    if all(figures.get("xoff_crossings") is None for figures in links.values()):
        return None
    crossed = {name: moments[name]["xoff"] for name in links if moments.get(name, {}).get("xoff")}
    return PfcRisk(
        crossings=sum(part["crossings"] for part in crossed.values()),
        total_ms=sum(part["total_ms"] for part in crossed.values()),
        longest_ms=max((part["longest_ms"] for part in crossed.values()), default=0.0),
        link=max(crossed, key=lambda name: crossed[name]["total_ms"], default=None),
    )


def worst_link(links: Mapping[str, Any], verdict: Mapping[str, Any]) -> str | None:
    """Return the link the verdict names where it is one of these, else the worst by its own figures."""
    for named in (verdict["link"], *(part["link"] for part in verdict.get("culprits", ()))):
        if named in links:
            return str(named)
    return max(links, key=lambda name: badness(links[name]), default=None)


def _utilisation(links: Mapping[str, Any], worst: str) -> Pair:
    peak = links[worst]["utilisation"]["peak"] or 0.0
    mean = _mean([figures["utilisation"]["mean"] for figures in links.values()])
    return Pair(peak, mean, min(1.0, peak), min(1.0, mean))


def _queue(links: Mapping[str, Any], worst: str, longest_ns: float) -> Pair:
    """Compare queues by the wait they mean, so that bars of links of different rates can be compared."""
    peak = links[worst]["queue_bytes"]["max"] or 0
    mean = _mean([figures["queue_bytes"]["mean"] for figures in links.values()])
    bar = drain_ns(links[worst]) / longest_ns if longest_ns else 0.0
    p99 = links[worst]["queue_bytes"]["p99"] or 0
    scale = bar / peak if peak else 0.0
    return Pair(peak, mean, bar, scale * mean, p99, scale * p99)


def _mean(values: list[float | None]) -> float:
    return sum(value or 0.0 for value in values) / len(values)
