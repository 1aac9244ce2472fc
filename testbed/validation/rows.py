"""A row of the validation table: what was measured, what it should be, and why it may be so far off. Pure."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Row:
    """One comparison. It holds when `measured` is within `low` and `high` (both in `unit`).

    `expected` is the figure as its source gives it, in words; `why` says where the room around it comes from;
    `note` says why there is no measurement.
    """

    name: str
    what: str
    measured: float
    low: float
    high: float
    unit: str
    expected: str
    why: str
    source: str
    note: str = ""

    @property
    def passed(self) -> bool:
        """Whether the figure is within its bounds; one that is no number is not."""
        return self.low <= self.measured <= self.high

    @property
    def tolerance(self) -> str:
        """The bounds, for a person."""
        if math.isinf(self.low):
            return f"at most {number(self.high)} {self.unit}".rstrip()
        if math.isinf(self.high):
            return f"at least {number(self.low)} {self.unit}".rstrip()
        if self.low == self.high:
            return "exactly"
        return f"{number(self.low)} to {number(self.high)} {self.unit}".rstrip()

    @property
    def shown(self) -> str:
        """The measured figure with its unit, for a person."""
        return f"{number(self.measured)} {self.unit}".rstrip()

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON has it; a bound that is none is null."""
        fields = asdict(self)
        for key in ("measured", "low", "high"):
            fields[key] = fields[key] if math.isfinite(fields[key]) else None
        return fields | {"tolerance": self.tolerance, "passed": self.passed}


def about(
    name: str,
    what: str,
    measured: float,
    expected: float,
    unit: str,
    *,
    share: float = 0.0,
    floor: float = 0.0,
    why: str,
    source: str,
) -> Row:
    """Return a row that holds within `share` of the expected figure, and within `floor` in any case."""
    room = max(share * abs(expected), floor)
    text = f"{number(expected)} {unit}".rstrip()
    return Row(name, what, measured, expected - room, expected + room, unit, text, why, source)


def between(
    name: str, what: str, measured: float, low: float, high: float, unit: str, *, why: str, source: str
) -> Row:
    """Return a row that holds from `low` to `high`; either may be infinite."""
    row = Row(name, what, measured, low, high, unit, "", why, source)
    return replace(row, expected=row.tolerance)


def at_most(name: str, what: str, measured: float, high: float, unit: str, *, why: str, source: str) -> Row:
    """Return a row that holds up to `high`."""
    return between(name, what, measured, -math.inf, high, unit, why=why, source=source)


def at_least(name: str, what: str, measured: float, low: float, unit: str, *, why: str, source: str) -> Row:
    """Return a row that holds from `low` on."""
    return between(name, what, measured, low, math.inf, unit, why=why, source=source)


def number(value: float) -> str:
    """Return a figure with four significant digits, from a thousand on in whole numbers."""
    text = f"{value:.4g}"
    if math.isfinite(value) and (value == int(value) or abs(float(text)) >= 1000):
        return f"{value:,.0f}"
    return text
