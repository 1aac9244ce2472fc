"""The top of the page: may the numbers be believed, and the figures a reader looks for first.

Reads the summary only. Called by `testbed.report.page`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.report.numbers import (
    format_bytes,
    format_count,
    format_factor,
    format_ms,
    format_percent,
    significant,
)

LEAST_DIFFERENCE = 0.001
"""What two times differ by less is no difference in a headline."""

MINUS = "\N{MINUS SIGN}"
"""Unlike a hyphen, no line ends behind it."""


@dataclass(frozen=True)
class Figure:
    """A number with its name and what it is to be compared with."""

    name: str
    value: str
    beside: str
    alert: bool = False


@dataclass(frozen=True)
class Fidelity:
    """Whether the measurement is valid: one sentence, then the reasons against it."""

    valid: bool
    sentence: str
    reasons: tuple[str, ...]


def fidelity(summary: Mapping[str, Any]) -> Fidelity:
    """Return what the summary says of its own validity."""
    valid, reasons = summary["fidelity"]["valid"], tuple(summary["fidelity"]["reasons"])
    if valid:
        return Fidelity(True, "Valid: every check of the measurement holds.", reasons)
    return Fidelity(False, "Not valid: do not rely on the numbers of this page.", reasons)


def figures(summary: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Return the row of figures, in a fixed order."""
    transfers, links = summary["transfers"], summary["links"].values()
    fct, ideal, slowdown = transfers["fct_ms"], transfers["ideal_ms"], transfers["slowdown"]
    missing = transfers["count"] - transfers["completed"]
    drops, marks = ([link[name] for link in links if link[name]] for name in ("drops", "ce_marks"))
    return (
        Figure(
            "Transfers",
            format_count(transfers["completed"]),
            f"{missing} of {transfers['count']} did not complete" if missing else "all completed",
            bool(missing),
        ),
        Figure("Bytes", format_bytes(transfers["bytes"]), "payload"),
        Figure("Last end", format_ms(transfers["last_end_ms"]), _beside_ideal(transfers)),
        Figure("FCT p50", format_ms(fct["p50"]), f"{format_ms(ideal['p50'])} alone"),
        Figure("FCT p99", format_ms(fct["p99"]), f"{format_ms(ideal['p99'])} alone"),
        Figure("Slowdown p99", format_factor(slowdown["p99"]), f"{format_factor(slowdown['p50'])} at p50"),
        Figure("CE marks", format_count(sum(marks)), _on_links(len(marks))),
        Figure("Drops", format_count(sum(drops)), _on_links(len(drops)), bool(drops)),
    )


def _on_links(count: int) -> str:
    if not count:
        return "on no link"
    return f"on {count} link{'s' if count > 1 else ''}"


def _beside_ideal(transfers: Mapping[str, Any]) -> str:
    """Compare the last end with perfect sharing; the difference is in percent of the ideal."""
    end, ideal = transfers["last_end_ms"], transfers["ideal_last_end_ms"]
    if end is None or not ideal:
        return "ideal " + format_ms(ideal)
    over = end / ideal - 1
    if abs(over) < LEAST_DIFFERENCE:
        return f"ideal {format_ms(ideal)} (the same)"
    if over >= 10:
        return f"ideal {format_ms(ideal)} ({significant(end / ideal)} times as long)"
    return f"ideal {format_ms(ideal)} ({'+' if over >= 0 else MINUS}{format_percent(abs(over))})"
