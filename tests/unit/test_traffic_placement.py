"""Placement: the exact choice of every policy, its ties, and where it falls back to."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from traffic.placement import PLACEMENTS, View, policy
from traffic.request import Request

HOSTS = ("d1", "d2", "d3")


class Drawn(random.Random):
    """Gives the numbers it was made with."""

    def __init__(self, *numbers: float) -> None:
        super().__init__()
        self.numbers = list(numbers)

    def random(self) -> float:
        return self.numbers.pop(0)


def request(number: int = 0) -> Request:
    return Request(number, 0, 4096, 1, None)


def choice(name: str, view: View, *numbers: float, hosts: tuple[str, ...] = HOSTS, number: int = 0) -> str:
    rng = Drawn(*numbers)
    chosen = policy(name)(request(number), hosts, view, rng)
    assert not rng.numbers, "draws more or fewer numbers than it should"
    return chosen


def test_round_robin_goes_round() -> None:
    assert [choice("round-robin", View(), number=k) for k in range(7)] == [*HOSTS, *HOSTS, "d1"]


@pytest.mark.parametrize(("number", "host"), [(0.0, "d1"), (0.333, "d1"), (0.334, "d2"), (0.9999, "d3")])
def test_random_takes_all_alike(number: float, host: str) -> None:
    assert choice("random", View(), number) == host


@pytest.mark.parametrize(
    ("sizes", "requests", "host"),
    [
        ({}, {}, "d1"),
        ({"d1": 1}, {}, "d2"),
        ({"d1": 5, "d2": 4, "d3": 3}, {"d3": 9}, "d3"),  # bytes go before requests
        ({"d1": 3, "d2": 3, "d3": 3}, {"d1": 2, "d2": 1, "d3": 1}, "d2"),
    ],
)
def test_least_loaded(sizes: dict[str, int], requests: dict[str, int], host: str) -> None:
    assert choice("least-loaded", View(outstanding_bytes=sizes, outstanding_requests=requests)) == host


@pytest.mark.parametrize(
    ("numbers", "host"),
    [
        ((0.0, 0.0), "d2"),  # d1 and d2 are drawn, d1 has more
        ((0.0, 0.9), "d3"),  # d1 and d3
        ((0.5, 0.0), "d2"),  # d2 and d1
        ((0.5, 0.9), "d3"),  # d2 and d3
        ((0.9, 0.9), "d3"),  # d3 and d2
    ],
)
def test_power_of_two_takes_the_less_loaded_of_two_different_hosts(
    numbers: tuple[float, float], host: str
) -> None:
    view = View(outstanding_bytes={"d1": 9, "d2": 5, "d3": 1})
    assert choice("power-of-two", view, *numbers) == host


def test_power_of_two_of_one_and_of_equals() -> None:
    assert choice("power-of-two", View(), hosts=("d1",)) == "d1"
    assert choice("power-of-two", View(), 0.9, 0.0) == "d3"


@pytest.mark.parametrize(
    ("number", "host"),
    # Shares of 1, 1/2 and 1/3 of 11/6: up to 6/11 the first, up to 9/11 the second.
    [(0.0, "d1"), (0.5454, "d1"), (0.5455, "d2"), (0.8181, "d2"), (0.8182, "d3"), (0.99999, "d3")],
)
def test_skewed_follows_zipf(number: float, host: str) -> None:
    assert choice("skewed", View(), number) == host


def test_skewed_with_another_exponent() -> None:
    steep, rng = policy("skewed", exponent=2.0), random.Random(3)
    counts = Counter(steep(request(), HOSTS, View(), rng) for _ in range(9_000))
    # 36/49, 9/49 and 4/49; five standard deviations of the first are 209.
    assert abs(counts["d1"] - 9_000 * 36 / 49) < 209
    assert counts["d1"] > counts["d2"] > counts["d3"]
    flat = policy("skewed", exponent=0.0)
    assert flat(request(), HOSTS, View(), Drawn(0.34)) == "d2"


def test_skewed_takes_the_last_host_where_rounding_leaves_a_rest() -> None:
    assert choice("skewed", View(), 1.0) == "d3"


def test_cache_aware_takes_the_longest_prefix() -> None:
    view = View(cached_tokens={"d2": 512, "d3": 1024}, outstanding_bytes={"d3": 10**9})
    assert choice("cache-aware", view) == "d3"


def test_cache_aware_takes_the_least_loaded_of_equals() -> None:
    assert choice("cache-aware", View(outstanding_bytes={"d1": 1})) == "d2"
    view = View(cached_tokens={"d1": 512, "d3": 512}, outstanding_bytes={"d1": 8, "d3": 7})
    assert choice("cache-aware", view) == "d3"


MOVE = dict.fromkeys(HOSTS, 1_000_000)


def test_network_aware_takes_the_fastest_path_whatever_the_load() -> None:
    view = View(move_bytes=MOVE, free_bps={"d1": 1e9, "d2": 4e9, "d3": 2e9}, outstanding_bytes={"d2": 10**9})
    assert choice("network-aware", view) == "d2"


def test_network_aware_counts_what_need_not_be_moved() -> None:
    moved = {"d1": 100_000, "d2": 1_000_000, "d3": 1_000_000}
    view = View(move_bytes=moved, free_bps={"d1": 1e9, "d2": 4e9, "d3": 4e9})
    assert choice("network-aware", view) == "d1"


def test_network_aware_counts_what_was_sent_since_the_counters_were_read() -> None:
    rates = {"d1": 1e9, "d2": 4e9, "d3": 3.9e9}
    assert choice("network-aware", View(move_bytes=MOVE, free_bps=rates)) == "d2"
    after = View(move_bytes=MOVE, free_bps=rates, placed_bytes={"d2": 1_000_000})
    assert choice("network-aware", after) == "d3"


def test_network_aware_does_not_chase_differences_within_the_counters_error() -> None:
    view = View(move_bytes=MOVE, free_bps={"d1": 96e9, "d2": 100e9, "d3": 94e9}, outstanding_bytes={"d2": 1})
    assert choice("network-aware", view) == "d1"


def test_network_aware_without_an_estimate_for_every_host_is_least_loaded() -> None:
    view = View(move_bytes=MOVE, free_bps={"d1": 1e9, "d2": 9e9}, outstanding_bytes={"d1": 2, "d2": 1})
    assert choice("network-aware", view) == "d3"


def test_network_aware_with_nothing_to_move_or_nothing_free_divides_by_nothing() -> None:
    busy = View(free_bps=dict.fromkeys(HOSTS, 0.0), outstanding_bytes={"d1": 1})
    assert choice("network-aware", busy) == "d2"
    full = View(move_bytes=MOVE, free_bps={"d1": 0.0, "d2": 0.0, "d3": 1e6})
    assert choice("network-aware", full) == "d3"


@pytest.mark.parametrize("name", PLACEMENTS)
def test_the_same_seed_gives_the_same_hosts_and_every_choice_is_a_host(name: str) -> None:
    view = View(outstanding_bytes={"d1": 3, "d2": 2, "d3": 2})

    def hosts(seed: int) -> list[str]:
        rng = random.Random(seed)
        return [policy(name)(request(k), HOSTS, view, rng) for k in range(50)]

    assert hosts(1) == hosts(1)
    assert set(hosts(1)) <= set(HOSTS)


def test_an_unknown_policy() -> None:
    with pytest.raises(KeyError, match="^'fair'$"):
        policy("fair")
