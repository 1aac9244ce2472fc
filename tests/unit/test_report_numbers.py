"""Numbers on the page: sensible units, few digits; axes: round ticks, labels apart."""

from __future__ import annotations

import pytest

from testbed.report import axes, numbers

NBSP = "\N{NO-BREAK SPACE}"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "n/a"),
        (0, "0 B"),
        (999, "999 B"),
        (999.9, "1 kB"),
        (4214, "4.21 kB"),
        (400_000, "400 kB"),
        (536_870_912, "537 MB"),
        (10**19, "10000 PB"),
    ],
)
def test_bytes(count: float | None, text: str) -> None:
    assert numbers.format_bytes(count) == text.replace(" ", NBSP)


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [(43.6712, "43.7 ms"), (0.8204, "820 \N{MICRO SIGN}s"), (12_345, "12.3 s"), (0, "0 ns"), (None, "n/a")],
)
def test_durations(duration_ms: float | None, text: str) -> None:
    assert numbers.format_ms(duration_ms) == text.replace(" ", NBSP)


def test_a_rate() -> None:
    assert numbers.format_rate(100_000_000_000) == f"100{NBSP}Gbit/s"


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.0, "0 %"),
        (0.0004, "<0.1 %"),
        (0.033, "3.3 %"),
        (0.03, "3 %"),
        (0.271, "27 %"),
        (0.9912, "99.1 %"),
        (0.99999, "99.9 %"),
        (1.0, "100 %"),
        (1.07, "107 %"),
        (None, "n/a"),
    ],
)
def test_percent_never_rounds_to_nothing_or_to_all(fraction: float | None, text: str) -> None:
    assert numbers.format_percent(fraction) == text.replace(" ", NBSP)


@pytest.mark.parametrize(("factor", "text"), [(1.0, "1.00"), (7.979, "7.98"), (12.34, "12.3"), (None, "n/a")])
def test_factors(factor: float | None, text: str) -> None:
    assert numbers.format_factor(factor) == text


def test_a_count_has_its_thousands_apart() -> None:
    assert numbers.format_count(1234567) == "1,234,567"


def test_ticks_are_round_and_few() -> None:
    assert axes.round_ticks(-0.9, 45.2, 7) == [0, 10, 20, 30, 40]
    assert axes.round_ticks(0, 420_000, 5) == [0, 200_000, 400_000]
    assert axes.round_ticks(5, 5, 7) == [5]


def test_time_labels_share_one_unit() -> None:
    labels = axes.time_labels(-200_000, 11_100_000, 7)
    assert [text for text, _ in labels] == ["0 ms", "2 ms", "4 ms", "6 ms", "8 ms", "10 ms"]
    assert labels[0][1] == pytest.approx(200_000 / 11_300_000)


def test_labels_move_apart_and_stay_inside() -> None:
    assert axes.spread([0, 2, 4, 90], 10, 0, 100) == [0, 10, 20, 90]
    assert axes.spread([95, 98, 99], 10, 0, 100) == [80, 90, 100]
