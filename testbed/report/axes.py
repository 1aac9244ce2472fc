"""Round values for the ticks of an axis, and where labels go so that none covers another.

Numbers only; called by the chart modules of `testbed.report`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_STEPS = (1, 2, 5, 10)


def round_ticks(low: float, high: float, most: int) -> list[float]:
    """Return at most `most` values at a distance of 1, 2 or 5 times a power of ten, from `low` to `high`."""
    if high <= low:
        return [low]
    step = _step((high - low) / max(1, most - 1))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def spread(positions: Sequence[float], distance: float, low: float, high: float) -> list[float]:
    """Move rising positions until neighbours are `distance` apart, all within `low` to `high` if they fit."""
    moved: list[float] = []
    for position in positions:
        moved.append(max(position, moved[-1] + distance) if moved else max(position, low))
    ceiling = high
    for index in range(len(moved) - 1, -1, -1):
        moved[index] = max(low, min(moved[index], ceiling))
        ceiling = moved[index] - distance
    return moved


def _step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    for step in _STEPS:
        if step * power >= least * (1 - 1e-9):
            return step * power
    return 10 * power
