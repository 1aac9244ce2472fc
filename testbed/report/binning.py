"""Samples of any number brought down to a few hundred bins of time, without losing a peak.

For each bin the largest value and the mean are kept: the largest so that a spike of a single sample still
shows, the mean so that it does not pass for the usual state. Vectorised: a million samples take
milliseconds. Knows nothing of links, records or drawing; called by the chart modules and by the page of a
comparison.

All times are int64 or float64 nanoseconds in rising order. `edges_ns` has one value more than there are
bins; a bin holds the samples from its left edge on to before its right edge, the last one also its right
edge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Bins:
    """One value for each bin: the largest sample in it and the mean. Both in the unit of the samples."""

    maximum: Floats
    mean: Floats


def bin_edges(start_ns: float, end_ns: float, bins: int) -> Floats:
    """Return the edges of `bins` bins of equal width from `start_ns` to `end_ns`."""
    return np.linspace(start_ns, end_ns, bins + 1)


def bin_level(time_ns: Ints, level: Ints, edges_ns: Floats) -> Bins:
    """Bin an instantaneous level, such as a backlog. A bin without a sample keeps the last level seen."""
    first = _first_samples(time_ns, edges_ns)
    held = _last_before(level, first[:-1])
    counts = np.diff(first)
    filled = counts > 0
    maximum, mean = held.copy(), held.copy()
    if filled.any():
        inside, starts = level[: first[-1]].astype(np.float64), first[:-1][filled]
        maximum[filled] = np.maximum.reduceat(inside, starts)
        mean[filled] = np.add.reduceat(inside, starts) / counts[filled]
    return Bins(maximum, mean)


def bin_rate(time_ns: Ints, counter: Ints, edges_ns: Floats) -> Bins:
    """Bin the rate of a counter that only grows, per second.

    The mean is the counter's increase over the bin, interpolated at its edges, so that means add up to the
    whole. The largest is that of the sampling intervals which end in the bin, never below the mean.
    """
    if len(time_ns) < 2:
        return Bins(np.zeros(len(edges_ns) - 1), np.zeros(len(edges_ns) - 1))
    at_edges = np.interp(edges_ns, time_ns, counter)
    mean = np.diff(at_edges) / np.diff(edges_ns) * 1e9
    rates = np.diff(counter) / np.maximum(np.diff(time_ns), 1) * 1e9
    return Bins(np.maximum(_largest(time_ns[1:], rates, edges_ns), mean), mean)


def bin_increase(time_ns: Ints, counter: Ints, edges_ns: Floats) -> Ints:
    """Return by how much a counter grew in each bin, in whole steps; the first bin takes what came before.

    What came after the last edge falls to the last bin, so that the sum is the counter's whole increase.
    """
    if not len(time_ns):
        return np.zeros(len(edges_ns) - 1, dtype=np.int64)
    position = np.searchsorted(time_ns, edges_ns, side="right") - 1
    position[0], position[-1] = 0, len(time_ns) - 1
    return np.diff(counter[np.maximum(position, 0)])


def _first_samples(time_ns: Ints, edges_ns: Floats) -> Ints:
    """Return for each edge the number of the first sample at or after it (after it, for the last edge)."""
    first = np.searchsorted(time_ns, edges_ns, side="left").astype(np.int64)
    first[-1] = np.searchsorted(time_ns, edges_ns[-1], side="right")
    return first


def _last_before(level: Ints, first: Ints) -> Floats:
    """Return for each sample number the level just before it, 0 where there was none."""
    padded = np.concatenate(([0], level)).astype(np.float64)
    return padded[first]


def _largest(time_ns: Ints, values: Floats, edges_ns: Floats) -> Floats:
    """Return the largest of the values in each bin, 0 in a bin that has none."""
    first = _first_samples(time_ns, edges_ns)
    filled = np.diff(first) > 0
    largest = np.zeros(len(edges_ns) - 1)
    if filled.any():
        largest[filled] = np.maximum.reduceat(values[: first[-1]], first[:-1][filled])
    return largest
