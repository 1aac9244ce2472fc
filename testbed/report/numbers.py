"""Quantities as a reader wants them: few digits and a unit that fits.

Formats only, the other direction of `testbed.units`: nothing here is ever read back. Called by the modules
that make the report's page.
"""

from __future__ import annotations

import math

NOTHING = "n/a"
"""What stands in the place of a number that the run did not yield."""

UNIT_SPACE = "\N{NO-BREAK SPACE}"
"""Between a number and its unit, which belong on one line."""

_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_RATE_UNITS = ("bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s")
_TIME_UNITS = ("ns", "\N{MICRO SIGN}s", "ms", "s")


def significant(value: float, digits: int = 3) -> str:
    """Return `value` with so many significant digits and without an exponent; whole digits are kept."""
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    places = max(0, digits - 1 - magnitude)
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_bytes(count: float | None) -> str:
    """Return bytes in decimal units (1 kB = 1000 B), as the queue limits of a scenario are meant."""
    return _in_units(count, _BYTE_UNITS)


def format_rate(bits_per_s: float | None) -> str:
    """Return a rate in bits per second with its decimal prefix."""
    return _in_units(bits_per_s, _RATE_UNITS)


def format_ns(duration_ns: float | None) -> str:
    """Return a duration given in nanoseconds, in ns, us, ms or s."""
    return _in_units(duration_ns, _TIME_UNITS)


def format_ms(duration_ms: float | None) -> str:
    """Return a duration given in milliseconds, in ns, us, ms or s."""
    return format_ns(None if duration_ms is None else duration_ms * 1e6)


def format_percent(fraction: float | None) -> str:
    """Return a fraction in percent; what is not nothing never reads 0 %, what is not all never 100 %."""
    if fraction is None:
        return NOTHING
    percent = fraction * 100
    if 0 < percent < 0.1:
        return f"<0.1{UNIT_SPACE}%"
    if percent < 10 or 99 < percent < 100:
        text = f"{min(percent, 99.9) if percent < 100 else percent:.1f}".removesuffix(".0")
        return f"{text}{UNIT_SPACE}%"
    return f"{percent:.0f}{UNIT_SPACE}%"


def format_count(count: float | None) -> str:
    """Return a whole number with its thousands set apart."""
    return NOTHING if count is None else f"{count:,.0f}"


def format_factor(factor: float | None) -> str:
    """Return a ratio such as a slowdown: two decimals below 10, three significant digits from there."""
    if factor is None:
        return NOTHING
    return f"{factor:.2f}" if factor < 10 else significant(factor)


def _in_units(value: float | None, units: tuple[str, ...]) -> str:
    """Scale `value` by thousands to the unit in which its rounded figure is below 1000."""
    if value is None:
        return NOTHING
    for unit in units[:-1]:
        if abs(float(significant(value))) < 1000:
            return f"{significant(value)}{UNIT_SPACE}{unit}"
        value /= 1000
    return f"{significant(value)}{UNIT_SPACE}{units[-1]}"
