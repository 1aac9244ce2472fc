"""Who is held when, from scripted backlogs: no clock, no queue, no port."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from testbed.plan.model import PausePoint, Pausing
from testbed.run.pauses import Order, Pauses
from tests.support.lab import small_plan

PLAN = small_plan("fabric.lossless=true", "fabric.spines=1", "fabric.fabric_link.rate=200gbit")
"""p1 and p2 on leaf1, d1 on leaf2, links of 100 and 200 Gbit/s, delays of 1 us."""

XOFF, XON = 1000, 400
UP, DOWN, LAST = "leaf1-spine1", "spine1-leaf2", "leaf2-d1"
FILLED_BY = {UP: ("p1-leaf1", "p2-leaf1"), DOWN: (UP,), LAST: (DOWN,)}


def pauses(filled_by: Mapping[str, tuple[str, ...]] = FILLED_BY) -> Pauses:
    points = tuple(PausePoint(link, XOFF, XON, 0, feeders) for link, feeders in filled_by.items())
    return Pauses(replace(PLAN, pausing=Pausing(points, deadlock_ns=1_000_000)))


def look(state: Pauses, now_ns: int, sent: Mapping[str, int] | None = None, **backlogs: int) -> list[Order]:
    """Show the backlogs of links named as `leaf2_d1`, all others empty."""
    named = {name.replace("_", "-"): value for name, value in backlogs.items()}
    return state.look(now_ns, {link: named.get(link, 0) for link in state.watched}, sent or {})


def test_nobody_is_held_below_xoff() -> None:
    assert look(pauses(), 0, leaf2_d1=XOFF - 1) == []


def test_a_queue_at_xoff_holds_what_fills_it_after_the_links_delay_both_ways() -> None:
    assert look(pauses(), 5000, leaf2_d1=XOFF) == [Order(7000, DOWN, LAST, held=True)]


def test_a_host_is_held_at_once() -> None:
    orders = look(pauses(), 5000, leaf1_spine1=XOFF)
    assert orders == [Order(5000, "p1-leaf1", UP, held=True), Order(5000, "p2-leaf1", UP, held=True)]


def test_a_pause_lasts_until_xon_and_is_said_once() -> None:
    state = pauses()
    look(state, 0, leaf2_d1=XOFF)
    assert look(state, 1000, leaf2_d1=XOFF + 500) == []
    assert look(state, 2000, leaf2_d1=XON + 1) == []
    assert look(state, 3000, leaf2_d1=XON) == [Order(5000, DOWN, LAST, held=False)]
    assert look(state, 4000, leaf2_d1=XON) == []
    assert look(state, 5000, leaf2_d1=XOFF) == [Order(7000, DOWN, LAST, held=True)]


def test_a_pause_goes_on_hop_by_hop_as_each_queue_fills() -> None:
    state = pauses()
    held = [look(state, 0, leaf2_d1=XOFF)]
    held.append(look(state, 1000, leaf2_d1=XOFF, spine1_leaf2=XOFF))
    held.append(look(state, 2000, leaf2_d1=XOFF, spine1_leaf2=XOFF, leaf1_spine1=XOFF))
    assert [[order.link for order in orders] for orders in held] == [[DOWN], [UP], ["p1-leaf1", "p2-leaf1"]]


def test_a_port_that_has_sent_nothing_since_the_queue_was_empty_is_not_held() -> None:
    state = pauses({LAST: (DOWN, "leaf2-spine1")})
    look(state, 0, {DOWN: 10, "leaf2-spine1": 10})
    orders = look(state, 1000, {DOWN: 11, "leaf2-spine1": 10}, leaf2_d1=XOFF)
    assert [order.link for order in orders] == [DOWN]


def test_a_port_that_begins_to_send_into_a_full_queue_is_held_then() -> None:
    state = pauses({LAST: (DOWN, "leaf2-spine1")})
    look(state, 0, {DOWN: 10, "leaf2-spine1": 10})
    look(state, 1000, {DOWN: 11, "leaf2-spine1": 10}, leaf2_d1=XOFF)
    assert look(state, 2000, {DOWN: 11, "leaf2-spine1": 10}, leaf2_d1=XOFF) == []
    orders = look(state, 3000, {DOWN: 11, "leaf2-spine1": 12}, leaf2_d1=XOFF)
    assert orders == [Order(5000, "leaf2-spine1", LAST, held=True)]


def test_each_queue_lets_go_of_what_it_holds_only() -> None:
    state = pauses({LAST: (DOWN,), "leaf2-spine1": (DOWN,)})
    look(state, 0, leaf2_d1=XOFF, leaf2_spine1=XOFF)
    assert look(state, 1000, leaf2_d1=0, leaf2_spine1=XOFF) == [Order(3000, DOWN, LAST, held=False)]


# ---- when to look ---------------------------------------------------------------------


def next_look(state: Pauses, **backlogs: int) -> int:
    named = {name.replace("_", "-"): value for name, value in backlogs.items()}
    return state.next_look_ns(0, {link: named.get(link, 0) for link in state.watched})


def test_the_next_look_comes_before_any_queue_can_be_at_xoff() -> None:
    big = PausePoint(LAST, 1_000_000, 500_000, 0, (DOWN,))
    state = Pauses(replace(PLAN, pausing=Pausing((big,), 1)))
    # 200 Gbit/s in and 100 out fill 12.5 bytes in a nanosecond.
    assert next_look(state, leaf2_d1=500_000) == 40_000
    assert next_look(state, leaf2_d1=875_000) == 10_000
    assert next_look(state, leaf2_d1=999_999) == 1_000
    assert next_look(state, leaf2_d1=0) == 50_000


def test_a_held_port_does_not_drain() -> None:
    points = (PausePoint(LAST, 1_000_000, 1, 0, (DOWN,)), PausePoint(DOWN, 1_000_000, 1, 0, (UP,)))
    state = Pauses(replace(PLAN, pausing=Pausing(points, 1)))
    assert next_look(state, spine1_leaf2=900_000) == 50_000  # as much out as in
    look(state, 0, leaf2_d1=1_000_000)
    assert next_look(state, leaf2_d1=1, spine1_leaf2=900_000) == 1_000
    assert next_look(state, leaf2_d1=200_000, spine1_leaf2=900_000) == 4_000  # 100 kB at 200 Gbit/s


# ---- circles --------------------------------------------------------------------------

CIRCLE = {UP: ("spine1-leaf1",), "spine1-leaf1": (UP,), LAST: (DOWN,)}


def test_ports_that_hold_each_other_are_a_circle() -> None:
    state = pauses(CIRCLE)
    look(state, 0, leaf1_spine1=XOFF, leaf2_d1=XOFF)
    assert state.circle() == ()
    look(state, 1000, leaf1_spine1=XOFF, leaf2_d1=XOFF, spine1_leaf1=XOFF)
    assert state.circle() == (UP, "spine1-leaf1")


def test_a_circle_is_a_deadlock_when_it_lasts() -> None:
    state = pauses(CIRCLE)
    look(state, 7000, leaf1_spine1=XOFF, spine1_leaf1=XOFF)
    look(state, 1_006_999, leaf1_spine1=XOFF, spine1_leaf1=XOFF)
    assert state.deadlock(1_006_999) == ()
    assert state.deadlock(1_007_000) == (UP, "spine1-leaf1")


def test_a_circle_that_opens_is_none() -> None:
    state = pauses(CIRCLE)
    look(state, 0, leaf1_spine1=XOFF, spine1_leaf1=XOFF)
    look(state, 1000, leaf1_spine1=XON, spine1_leaf1=XOFF)
    look(state, 2000, leaf1_spine1=XOFF, spine1_leaf1=XOFF)
    assert state.deadlock(1_001_000) == ()
    assert state.deadlock(1_002_000) == (UP, "spine1-leaf1")


def test_a_circle_is_found_behind_ports_that_also_wait_for_others() -> None:
    filled_by = {
        UP: ("spine1-leaf1",),
        DOWN: (UP,),
        "leaf2-spine1": (DOWN, UP),
        "spine1-leaf1": ("leaf2-spine1",),
    }
    state = pauses(filled_by)
    look(state, 0, leaf1_spine1=XOFF, spine1_leaf2=XOFF, leaf2_spine1=XOFF, spine1_leaf1=XOFF)
    # leaf1-spine1 is held by spine1-leaf2 and by leaf2-spine1; either way leads round.
    circle = state.circle()
    assert set(circle) <= set(filled_by)
    for name, by in zip(circle, (*circle[1:], circle[0]), strict=True):
        assert name in filled_by[by]
    assert len(circle) >= 3


@pytest.mark.parametrize("chain", [{LAST: (DOWN,), DOWN: (UP,), UP: ("p1-leaf1",)}])
def test_a_chain_is_no_circle(chain: Mapping[str, tuple[str, ...]]) -> None:
    state = pauses(chain)
    look(state, 0, leaf2_d1=XOFF, spine1_leaf2=XOFF, leaf1_spine1=XOFF)
    assert state.circle() == ()
