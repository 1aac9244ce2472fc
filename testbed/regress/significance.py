"""Is a difference between two sets of seeds more than chance? A permutation test, exact where it can be.

If a setting made no difference, the values of both sides would be so many draws from one population, and any
division of them into two sides of these sizes as likely as the one that was measured. The p-value is the
share of all divisions whose means differ at least as much (Fisher 1935; two-sided). Nothing is assumed of the
values' distribution. With four seeds on each side the smallest possible p is 2/70; with three it is 2/20, and
nothing can be told at 5 %.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import comb

import numpy as np

ALPHA = 0.05
"""The share of comparisons without a difference that are called one."""

EXACT_MOST = 50_000
"""So many divisions are all looked at; of more, as many are drawn."""

_ROUNDING = 1e-12


def p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the two-sided p-value of the difference of the means of two samples, neither of them empty."""
    values, size = np.array([*first, *second], np.float64), len(first)
    total, rest = float(values.sum()), len(values) - size
    sums = np.fromiter((values[list(chosen)].sum() for chosen in _divisions(len(values), size)), np.float64)
    differences = np.abs(sums / size - (total - sums) / rest)
    measured = abs(float(np.mean(first)) - float(np.mean(second)))
    # Means of equal values in another order differ in the last digits.
    return float(np.mean(differences >= measured - _ROUNDING * max(1.0, float(np.abs(values).max()))))


def smallest_p(first: int, second: int) -> float:
    """Return the smallest p-value that samples of these sizes can have."""
    return (2 if first == second else 1) / comb(first + second, first)


def can_tell(first: int, second: int) -> bool:
    """Whether samples of these sizes can differ by more than chance at all."""
    return smallest_p(first, second) <= ALPHA


def _divisions(count: int, size: int) -> Iterator[Sequence[int]]:
    if comb(count, size) <= EXACT_MOST:
        yield from combinations(range(count), size)
        return
    random = np.random.default_rng(1)  # the same p-value each time
    yield tuple(range(size))
    for _ in range(EXACT_MOST - 1):
        yield tuple(random.permutation(count)[:size])
