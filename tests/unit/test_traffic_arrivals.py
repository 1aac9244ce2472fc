"""Generated arrivals and lengths: known values, moments, bounds, and the same draws from the same seed."""

from __future__ import annotations

import math
import random
from itertools import pairwise, repeat
from pathlib import Path

import pytest

from traffic.arrivals import burst, gamma, gamma_variate, poisson
from traffic.lengths import distribution, fixed, lognormal, normal, read_distribution
from traffic.traces.rows import TraceError

DATA = Path(__file__).resolve().parents[1] / "data" / "traces"
MS = 10**6


class Drawn(random.Random):
    """Gives the numbers it was made with, over and over."""

    def __init__(self, *numbers: float) -> None:
        super().__init__()
        self.numbers = list(numbers)

    def random(self) -> float:
        self.numbers.append(self.numbers.pop(0))
        return self.numbers[-1]


def test_a_burst_is_sorted_and_within_its_window() -> None:
    assert burst(3, 0, 1000, Drawn(0.5, 0.25, 0.999)) == [250, 500, 999]
    assert burst(2, 100, 200, Drawn(0.0, 0.5)) == [100, 150]
    assert burst(2, 0, 0, random.Random(1)) == [0, 0]


def test_gaps_of_poisson_are_the_logarithm_of_what_was_drawn() -> None:
    half = math.log(2) * MS
    assert list(poisson(3, MS, Drawn(0.5))) == [int(half), int(2 * half), int(3 * half)]


def spread(times: list[int]) -> tuple[float, float]:
    """Return the mean of the gaps and their coefficient of variation."""
    gaps = [after - before for before, after in pairwise([0, *times])]
    mean = sum(gaps) / len(gaps)
    return mean, math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) / mean


def test_poisson_has_its_mean_and_a_variation_of_one() -> None:
    mean, cv = spread(list(poisson(20_000, MS, random.Random(5))))
    # The mean of 20000 gaps is within five standard errors (1/sqrt(20000)) of the true one.
    assert abs(mean / MS - 1) < 5 * 0.0071
    assert abs(cv - 1) < 0.05


@pytest.mark.parametrize("cv", [0.3, 1.0, 2.5])
def test_gamma_has_its_mean_and_its_variation(cv: float) -> None:
    times = list(gamma(20_000, MS, cv, random.Random(5)))
    assert times == sorted(times)
    mean, measured = spread(times)
    assert abs(mean / MS - 1) < 5 * cv * 0.0071
    # The standard error of a cv is about cv x sqrt((kurtosis + 2)/(4n)); the gamma's kurtosis is 6 cv^2.
    assert abs(measured / cv - 1) < 5 * math.sqrt((6 * cv * cv + 2) / 80_000) + 0.01


def test_the_gamma_variate_of_shape_one_is_exponential() -> None:
    rng = random.Random(9)
    drawn = [gamma_variate(1.0, rng) for _ in range(20_000)]
    below = sum(value < math.log(2) for value in drawn) / 20_000
    assert abs(below - 0.5) < 5 * 0.5 / math.sqrt(20_000)


def test_two_numbers_make_a_normal_one() -> None:
    assert normal(Drawn(1 - math.exp(-0.5), 0.0)) == pytest.approx(1.0)
    assert normal(Drawn(1 - math.exp(-2), 0.5)) == pytest.approx(-2.0)
    assert normal(Drawn(0.9, 0.25)) == pytest.approx(0.0, abs=1e-15)


def test_lengths_that_are_fixed() -> None:
    assert [fixed(4096)(random.Random(seed)) for seed in range(3)] == [4096, 4096, 4096]


def test_lognormal_lengths() -> None:
    one_above = Drawn(1 - math.exp(-0.5), 0.0)  # a normal number of 1
    assert lognormal(1000, 0.5, 10**6)(one_above) == round(1000 * math.exp(0.5))
    assert lognormal(1000, 0.5, 1200)(one_above) == 1200
    one_below = Drawn(1 - math.exp(-0.5), 0.5)
    assert lognormal(1000, 10, 10**6)(one_below) == 1
    assert lognormal(1000, 0, 10**6)(one_above) == 1000
    rng = random.Random(2)
    draw = lognormal(2000, 1.0, 10**9)
    below = sum(draw(rng) < 2000 for _ in range(20_000)) / 20_000
    assert abs(below - 0.5) < 5 * 0.5 / math.sqrt(20_000)


def test_lognormal_lengths_do_not_overflow() -> None:
    assert lognormal(100_000_000, 10, 1_000_000)(Drawn(1 - 1e-16, 0.0)) == 1_000_000


@pytest.mark.parametrize(
    ("share", "tokens"), [(0.0, 100), (0.25, 150), (0.5, 200), (0.75, 600), (0.9999, 1000)]
)
def test_lengths_from_a_distribution_are_straight_between_its_points(share: float, tokens: int) -> None:
    assert distribution(read_distribution(str(DATA / "lengths.txt")))(Drawn(share)) == tokens


def test_a_distribution_may_begin_with_a_share_and_have_steps() -> None:
    draw = distribution([(10, 0.4), (10, 0.6), (50, 0.6), (50, 1.0)])
    assert [draw(Drawn(share)) for share in (0.0, 0.3, 0.5, 0.61, 0.99)] == [10, 10, 10, 50, 50]
    assert distribution([(0, 0.0), (1, 1.0)])(Drawn(0.0)) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has fewer than two points of a distribution"),
        ("1 0\n", "has fewer than two points of a distribution"),
        ("1 0\n2 100\n1 100\n", "3: falls; tokens and shares rise from line to line"),
        ("1 50\n2 40\n3 100\n", "2: falls; tokens and shares rise from line to line"),
        ("1 0\n\n2 99\n", "3: ends at a share of 99; the last one is 100 or 1"),
        ("1 0\n2\n", "2: is no point of a distribution: tokens and a share (found 2)"),
        ("1 0\nx y # z\n", "2: is no point of a distribution: tokens and a share (found x y)"),
        ("-1 0\n2 100\n", "1: is out of range: tokens of 0 to 10^9, shares of 0 to 100"),
        ("nan 0\n2 100\n", "1: is out of range: tokens of 0 to 10^9, shares of 0 to 100"),
    ],
)
def test_a_distribution_that_is_none(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "cdf"
    path.write_text(text)
    with pytest.raises(TraceError) as caught:
        read_distribution(str(path))
    assert str(caught.value).removeprefix(f"{path}:").strip() == message


def test_shares_up_to_one_and_up_to_a_hundred_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "cdf"
    path.write_text("100 0\n200 .5\n1000 1\n")
    assert read_distribution(str(path)) == read_distribution(str(DATA / "lengths.txt"))


def test_known_draws() -> None:
    """The same on every version of Python: only `random()` is used."""
    rng = random.Random(1)
    assert list(poisson(3, MS, rng)) == [144291, 2024447, 3467416]
    assert list(gamma(3, MS, 2.0, rng)) == [21271, 247761, 247788]
    assert [lognormal(1000, 1.0, 10**6)(rng) for _ in repeat(None, 3)] == [8273, 803, 176]
