"""Bins keep peaks and sums exactly, whatever the samples' spacing."""

from __future__ import annotations

import time

import numpy as np
import pytest

from testbed.report.binning import bin_edges, bin_increase, bin_level, bin_rate


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_a_bin_keeps_its_largest_and_its_mean() -> None:
    bins = bin_level(ints(0, 1, 2, 3), ints(10, 0, 50, 70), bin_edges(0, 4, 2))
    assert bins.maximum.tolist() == [10, 70]
    assert bins.mean.tolist() == [5, 60]


def test_a_bin_without_samples_holds_the_last_level() -> None:
    bins = bin_level(ints(1, 31), ints(8, 4), bin_edges(0, 40, 4))
    assert bins.maximum.tolist() == [8, 8, 8, 4]
    assert bins.mean.tolist() == [8, 8, 8, 4]


def test_bins_before_the_first_sample_are_empty_and_the_last_edge_belongs_to_the_last_bin() -> None:
    bins = bin_level(ints(25, 40), ints(6, 9), bin_edges(0, 40, 4))
    assert bins.maximum.tolist() == [0, 0, 6, 9]


def test_samples_outside_the_window_are_left_out() -> None:
    bins = bin_level(ints(-5, 5, 15, 25), ints(99, 1, 2, 99), bin_edges(0, 20, 2))
    assert bins.maximum.tolist() == [1, 2]


def test_a_single_sample_spike_survives_a_thousandfold_reduction() -> None:
    time_ns = np.arange(1_000_000, dtype=np.int64) * 1_000
    level = np.zeros(1_000_000, dtype=np.int64)
    level[654_321] = 777_000
    bins = bin_level(time_ns, level, bin_edges(0, 1e9, 800))
    assert bins.maximum.max() == 777_000
    assert int(np.argmax(bins.maximum)) == 654_321 * 800 // 1_000_000
    assert bins.mean.max() == pytest.approx(777_000 / 1250)


def test_the_mean_rates_add_up_to_the_counter() -> None:
    time_ns = ints(0, 3, 9, 10, 20)
    bins = bin_rate(time_ns, ints(0, 30, 60, 160, 200), bin_edges(0, 20, 4))
    assert (bins.mean * 5 / 1e9).sum() == pytest.approx(200, abs=1e-9)


def test_the_largest_rate_is_that_of_the_fastest_sampling_interval() -> None:
    bins = bin_rate(ints(0, 10, 11, 20), ints(0, 10, 21, 30), bin_edges(0, 20, 2))
    assert bins.mean.tolist() == pytest.approx([1e9, 2e9])
    assert bins.maximum.tolist() == pytest.approx([1e9, 11e9])


@pytest.mark.parametrize("samples", [0, 1])
def test_a_rate_needs_two_samples(samples: int) -> None:
    bins = bin_rate(np.zeros(samples, np.int64), np.zeros(samples, np.int64), bin_edges(0, 20, 2))
    assert bins.maximum.tolist() == [0, 0]


def test_increases_add_up_even_beyond_the_window() -> None:
    grown = bin_increase(ints(-10, 5, 15, 99), ints(0, 3, 7, 9), bin_edges(0, 20, 2))
    assert grown.tolist() == [3, 6]


def test_a_million_samples_take_a_fraction_of_a_second() -> None:
    time_ns = np.arange(1_000_000, dtype=np.int64)
    edges_ns = bin_edges(0, 1e6, 800)
    begun = time.process_time()
    bin_level(time_ns, time_ns, edges_ns)
    bin_rate(time_ns, time_ns, edges_ns)
    bin_increase(time_ns, time_ns, edges_ns)
    # About 0.05 s on the slowest machine tried; a loop over the samples would take many seconds.
    assert time.process_time() - begun < 2.0
