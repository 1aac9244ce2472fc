"""The statistics, against values worked out by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from testbed.analysis.stats import distribution, integral_of, jain, rounded, weighted_percentile


def test_percentiles_are_interpolated_linearly() -> None:
    found = distribution(np.array([4.0, 1.0, 3.0, 2.0]))
    assert found == pytest.approx({"mean": 2.5, "p50": 2.5, "p95": 3.85, "p99": 3.97, "max": 4.0})


def test_nothing_has_no_statistics() -> None:
    assert distribution(np.empty(0)) == dict.fromkeys(("mean", "p50", "p95", "p99", "max"))


@pytest.mark.parametrize(("q", "level"), [(0, 1), (10, 1), (11, 5), (90, 5), (91, 7), (100, 7)])
def test_a_weighted_percentile_is_the_level_held_for_so_much_of_the_weight(q: float, level: int) -> None:
    assert weighted_percentile(np.array([7.0, 1.0, 5.0]), np.array([1.0, 1.0, 8.0]), q) == level


def test_a_weighted_percentile_of_no_weight_is_zero() -> None:
    assert weighted_percentile(np.array([7.0]), np.array([0.0]), 99) == 0


def test_jain_is_one_for_equals_and_one_over_n_for_one_that_has_all() -> None:
    assert jain(np.array([3.0, 3.0, 3.0])) == 1
    assert jain(np.array([5.0, 0.0, 0.0, 0.0])) == 0.25
    assert jain(np.empty(0)) is None


def test_floats_are_rounded_at_every_depth_and_the_rest_stays() -> None:
    value = {"a": [1 / 3, {"b": 123456789.123}], "c": 12345678901234, "d": "x", "e": None, "f": True}
    assert rounded(value) == {
        "a": [0.333333333, {"b": 123456789.0}],
        "c": 12345678901234,
        "d": "x",
        "e": None,
        "f": True,
    }
    assert rounded((float("nan"), float("inf"))) == [None, None]
    assert json.dumps(rounded(0.1 + 0.2)) == "0.3"


def test_a_sample_holds_until_the_next() -> None:
    assert integral_of(np.array([0, 10, 30]), np.array([2, 5, 99])).tolist() == [0, 20, 120]
