"""Paths say exactly what was binned, and nothing that comes from outside becomes markup."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from testbed.report import svg


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_a_step_curve_joins_equal_bins() -> None:
    assert svg.steps(ints(48, 48, 40, 40, 40, 48)) == "M0 48h2v-8h3v8h1"
    assert svg.filled_steps(ints(48, 40), 48) == "M0 48h1v-8h1V48H0z"


def test_runs_join_equal_counts() -> None:
    assert svg.runs(ints(0, 0, 0, 7, 0)) == "0*3 7 0"


def test_a_small_value_still_shows_and_a_large_one_stays_inside() -> None:
    assert svg.to_pixels(np.array([0.0, 0.001, 50.0, 100.0, 900.0]), 100, 40).tolist() == [40, 39, 20, 0, 0]
    assert svg.to_pixels(np.array([1.0]), 0, 40).tolist() == [40]


def test_ticks_stand_in_the_middle_of_their_bins() -> None:
    assert svg.ticks(ints(0, 5, 0, 9), 20) == "M1.5 20v-5M3.5 20v-9"


def test_attributes_are_escaped_and_absent_ones_left_out() -> None:
    made = svg.element("path", class_="a", data_name='"><script>', hidden=False, id=None)
    assert made == Markup('<path class="a" data-name="&#34;&gt;&lt;script&gt;"></path>')


def test_a_note_is_escaped() -> None:
    assert svg.title("<b>") == Markup("<title>&lt;b&gt;</title>")
