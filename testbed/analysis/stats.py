"""The few statistics every part of the summary uses, each with its definition.

No knowledge of transfers or links. Called by the other modules of this package.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NS_PER_MS = 1e6
DIGITS = 9
"""Significant digits of every float that is written: what numpy sums in another order agrees in far more."""

POINTS = (("p50", 50), ("p95", 95), ("p99", 99))


def distribution(values: Floats, points: tuple[tuple[str, int], ...] = POINTS) -> dict[str, float | None]:
    """Return mean, percentiles and maximum of `values`, each None when there are none.

    A percentile q is interpolated linearly between the order statistics around position q/100 * (n - 1):
    numpy's method `linear`, definition 7 of Hyndman and Fan (1996).
    """
    names = ["mean", *(name for name, _ in points), "max"]
    if len(values) == 0:
        return dict.fromkeys(names)
    percentiles = np.percentile(values, [q for _, q in points], method="linear")
    return dict(zip(names, map(float, [values.mean(), *percentiles, values.max()]), strict=True))


def weighted_percentile(values: Floats, weights: Floats, q: float) -> float:
    """Return the least value that, with all smaller ones, holds at least q percent of the weight.

    With times as weights: the level that was not exceeded during q percent of the time. 0 when nothing
    weighs.
    """
    total = float(weights.sum())
    if total <= 0:
        return 0.0
    order = np.argsort(values)
    reached = np.searchsorted(np.cumsum(weights[order]), q / 100 * total * (1 - 1e-12))
    return float(values[order[min(int(reached), len(order) - 1)]])


def jain(values: Floats) -> float | None:
    """Return Jain's fairness index, (sum x)^2 / (n sum x^2): 1 when all are equal, 1/n when one has it
    all."""
    squares = float(np.square(values).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares > 0 else None


def rounded(value: Any) -> Any:
    """Return `value` with every float in it (also within dicts and lists) rounded to `DIGITS` significant
    digits.

    A float that is no number becomes None, so that the result is always valid JSON.
    """
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    if not isinstance(value, float):
        return value
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def integral_of(time_ns: Ints, values: NDArray[Any]) -> Floats:
    """Return the integral of sampled `values` from the first sample to each sample, in value x ns.

    A sample's value holds until the next sample; interpolating the result linearly is then exact.
    """
    steps = np.diff(time_ns).astype(np.float64)
    return np.concatenate(([0.0], np.cumsum(values[:-1] * steps)))
