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


def tick_unit(step_ns: float) -> tuple[float, str]:
    """Return the unit for a time axis whose labels are `step_ns` apart: its nanoseconds and its name.

    The page's script labels a zoomed axis by the same rule.
    """
    if step_ns >= 1e9:
        return 1e9, "s"
    if step_ns >= 1e5:
        return 1e6, "ms"
    return (1e3, "\N{MICRO SIGN}s") if step_ns >= 1e2 else (1.0, "ns")


def time_labels(low_ns: float, high_ns: float, most: int) -> list[tuple[str, float]]:
    """Return the labels of a time axis, each with its place as a fraction of the axis."""
    values = round_ticks(low_ns, high_ns, most)
    size, unit = tick_unit(values[1] - values[0] if len(values) > 1 else high_ns - low_ns)
    return [
        (f"{round(value / size, 3) + 0.0:g} {unit}", (value - low_ns) / (high_ns - low_ns))
        for value in values
    ]


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
