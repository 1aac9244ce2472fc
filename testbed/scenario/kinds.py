"""The kinds of value a scenario's keys take: how each is read from its text, and what is allowed.

A scenario's scalars reach these classes as the text that stands in the file, so nothing YAML makes of
`1:30`, `010`, `1e7` or `on` can slip in. A kind is put on a field as `Annotated[int, Rate(...)]`:
pydantic calls it, and the reference table is generated from the same object. It knows nothing of files
and places; `testbed.scenario.problems` adds those.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from testbed import units
from testbed.scenario.expectation import parse_expectation
from testbed.scenario.rails import PRESETS, RailPreset

REFUSED = "refused"
"""The pydantic error type of every refusal here; its context holds `wrong`, `allowed` and `options`."""


class Refusal(Exception):
    """A text that is no value of a kind: what is `wrong` with it, and the `options` for a nearest name."""

    def __init__(self, wrong: str, allowed: str = "", options: tuple[str, ...] = ()) -> None:
        super().__init__(wrong)
        self.wrong, self.allowed, self.options = wrong, allowed, options


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Base of all kinds. `optional` lets a key be left out or written as null."""

    optional: bool = False
    type_name: ClassVar[str] = "text"

    def allowed(self) -> str:
        """Return what the key takes, as one short phrase."""
        raise NotImplementedError

    def read(self, text: str) -> object:
        """Return the value of `text`; raises Refusal."""
        raise NotImplementedError

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def _validate(self, value: object) -> object:
        try:
            return self._read_any(value)
        except Refusal as refusal:
            context = {
                "wrong": refusal.wrong,
                "allowed": refusal.allowed or self.allowed(),
                "options": refusal.options,
            }
            raise PydanticCustomError(REFUSED, "{wrong}", context) from None

    def _read_any(self, value: object) -> object:
        if value is None:
            if self.optional:
                return None
            raise Refusal("is empty")
        if isinstance(value, str):
            return self.read(value)
        raise Refusal("is not a single value")


@dataclass(frozen=True)
class _Quantity(Kind):
    """A number with a unit, within [low, high]; both written as in a scenario."""

    low: str
    high: str

    @staticmethod
    def parse(text: str) -> int:
        """Return `text` in the base unit; ValueError."""
        raise NotImplementedError

    def allowed(self) -> str:
        return f"{self.low} to {self.high}"

    def read(self, text: str) -> int:
        try:
            value = self.parse(text)
        except ValueError as error:
            wrong, _, advice = str(error).partition("; ")
            raise Refusal(wrong, advice) from None
        if not self.parse(self.low) <= value <= self.parse(self.high):
            raise Refusal("is out of range")
        return value


@dataclass(frozen=True)
class Rate(_Quantity):
    """Bits per second."""

    type_name = "rate"
    parse = staticmethod(units.parse_rate)


@dataclass(frozen=True)
class Duration(_Quantity):
    """Nanoseconds."""

    type_name = "duration"
    parse = staticmethod(units.parse_duration)


@dataclass(frozen=True)
class Size(_Quantity):
    """Bytes."""

    type_name = "size"
    parse = staticmethod(units.parse_bytes)


@dataclass(frozen=True)
class Whole(Kind):
    """A whole number within [low, high]."""

    low: int
    high: int
    type_name = "whole number"

    def allowed(self) -> str:
        return f"{self.low} to {self.high}"

    def read(self, text: str) -> int:
        if re.fullmatch(r"0[0-9]+", text):
            raise Refusal("has a leading zero", f"a whole number, {self.allowed()}")
        if not re.fullmatch(r"-?[0-9]{1,18}", text):
            raise Refusal("is no whole number", f"a whole number, {self.allowed()}")
        if not self.low <= int(text) <= self.high:
            raise Refusal("is out of range")
        return int(text)


