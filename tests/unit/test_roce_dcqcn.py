"""DCQCN from scripted notifications."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from traffic.roce.dcqcn import SETS, NotificationPoint, ReactionPoint
from traffic.roce.rate import NEVER_NS, FixedRate

US = 1_000
LINE = 40e9
PAPER = SETS["paper"].parameters
G = 1 / 256


def notified(*moments_us: float, name: str = "paper") -> ReactionPoint:
    point = ReactionPoint(SETS[name].on(int(LINE)), LINE)
    for moment in moments_us:
        point.on_cnp(int(moment * US))
    return point


def test_nothing_moves_before_the_first_notification() -> None:
    point = notified()
    point.on_sent(100_000_000, 0)
    point.advance(10**9)
    assert (point.rate_bps, point.next_change_ns) == (LINE, NEVER_NS)


def test_the_first_notification_halves_the_rate() -> None:
    point = notified(10)
    assert (point.rate_bps, point.target_bps, point.alpha) == (LINE / 2, LINE, 1.0)


def test_alpha_decays_every_timer_without_a_notification() -> None:
    point = notified(0)
    point.advance(54 * US)
    assert point.alpha == 1.0
    point.advance(55 * US)
    assert point.alpha == 1 - G
    point.advance(550 * US)
    assert point.alpha == pytest.approx((1 - G) ** 10)


def test_the_cut_is_by_alpha_before_the_notification_raises_it() -> None:
    point = notified(0)
    point.advance(550 * US)
    alpha, rate = point.alpha, point.rate_bps
    point.on_cnp(551 * US)
    assert point.target_bps == rate
    assert point.rate_bps == pytest.approx(rate * (1 - alpha / 2))
    assert point.alpha == pytest.approx((1 - G) * alpha + G)
    # Alpha's timer starts anew.
    point.advance(605 * US)
    assert point.alpha == pytest.approx((1 - G) * alpha + G)
    point.advance(606 * US)
    assert point.alpha == pytest.approx((1 - G) * ((1 - G) * alpha + G))


def test_five_increases_go_half_way_back_and_then_the_target_rises() -> None:
    point = notified(0)
    for number in range(1, 6):
        point.advance(55 * number * US)
        assert point.rate_bps == pytest.approx(LINE - LINE / 2 ** (number + 1))
        assert point.target_bps == LINE
    # From a rate with room above it the target rises by one additive step.
    point.on_cnp(300 * US)
    target = point.target_bps
    point.advance(300 * US + 6 * 55 * US)
    assert point.target_bps == pytest.approx(target + 40e6)


def test_the_byte_counter_counts_like_the_timer_and_a_cut_starts_it_anew() -> None:
    point = notified(0)
    point.on_sent(9_999_999, 1)
    assert point.rate_bps == LINE / 2
    point.on_sent(1, 1)
    assert point.rate_bps == LINE * 3 / 4
    point.on_sent(9_999_999, 1)
    point.on_cnp(2)
    point.on_sent(1, 3)
    assert point.rate_bps == point.target_bps / 2


def test_hyper_increase_begins_when_both_counters_are_past_recovery() -> None:
    point = notified(0, 1, 2, 3)
    target = point.target_bps
    point.advance(3 * US + 6 * 55 * US)
    assert point.target_bps == pytest.approx(target + 40e6)
    for _ in range(5):
        point.on_sent(10_000_000, 400 * US)
    assert point.target_bps == pytest.approx(target + 6 * 40e6)
    point.on_sent(10_000_000, 400 * US)
    assert point.target_bps == pytest.approx(target + 6 * 40e6 + 200e6)


def test_the_rate_stays_between_the_lowest_and_the_line() -> None:
    point = notified(*range(100))
    assert point.rate_bps == PAPER.min_rate_bps
    point.advance(10**10)
    assert point.rate_bps == pytest.approx(LINE)
    assert point.rate_bps <= LINE


# ---- sets that sample ------------------------------------------------------------------


def test_a_sampled_rate_is_cut_once_in_the_interval_and_late_notifications_wait() -> None:
    point = notified(10, 11, 12, name="hpcc")
    assert point.rate_bps == LINE / 2
    assert point.next_change_ns == 14 * US
    point.advance(14 * US)
    cut = point.rate_bps
    assert LINE / 4 < cut < LINE / 4 * 1.01
    point.advance(18 * US)
    assert point.rate_bps == cut


def test_a_sampled_alpha_rises_in_a_period_with_a_notification_and_falls_in_one_without() -> None:
    point = notified(10, name="hpcc")
    point.advance(11 * US)
    assert point.alpha == 1.0
    point.advance(13 * US)
    assert point.alpha == pytest.approx((1 - G) ** 2)
    point.on_cnp(int(13.5 * US))
    before = point.alpha
    point.on_cnp(int(13.6 * US))
    assert point.alpha == before
    point.advance(14 * US)
    assert point.alpha == pytest.approx(before + G * (1 - before))


def test_many_periods_at_once_are_as_many_one_by_one() -> None:
    whole, steps = notified(10, name="hpcc"), notified(10, name="hpcc")
    for moment in range(11, 1000):
        steps.advance(moment * US)
    whole.advance(999 * US)
    assert whole.alpha == pytest.approx(steps.alpha)
    assert whole.rate_bps == pytest.approx(steps.rate_bps)


def test_a_set_without_a_byte_counter_takes_one_additive_step_and_then_hyper_steps() -> None:
    point = notified(0, 10, 20, name="hpcc")
    target = point.target_bps
    steps = []
    for number in range(1, 5):
        point.advance((20 + 300 * number) * US)
        steps.append(round((point.target_bps - target) / 1e6))
        target = point.target_bps
    assert steps == [0, 8, 80, 80]


def test_sets_in_proportion_to_the_rate() -> None:
    assert SETS["hpcc"].on(100_000_000_000).additive_bps == 20_000_000
    assert SETS["connectx"].on(100_000_000_000) == SETS["connectx"].parameters
    assert SETS["paper"].on(1_000_000_000) == PAPER


def test_an_unknown_order_of_events_never_leaves_the_range() -> None:
    draw = random.Random(1)
    for name, item in SETS.items():
        point, now = ReactionPoint(item.on(int(LINE)), LINE), 0
        for _ in range(2000):
            now += draw.randrange(100_000)
            (point.on_cnp if draw.random() < 0.4 else point.advance)(now)
            point.on_sent(4160, now)
            assert item.parameters.min_rate_bps <= point.rate_bps <= LINE, name
            assert 0 <= point.alpha <= 1


# ---- the receiver, and no control at all ----------------------------------------------


def test_notifications_are_an_interval_apart() -> None:
    point = NotificationPoint(50 * US)
    sent = [moment for moment in range(200) if point.on_ce(moment * US)]
    assert sent == [0, 50, 100, 150]


def test_a_fixed_rate_is_fixed() -> None:
    rate = FixedRate(1e9)
    rate.on_cnp(5)
    rate.on_sent(10**9, 6)
    rate.advance(10**12)
    assert (rate.rate_bps, rate.next_change_ns) == (1e9, NEVER_NS)


def test_slowed_times_give_the_same_rates_slower() -> None:
    k = 100
    slow = replace(
        PAPER,
        cnp_interval_ns=PAPER.cnp_interval_ns * k,
        alpha_timer_ns=PAPER.alpha_timer_ns * k,
        rate_timer_ns=PAPER.rate_timer_ns * k,
        additive_bps=PAPER.additive_bps // k,
        hyper_bps=PAPER.hyper_bps // k,
        min_rate_bps=PAPER.min_rate_bps // k,
    )
    one, other = ReactionPoint(PAPER, LINE), ReactionPoint(slow, LINE / k)
    for moment in (0, 70, 400, 1000, 1050, 3000):
        one.on_cnp(moment * US)
        other.on_cnp(moment * US * k)
        assert other.rate_bps * k == pytest.approx(one.rate_bps)
