"""What a section of the bench yields: figures, each with its command, and what is said of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from testbed.report.numbers import significant


@dataclass(frozen=True)
class Figure:
    """One measured quantity. `samples` has a value for each run, in `unit`; the median is what counts.

    A ratio's samples are ratios, each of two values taken in one run. `command` is what a person types
    for the same; `aim` what it is to be, in words, where there is such a thing.
    """

    what: str
    samples: tuple[float, ...]
    unit: str
    command: str
    aim: str = ""

    @property
    def median(self) -> float:
        """The middle one of the samples."""
        return statistics.median(self.samples)

    @property
    def shown(self) -> str:
        """The median with its unit, for a person."""
        return f"{_digits(self.median)} {self.unit}".rstrip()

    @property
    def spread(self) -> str:
        """The least and the greatest sample and how many there are; of a single one, nothing."""
        if len(self.samples) < 2:
            return ""
        return f"{_digits(min(self.samples))} to {_digits(max(self.samples))}, {len(self.samples)} runs"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else significant(value)


@dataclass(frozen=True)
class Found:
    """A section that has been measured: its figures, and paragraphs in Markdown that go before them."""

    figures: tuple[Figure, ...]
    prose: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"prose": self.prose, "figures": [asdict(figure) for figure in self.figures]}


def from_json(found: Mapping[str, Any]) -> Found:
    """Return what `Found.as_json` made."""
    return Found(tuple(_figure(fields) for fields in found["figures"]), found["prose"])


def _figure(fields: Mapping[str, Any]) -> Figure:
    return Figure(**{**fields, "samples": tuple(fields["samples"])})


def ratios(above: Sequence[float], below: Sequence[float]) -> tuple[float, ...]:
    """Return one quotient for each run; both have a value for each, in the order of the runs."""
    return tuple(up / down for up, down in zip(above, below, strict=True))
