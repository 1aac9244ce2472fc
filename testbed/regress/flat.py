"""A summary as one value for each key, and what differs between two of them, largest effect first.

Called by the goldens and by the comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Scalar = str | int | float | bool | None
Flat = Mapping[str, Scalar]

WORDING = ("verdict.text", "verdict.naive.text", "fidelity.checks", "fidelity.reasons")
"""Sentences for people: they say again what stands in other keys, and may be worded better any day."""

ANSWER = ("verdict", "transfers", "ttft_ms", "fabric", "fidelity")
"""First parts of the keys that speak of the whole run; the others speak of a link or a moment."""


HEADLINES = (
    *("verdict.segment", "verdict.link", "verdict.share", "ttft_ms.p50", "ttft_ms.p99", "ttft_ms.max"),
    *("transfers.completed", "transfers.slowdown.p99", "transfers.last_end_ms", "transfers.retransmissions"),
    *("fabric.utilisation", "fidelity.valid"),
)
"""What a person asks first."""


@dataclass(frozen=True)
class Change:
    """A value that differs."""

    key: str
    before: Scalar
    after: Scalar

    @property
    def effect(self) -> float:
        """Return how much it differs, from 0 to 1: the difference as a share of the larger one.

        1 where one of them is zero, none, or no number.
        """
        before, after = number(self.before), number(self.after)
        if before is None or after is None or before * after <= 0:
            return 1.0
        return abs(after - before) / max(abs(before), abs(after))

    @property
    def relative(self) -> float | None:
        """Return the change as a fraction of what it was, None where that is no number or zero."""
        before, after = number(self.before), number(self.after)
        return (after - before) / before if before and after is not None else None

    @property
    def group(self) -> int:
        """Return 0 for what a person asks first, 1 for what else is of the whole run, 2 for the rest."""
        if self.key in HEADLINES:
            return 0
        return 1 if self.key.partition(".")[0] in ANSWER else 2


def number(value: Scalar) -> float | None:
    """Return a value as a number, None where it is none: true and false are none."""
    return None if isinstance(value, (bool, str)) or value is None else float(value)


def flatten(summary: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return every value of a summary by its keys joined by dots, without what is only wording.

    A list of plain values is one text; the items of another list are numbered.
    """
    return dict(_flat(summary, ""))


def _flat(value: Any, at: str) -> Iterator[tuple[str, Scalar]]:
    if at in WORDING:
        return
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from _flat(below, f"{at}.{key}" if at else str(key))
    elif isinstance(value, (list, tuple)):
        if any(isinstance(item, (Mapping, list, tuple)) for item in value):
            yield from _flat({str(number): item for number, item in enumerate(value)}, at)
        else:
            yield at, ", ".join(map(str, value))
    else:
        yield at, value


def changes(before: Flat, after: Flat) -> list[Change]:
    """Return what differs in the keys that both have, in order."""
    found = [Change(key, before[key], after[key]) for key in before if key in after]
    return in_order([change for change in found if change.before != change.after])


def in_order(found: Sequence[Change]) -> list[Change]:
    """Return changes by group, in each the largest effect first."""
    return sorted(found, key=lambda change: (change.group, -change.effect, change.key))


def shown(value: Scalar) -> str:
    """Return a value as `summary.json` has it, without quotes."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def shown_change(change: Change) -> str:
    """Return a change in one line: key, before, after, and by how much."""
    by = "" if change.relative is None else f" ({change.relative:+.1%})".replace("%", " %")
    return f"{change.key}: {shown(change.before)} -> {shown(change.after)}{by}"
