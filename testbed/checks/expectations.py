"""Evaluate expectations against the summary of a run: a pure function of both, nothing is executed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.scenario.expectation import Expectation, Literal, parse_expectation
from testbed.scenario.problems import nearest

_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Result:
    """One expectation held against a summary, as texts for a table; `ok` tells whether it holds."""

    expectation: str
    expected: str
    measured: str
    ok: bool


def evaluate(expectations: Iterable[str | Expectation], summary: Mapping[str, Any]) -> list[Result]:
    """Return one result for each expectation, in order. ValueError for a text that is none.

    A path that the summary does not have, or that leads to a mapping, is a failed result that says so.
    """
    parsed = (parse_expectation(item) if isinstance(item, str) else item for item in expectations)
    return [_evaluate(expectation, summary) for expectation in parsed]


def _evaluate(expectation: Expectation, summary: Mapping[str, Any]) -> Result:
    expected = f"{expectation.op} {_shown(expectation.literal)}"
    try:
        value = _look_up(summary, expectation.path)
    except LookupError as error:
        return Result(expectation.text, expected, str(error.args[0]), False)
    ok = _holds(value, expectation.op, expectation.literal)
    return Result(expectation.text, expected, _shown(value), ok)


def _look_up(summary: Mapping[str, Any], path: Sequence[str]) -> Any:
    value: Any = summary
    for depth, key in enumerate(path):
        above = ".".join(path[:depth]) or "the summary"
        if not isinstance(value, Mapping):
            raise LookupError(f"{above} is {_shown(value)} and has no key {key!r}")
        if key not in value:
            raise LookupError(f"{above} has no key {key!r}{nearest(key, [str(name) for name in value])}")
        value = value[key]
    if isinstance(value, (Mapping, list)):
        raise LookupError(f"{'.'.join(path)} is not a single value{_keys(value)}")
    return value


def _keys(value: Any) -> str:
    return f"; its keys are {', '.join(map(str, value))}" if isinstance(value, Mapping) else ""


def _holds(value: Any, op: str, literal: Literal) -> bool:
    if op in _ORDERS:
        return _is_number(value) and _ORDERS[op](value, literal)
    return _equal(value, literal) == (op == "==")


def _equal(value: Any, literal: Literal) -> bool:
    # True equals 1 in Python; a summary that says true does not say 1.
    if isinstance(value, bool) or isinstance(literal, bool):
        return value is literal
    return bool(value == literal)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:.15g}" if isinstance(value, float) else str(value)
