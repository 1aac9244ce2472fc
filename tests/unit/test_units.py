"""Quantities: every unit, exact integers, exact refusals, and formats that read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import units


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [
        ("9bit", 9),
        ("56kbit", 56_000),
        ("1.5mbit", 1_500_000),
        ("100gbit", 100_000_000_000),
        ("1tbit", 10**12),
        ("0gbit", 0),
        ("25 gbit", 25_000_000_000),
    ],
)
def test_rate(text: str, rate_bps: int) -> None:
    assert units.parse_rate(text) == rate_bps


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [("7ns", 7), ("0us", 0), ("0.5us", 500), ("20us", 20_000), ("1ms", 10**6), ("1.5s", 1_500_000_000)]
    + [("2min", 120 * 10**9)],
)
def test_duration(text: str, duration_ns: int) -> None:
    assert units.parse_duration(text) == duration_ns


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("1b", 1), ("100kb", 100_000), ("100kib", 102_400), ("8mb", 8_000_000), ("64mib", 67_108_864)]
    + [("1.5kib", 1536), ("0.001kb", 1), ("2gb", 2 * 10**9), ("1gib", 2**30), ("1tb", 10**12)]
    + [("1tib", 2**40)],
)
def test_bytes(text: str, size_bytes: int) -> None:
    assert units.parse_bytes(text) == size_bytes


UNITS = "bit, kbit, mbit, gbit, tbit"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("100", "has no unit; write a number with one of bit, kbit, mbit, gbit, tbit, as in 100gbit"),
        ("0", "has no unit; write a number with one of bit, kbit, mbit, gbit, tbit, as in 100gbit"),
        ("1e7", "has no unit; write a number with one of bit, kbit, mbit, gbit, tbit, as in 100gbit"),
        ("fast", "is no quantity; write a number and one of bit, kbit, mbit, gbit, tbit, as in 100gbit"),
        ("", "is no quantity; write a number and one of bit, kbit, mbit, gbit, tbit, as in 100gbit"),
        ("1:30", "is no quantity; write a number and one of bit, kbit, mbit, gbit, tbit, as in 100gbit"),
        ("١gbit", "is no quantity; write a number and one of bit, kbit, mbit, gbit, tbit, as in 100gbit"),
        ("-1gbit", "is negative"),
        ("0.1bit", "is no whole number of bits per second"),
        ("1gbps", f"has the unknown unit 'gbps'; the units are {UNITS}; did you mean 'gbit'?"),
        ("1Gbit", f"has the unknown unit 'Gbit'; the units are {UNITS}; did you mean 'gbit'?"),
        ("1parsec", "has the unknown unit 'parsec'; the units are bit, kbit, mbit, gbit, tbit"),
        ("9" * 41, "is too long for a quantity"),
    ],
)
def test_refused_rate(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        units.parse_rate(text)
    assert str(caught.value) == message


def test_fractions_of_the_base_unit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^is no whole number of nanoseconds$"):
        units.parse_duration("0.0001us")
    with pytest.raises(ValueError, match=r"^is no whole number of bytes$"):
        units.parse_bytes("0.3kib")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (units.format_rate(2_500_000_000), "2.5gbit"),
        (units.format_rate(0), "0bit"),
        (units.format_rate(33_333_333_333), "33333333.333kbit"),
        (units.format_duration(1_500_000), "1.5ms"),
        (units.format_duration(20_000), "20us"),
        (units.format_bytes(67_108_864), "64mib"),
        (units.format_bytes(100_000), "100kb"),
        (units.format_bytes(4_200), "4.2kb"),
        (units.format_bytes(0), "0b"),
    ],
)
def test_format(written: str, expected: str) -> None:
    assert written == expected


@given(st.integers(min_value=0, max_value=10**15))
def test_formats_read_back(value: int) -> None:
    assert units.parse_rate(units.format_rate(value)) == value
    assert units.parse_duration(units.format_duration(value)) == value
    assert units.parse_bytes(units.format_bytes(value)) == value
