"""Quantities as people write them (`100gbit`, `20us`, `64mib`) and as the code holds them (integers).

Rates are bits per second, durations nanoseconds, sizes bytes. A number without a unit is refused, and
so is one that is no whole number of the base unit. Ranges are the caller's business: the scenario's
models and the expectations come here. So do the command lines, with their whole numbers.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable, Mapping
from fractions import Fraction

RATE_UNITS: Mapping[str, int] = {
    "bit": 1,
    "kbit": 10**3,
    "mbit": 10**6,
    "gbit": 10**9,
    "tbit": 10**12,
}
"""Bits per second in one of each unit."""

DURATION_UNITS: Mapping[str, int] = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
}
"""Nanoseconds in one of each unit."""

SIZE_UNITS: Mapping[str, int] = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
"""Bytes in one of each unit: `kb` is 1000, `kib` 1024."""

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_NUMBER_ONLY = re.compile(rf"[-+]?{_NUMBER}(?:[eE][-+]?[0-9]+)?")
_QUANTITY = re.compile(rf"(-?{_NUMBER}) ?([A-Za-z]+)")
_LONGEST = 40


def parse_rate(text: str) -> int:
    """Return bits per second of a text such as `100gbit`; ValueError says what is wrong with it."""
    return _parse(text, RATE_UNITS, "100gbit")


def parse_duration(text: str) -> int:
    """Return nanoseconds of a text such as `20us`; ValueError says what is wrong with it."""
    return _parse(text, DURATION_UNITS, "20us")


def parse_bytes(text: str) -> int:
    """Return bytes of a text such as `64mib`; ValueError says what is wrong with it."""
    return _parse(text, SIZE_UNITS, "64mib")


def format_rate(rate_bps: int) -> str:
    """Return the shortest exact text of a rate, such as `2.5gbit`; `parse_rate` reads it back."""
    return _format(rate_bps, ("tbit", "gbit", "mbit", "kbit"), RATE_UNITS, "bit")


def format_duration(duration_ns: int) -> str:
    """Return the shortest exact text of a duration, such as `1.5ms`; `parse_duration` reads it back."""
    return _format(duration_ns, ("s", "ms", "us"), DURATION_UNITS, "ns")


def format_bytes(size_bytes: int) -> str:
    """Return the shortest exact text of a size: binary units where they are whole, else decimal ones.

    `parse_bytes` reads it back.
    """
    for unit in ("tib", "gib", "mib", "kib"):
        if size_bytes and size_bytes % SIZE_UNITS[unit] == 0:
            return f"{size_bytes // SIZE_UNITS[unit]}{unit}"
    return _format(size_bytes, ("tb", "gb", "mb", "kb"), SIZE_UNITS, "b")


def _parse(text: str, units: Mapping[str, int], example: str) -> int:
    if len(text) > _LONGEST:
        raise ValueError("is too long for a quantity")
    if _NUMBER_ONLY.fullmatch(text):
        raise ValueError(f"has no unit; write a number with one of {', '.join(units)}, as in {example}")
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"is no quantity; write a number and one of {', '.join(units)}, as in {example}")
    number, unit = match[1], match[2]
    if number.startswith("-"):
        raise ValueError("is negative")
    if unit not in units:
        raise ValueError(_unknown_unit(unit, units))
    value = Fraction(number) * units[unit]
    if value.denominator != 1:
        raise ValueError(f"is no whole number of {_base(units)}")
    return int(value)


def _unknown_unit(unit: str, units: Mapping[str, int]) -> str:
    near = difflib.get_close_matches(unit.lower(), units, 1, 0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"has the unknown unit {unit!r}; the units are {', '.join(units)}{hint}"


def _base(units: Mapping[str, int]) -> str:
    return {"bit": "bits per second", "ns": "nanoseconds", "b": "bytes"}[next(iter(units))]


def _format(value: int, larger: tuple[str, ...], units: Mapping[str, int], base: str) -> str:
    for unit in larger:
        # Up to three decimals keep the text readable; anything finer goes to the next smaller unit.
        thousandths, rest = divmod(value * 1000, units[unit])
        if value >= units[unit] and rest == 0:
            whole, decimals = divmod(thousandths, 1000)
            return f"{whole}.{decimals:03}".rstrip("0").rstrip(".") + unit
    return f"{value}{base}"


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return what reads a whole number of a command line, from `least` to `most` (None: any).

    What it returns raises argparse.ArgumentTypeError for anything else.
    """
    wanted = f"from {least} on" if most is None else f"from {least} to {most}"

    def read(text: str) -> int:
        value = int(text) if text.isascii() and text.isdigit() else least - 1
        if value < least or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number {wanted}")
        return value

    return read
