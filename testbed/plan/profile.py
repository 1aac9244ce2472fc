"""How long a prompt's prefill takes: tokens per second, or a measured profile. Pure but for reading the file.

A profile is a CSV file with the columns `tokens` and `ms`, rising; between two rows, and beyond the first and
the last, the line through the nearest two holds. Called by `testbed.plan.serving`.
"""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from testbed.errors import InputError
from testbed.scenario.problems import shown

COLUMNS = ("tokens", "ms")


@dataclass(frozen=True)
class Profile:
    """Points of a piecewise linear function: tokens, rising, and the nanoseconds of each."""

    tokens: tuple[float, ...]
    ns: tuple[float, ...]

    def prefill_ns(self, tokens: int) -> int:
        """Return the time of a prompt of so many tokens, never below 0; none for no tokens."""
        if tokens <= 0:
            return 0
        at = min(max(bisect_right(self.tokens, tokens) - 1, 0), len(self.tokens) - 2)
        run, rise = self.tokens[at + 1] - self.tokens[at], self.ns[at + 1] - self.ns[at]
        return max(0, round(self.ns[at] + (tokens - self.tokens[at]) * rise / run))


def at_rate(tokens_per_second: float) -> Profile:
    """Return the profile of a host that computes tokens at a constant rate."""
    return Profile((0.0, 1.0), (0.0, 1e9 / tokens_per_second))


def read_profile(lines: Iterable[str], label: str) -> Profile:
    """Return the profile in the lines of a CSV file; InputError with file and line for what is none."""
    rows = csv.reader(lines)
    head = [cell.strip().lower() for cell in next(rows, [])]
    if head != list(COLUMNS):
        raise InputError(
            f"{label}:1: is no head of a prefill profile (found {shown(','.join(head))!r}); write tokens,ms"
        )
    points: list[tuple[float, float]] = []
    for row in rows:
        if row:
            points.append(_point(row, points[-1] if points else None, f"{label}:{rows.line_num}"))
    if len(points) < 2:
        raise InputError(f"{label}: has {len(points)} rows; a line needs two")
    return Profile(tuple(tokens for tokens, _ in points), tuple(ms * 1e6 for _, ms in points))


def _point(row: list[str], before: tuple[float, float] | None, place: str) -> tuple[float, float]:
    try:
        tokens, ms = map(float, row)
    except ValueError:
        raise InputError(f"{place}: is not two numbers (found {shown(','.join(row))!r})") from None
    if not 0 <= tokens < 1e9 or not 0 <= ms < 1e9:  # also what is no number at all
        raise InputError(f"{place}: is out of range (found {shown(','.join(row))!r}); both are 0 to 1e9")
    if before is not None and tokens <= before[0]:
        raise InputError(f"{place}: tokens do not rise (found {tokens:g} after {before[0]:g})")
    return tokens, ms
