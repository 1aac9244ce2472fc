"""Evaluate expectations against the summary of a run: a pure function of both, nothing is executed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.scenario.expectation import Expectation, parse_expectation
from testbed.scenario.expression import Key, Operation, Term
from testbed.scenario.problems import nearest

_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
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
    text, op = expectation.text, expectation.op
    try:
        right = _value(expectation.right, summary)
    except LookupError as error:
        return Result(text, f"{op} ?", str(error.args[0]), False)
    expected = f"{op} {_shown(right)}"
    try:
        left = _value(expectation.left, summary)
    except LookupError as error:
        return Result(text, expected, str(error.args[0]), False)
    return Result(text, expected, _shown(left), _holds(left, op, right))


def _value(term: Term, summary: Mapping[str, Any]) -> Any:
    """Return what a term comes to. LookupError says which of its keys is missing or no number."""
    if isinstance(term, Key):
        return _look_up(summary, term.keys)
    if not isinstance(term, Operation):
        return term.value
    left, right = _number(term.left, summary), _number(term.right, summary)
    if term.op == "/" and right == 0:
        raise LookupError("it divides by 0")
    return _ARITHMETIC[term.op](left, right)


def _number(term: Term, summary: Mapping[str, Any]) -> float:
    value = _value(term, summary)
    if not _is_number(value):
        name = str(term) if isinstance(term, Key) else "a part of it"
        raise LookupError(f"{name} is {_shown(value)}, which is no number")
    return float(value)


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


def _holds(value: Any, op: str, other: Any) -> bool:
    if op in _ORDERS:
        return _is_number(value) and _is_number(other) and _ORDERS[op](value, other)
    return _equal(value, other) == (op == "==")


def _equal(value: Any, other: Any) -> bool:
    # True equals 1 in Python; a summary that says true does not say 1.
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    return bool(value == other)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:.15g}" if isinstance(value, float) else str(value)
