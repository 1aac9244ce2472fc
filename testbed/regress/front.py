"""The points of a sweep over their seeds, and those that no other is better than (the Pareto front).

Pure functions of measured points; called by the sweep's page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.regress.flat import number
from testbed.regress.sweep import COLUMNS, OK, Measured


@dataclass(frozen=True)
class Spread:
    """A value over all seeds: mean, lowest, highest."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Group:
    """One combination of values over its seeds. `spreads` has the columns where every seed has a number."""

    values: tuple[str, ...]
    seeds: int
    spreads: Mapping[str, Spread]

    def mean(self, key: str) -> float | None:
        """Return the mean of a column, None where it has none."""
        found = self.spreads.get(key)
        return None if found is None else found.mean


def groups(measured: Sequence[Measured]) -> list[Group]:
    """Return the combinations in order; those with a seed that failed or is not valid are left out."""
    by_values: dict[tuple[str, ...], list[Measured]] = {}
    for one in measured:
        by_values.setdefault(one.point.values, []).append(one)
    return [
        Group(values, len(seeds), _spreads(seeds))
        for values, seeds in by_values.items()
        if all(one.status == OK for one in seeds)
    ]


def _spreads(seeds: Sequence[Measured]) -> dict[str, Spread]:
    found = {}
    for key in COLUMNS:
        values = [value for one in seeds if (value := number(one.values.get(key))) is not None]
        if len(values) == len(seeds):
            found[key] = Spread(sum(values) / len(values), min(values), max(values))
    return found


def front(points: Sequence[tuple[float, float]], *, higher_y: bool = False) -> list[int]:
    """Return the numbers of the points that no other is better than, by rising x.

    Less is better in x, and in y unless `higher_y`. Equal points are kept together.
    """
    sign = -1.0 if higher_y else 1.0
    order = sorted(range(len(points)), key=lambda at: (points[at][0], sign * points[at][1], at))
    kept: list[int] = []
    best = float("inf")
    for at in order:
        y = sign * points[at][1]
        if y < best or (kept and points[at] == points[kept[-1]]):
            kept.append(at)
            best = y
    return kept
