"""How a scenario's figures spread over seeds: medians with confidence intervals. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import comb
from typing import Any

CONFIDENCE = 0.95

FIGURES = (
    *(f"transfers.slowdown.{point}" for point in ("p50", "p99", "max")),
    *(f"transfers.fct_ms.{point}" for point in ("p50", "p99")),
    *("transfers.last_end_ms", "transfers.jain", "transfers.retransmissions"),
    *(f"ttft_ms.{point}" for point in ("p50", "p99")),
    *("fabric.utilisation", "verdict.share", "queue_peak_bytes", "ce_marks", "drops"),
)
"""The summary's figures that are looked at; the last three are the largest or the sum over all links."""


@dataclass(frozen=True)
class Spread:
    """One figure over seeds: each seed's value, the median, and an interval that holds the median.

    The interval reaches from the k-th smallest to the k-th largest value, for the largest k that keeps the
    confidence: it holds the median of all seeds with probability `confidence`, whatever the distribution
    (order statistics, binomial with 1/2). With fewer than six values even the whole range has less than 95 %.
    """

    figure: str
    values: tuple[float, ...]
    median: float
    low: float
    high: float
    confidence: float


@dataclass(frozen=True)
class Seeds:
    """The runs of some seeds: their figures, and how often the verdict named what."""

    scenario: str
    seeds: tuple[int, ...]
    figures: tuple[Spread, ...]
    verdicts: tuple[tuple[str, int], ...]
    not_valid: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self) | {"verdicts": dict(self.verdicts)}


def spread_of(figure: str, values: Sequence[float]) -> Spread:
    """Return the spread of at least one value."""
    ordered = sorted(values)
    count = len(ordered)
    rank, confidence = interval_rank(count)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    return Spread(figure, tuple(values), middle, ordered[rank - 1], ordered[count - rank], confidence)


def interval_rank(count: int) -> tuple[int, float]:
    """Return the rank k, and the confidence, of the interval from the k-th smallest to the k-th largest."""
    best = 1, 1 - 2 * 0.5**count
    outside = 0.0
    for rank in range(1, count // 2 + 1):
        outside += comb(count, rank - 1) / 2**count
        if 1 - 2 * outside < CONFIDENCE:
            break
        best = rank, 1 - 2 * outside
    return best


def over_seeds(scenario: str, summaries: Mapping[int, Mapping[str, Any]]) -> Seeds:
    """Return how the summaries of some seeds spread. A figure that a seed does not have is left out there."""
    figures = []
    for figure in FIGURES:
        values = [value for summary in summaries.values() if (value := _figure(summary, figure)) is not None]
        if values:
            figures.append(spread_of(figure, values))
    named = Counter(_named(summary) for summary in summaries.values())
    invalid = tuple(seed for seed, summary in summaries.items() if not summary["fidelity"]["valid"])
    return Seeds(scenario, tuple(summaries), tuple(figures), tuple(named.most_common()), invalid)


def _named(summary: Mapping[str, Any]) -> str:
    return " + ".join(culprit["segment"] for culprit in summary["verdict"]["culprits"]) or "nobody"


def _figure(summary: Mapping[str, Any], figure: str) -> float | None:
    links = summary["links"].values()
    if figure == "queue_peak_bytes":
        return _largest(link["queue_bytes"]["max"] for link in links)
    if figure in ("ce_marks", "drops"):
        counts = [link[figure] for link in links]
        return None if None in counts else float(sum(counts))
    value: Any = summary
    for key in figure.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, (int, float)) else None


def _largest(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(max(known)) if known else None