@dataclass(frozen=True)
class Number(Kind):
    """A decimal number from `low` (itself excluded where `above` is set) to `high`."""

    low: float
    high: float
    above: bool = False
    type_name = "number"

    def allowed(self) -> str:
        return f"{'above ' if self.above else ''}{self.low:g} to {self.high:.15g}"

    def read(self, text: str) -> float:
        if not re.fullmatch(r"-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?", text):
            raise Refusal("is no number", f"a number, {self.allowed()}")
        value = float(text)
        if not self.low <= value <= self.high or (self.above and value == self.low):
            raise Refusal("is out of range")
        return value


@dataclass(frozen=True)
class Factor(Number):
    """A number as `Number` has it, which may be written as a fraction, `1/1000`."""

    type_name = "number or fraction"

    def read(self, text: str) -> float:
        match = re.fullmatch(r"([0-9]{1,15})/([0-9]{1,15})", text)
        if match is None or int(match[2]) == 0:
            return super().read(text)
        value = int(match[1]) / int(match[2])
        if not self.low <= value <= self.high or (self.above and value == self.low):
            raise Refusal("is out of range")
        return value


@dataclass(frozen=True)
class Choice(Kind):
    """One of a few words; `values` maps each to its meaning (which may be empty)."""

    values: Mapping[str, str]
    type_name = "word"

    def allowed(self) -> str:
        return ", ".join(self.values)

    def read(self, text: str) -> str:
        if text not in self.values:
            raise Refusal("is not known", f"allowed: {self.allowed()}", tuple(self.values))
        return text


@dataclass(frozen=True)
class Stretch(Kind):
    """The path between a GPU and its NIC: a preset's name, or a rate."""

    type_name = "preset or rate"

    def allowed(self) -> str:
        return f"{', '.join(PRESETS)}, or a rate such as 40gbit"

    def read(self, text: str) -> RailPreset:
        if text in PRESETS:
            return PRESETS[text]
        if not text[:1].isdigit():
            raise Refusal("is no preset", f"allowed: {self.allowed()}", tuple(PRESETS))
        rate_bps = Rate("1mbit", "1tbit").read(text)
        return RailPreset(text, rate_bps, 0, False, "a rate of the scenario's own", "the scenario")


@dataclass(frozen=True)
class Text(Kind):
    """Free text of `shortest` to `longest` characters on one line."""

    shortest: int
    longest: int

    def allowed(self) -> str:
        return f"{self.shortest} to {self.longest} characters"

    def _read_any(self, value: object) -> object:
        # `description:` with nothing behind it is an empty text, where that is allowed.
        if value is None and self.shortest == 0 and not self.optional:
            return ""
        return super()._read_any(value)

    def read(self, text: str) -> str:
        text = " ".join(text.split())
        if not text.isprintable():
            raise Refusal("has characters that cannot be printed")
        if len(text) < self.shortest:
            raise Refusal("is empty")
        if len(text) > self.longest:
            raise Refusal(f"is {len(text)} characters long")
        return text


@dataclass(frozen=True)
class File(Text):
    """The path of a file (or a folder), relative to the scenario file that names it."""

    shortest: int = 1
    longest: int = 1000
    type_name = "path"

    def allowed(self) -> str:
        return "a path, relative to this file"


@dataclass(frozen=True)
class Name(Kind):
    """A text that matches `pattern` as a whole; `rule` says the same in words."""

    pattern: str
    rule: str
    type_name = "name"

    def allowed(self) -> str:
        return self.rule

    def read(self, text: str) -> str:
        if not re.fullmatch(self.pattern, text):
            raise Refusal("is no valid name")
        return text


@dataclass(frozen=True)
class Expression(Kind):
    """An expectation, `path op literal`; kept as its text, parsed here for its errors."""

    type_name = "expectation"

    def allowed(self) -> str:
        return "path op value, as in verdict.segment == dest-leaf"

    def read(self, text: str) -> str:
        if not text.isprintable():
            raise Refusal("has characters that cannot be printed")
        try:
            parse_expectation(text)
        except ValueError as error:
            wrong, _, advice = str(error).partition("; ")
            raise Refusal(wrong, advice) from None
        return text
