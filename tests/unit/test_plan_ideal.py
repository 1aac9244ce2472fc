"""The fluid model: textbook allocations, exact end times, and its bounds on random cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.plan.ideal import Flow, fair_rates, ideal_ends_ns, ideal_last_end_ns

GBIT = 1e9


def flow(
    *resources: int, bits: float = GBIT, start_ns: int = 0, cap: float = math.inf, delay_ns: int = 0
) -> Flow:
    return Flow(resources, cap, bits, start_ns, delay_ns)


def test_no_flow_ends_at_zero() -> None:
    assert ideal_last_end_ns([], [GBIT]) == 0


def test_alone_and_shared() -> None:
    assert ideal_ends_ns([flow(0)], [GBIT]) == [1e9]
    assert ideal_ends_ns([flow(0), flow(0)], [GBIT]) == [2e9, 2e9]
    assert ideal_ends_ns([flow(0, delay_ns=7, cap=GBIT / 2)], [GBIT]) == [2e9 + 7]


def test_a_flow_that_ends_makes_room() -> None:
    # Both at half rate until 1 s, when the first has its 0.5 Gbit; the other has 0.5 left at full rate.
    assert ideal_ends_ns([flow(0, bits=GBIT / 2), flow(0)], [GBIT]) == [1e9, 1.5e9]


def test_a_flow_that_begins_takes_room() -> None:
    # Alone for 0.5 s; then both need as long, until the first ends at 1.5 s.
    assert ideal_ends_ns([flow(0), flow(0, start_ns=500_000_000)], [GBIT]) == [1.5e9, 2e9]


def test_an_idle_gap() -> None:
    assert ideal_ends_ns([flow(0), flow(0, start_ns=3_000_000_000)], [GBIT]) == [1e9, 4e9]


def test_what_one_bottleneck_leaves_goes_to_others() -> None:
    # Flows 0 and 1 share resource 0 (1 Gbit/s); flow 1 and 2 share resource 1 (2 Gbit/s).
    rates = fair_rates(
        np.array([[0, 2], [0, 1], [1, 2]]),
        np.array([1.0, 1.0, 1.0]),
        np.full(3, math.inf),
        np.array([GBIT, 2 * GBIT, math.inf]),
    )
    assert rates.tolist() == [GBIT / 2, GBIT / 2, 1.5 * GBIT]


def test_capped_flows_leave_the_rest_to_others() -> None:
    rates = fair_rates(
        np.array([[0], [0]]), np.array([2.0, 1.0]), np.array([GBIT / 10, math.inf]), np.array([GBIT])
    )
    assert rates.tolist() == [GBIT / 10, pytest.approx(0.8 * GBIT)]


def test_last_end_is_rounded_up() -> None:
    assert ideal_last_end_ns([flow(0, bits=1.0)], [3 * GBIT]) == 1
    assert ideal_last_end_ns([flow(0, bits=4.0)], [GBIT]) == 4


def test_ten_thousand_flows() -> None:
    flows = [flow(number % 8, 8, bits=8e6, start_ns=number * 50_000) for number in range(10_000)]
    # 10000 x 8 Mbit through one link of 100 Gbit/s that is never idle from the first on.
    assert ideal_last_end_ns(flows, [100 * GBIT] * 9) == 800_000_000


def test_ends_an_hour_in_at_a_terabit_are_reached() -> None:
    # There a step of the clock, a float of 3.6e12 ns, is half a bit: left to rounding, no end is met exactly.
    start_ns = 3_600 * 10**9
    flows = [flow(0, number % 3 + 1, bits=1e6 + number * 7.3, start_ns=start_ns) for number in range(99)]
    assert ideal_last_end_ns(flows, [1e12, 1e12, 1e12, 1e12]) == start_ns + 99_036


CASES = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(4, 7), st.integers(1, 10**9), st.integers(0, 10**6), st.integers(1, 9)
    ),
    min_size=1,
    max_size=12,
)


@settings(deadline=None)
@given(CASES, st.lists(st.integers(1, 100), min_size=8, max_size=8))
def test_bounds_that_any_sharing_obeys(cases: list[tuple[int, ...]], speeds: list[int]) -> None:
    capacities = [speed * GBIT for speed in speeds]
    flows = [flow(a, b, bits=bits, start_ns=start, cap=cap * GBIT) for a, b, bits, start, cap in cases]
    ends = ideal_ends_ns(flows, capacities)
    for item, end in zip(flows, ends, strict=True):
        fastest = min(item.cap_bps, *(capacities[resource] for resource in item.resources))
        assert end >= item.start_ns + item.bits / fastest * 1e9 * (1 - 1e-6) - 1e-3
    for resource, capacity in enumerate(capacities):
        through = [(item, end) for item, end in zip(flows, ends, strict=True) if resource in item.resources]
        work = sum(item.bits for item, _ in through)
        if through:
            first = min(item.start_ns for item, _ in through)
            assert max(end for _, end in through) >= first + work / capacity * 1e9 * (1 - 1e-6) - 1e-3


RATES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(4, 7), st.integers(1, 5), st.integers(1, 50)),
    min_size=1,
    max_size=12,
)


@settings(deadline=None)
@given(RATES, st.lists(st.integers(1, 100), min_size=8, max_size=8))
def test_rates_are_max_min_fair(classes: list[tuple[int, ...]], speeds: list[int]) -> None:
    """Bertsekas and Gallager's criterion: each flow has its cap or a full resource where none is faster."""
    uses = np.array([[a, b] for a, b, _, _ in classes])
    counts = np.array([float(count) for _, _, count, _ in classes])
    caps = np.array([float(cap) for _, _, _, cap in classes])
    capacities = np.array(speeds, dtype=float)
    rates = fair_rates(uses, counts, caps, capacities)
    load = np.bincount(uses.ravel(), weights=np.repeat(counts * rates, 2), minlength=8)
    assert (load <= capacities * (1 + 1e-9)).all()
    for number, used in enumerate(uses):
        at_cap = rates[number] >= caps[number] * (1 - 1e-9)
        bottlenecks = [
            resource
            for resource in used
            if load[resource] >= capacities[resource] * (1 - 1e-9)
            and rates[number] >= rates[(uses == resource).any(axis=1)].max() * (1 - 1e-9)
        ]
        assert at_cap or bottlenecks
