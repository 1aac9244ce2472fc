"""The arithmetic of expectations: keys of the summary, numbers, quantities, `+ - * /`, brackets, `ideal`.

Parsed by hand into a small tree, never evaluated as code. Every part has a unit, so that milliseconds are
not compared with bytes. Which keys a summary has is asked elsewhere (`testbed.scenario.rules`). Called by
`testbed.scenario.expectation`; `testbed.checks` gives the tree its values.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from testbed.units import DURATION_UNITS, RATE_UNITS, SIZE_UNITS, parse_bytes, parse_duration, parse_rate

COMPARISONS = ("==", "!=", "<=", ">=", "<", ">")
VALUES = "write a key, a number, a quantity, a word, true, false or null"
NESTED_MAX = 20
IDEAL = "ideal"
"""Stands for what the key on the left would be if every transfer were alone."""

_TOKEN = re.compile(
    r"\s*(?P<token>"
    r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]{1,3}(?![A-Za-z0-9_.-])"
    # Names of links and pairs hold `-` and `->`: a minus stands between spaces, or before a number.
    r"|[A-Za-z0-9_.](?:[A-Za-z0-9_.]|->|-(?=[A-Za-z0-9_]))*"
    r"|'[^']*'|\"[^\"]*\""
    r"|==|!=|<=|>=|[-+*/()<>=]"
    r")"
)
_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")
_QUANTITY = re.compile(r"[0-9.]+[A-Za-z]+")
_KEY = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]|->)*"
_PATH = re.compile(rf"{_KEY}(?:\.{_KEY})*")
_ALL_UNITS = {**SIZE_UNITS, **DURATION_UNITS, **RATE_UNITS}
_NS_PER_MS = 1_000_000
_WORDS = {"bytes": "in bytes", "ms": "in milliseconds", "bps": "in bits per second", "": "without a unit"}


@dataclass(frozen=True)
class Constant:
    """A number; `unit` is that of a quantity, None where it is whatever the other side has."""

    value: float
    unit: str | None


@dataclass(frozen=True)
class Word:
    """What is no number: a word, true, false or null."""

    value: str | bool | None


@dataclass(frozen=True)
class Key:
    """A value of the summary, by its keys from the outermost inwards."""

    keys: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.keys)


@dataclass(frozen=True)
class Operation:
    """One of `+ - * /` on two parts."""

    op: str
    left: Term
    right: Term


Term = Constant | Word | Key | Operation


def keys_of(term: Term) -> Iterator[Key]:
    """Yield every key that a term asks for, in order."""
    if isinstance(term, Key):
        yield term
    elif isinstance(term, Operation):
        yield from keys_of(term.left)
        yield from keys_of(term.right)


def unit_of(term: Term) -> str | None:
    """Return `bytes`, `ms`, `bps`, nothing for a value without a unit, None for a bare number.

    ValueError when parts of different units are added, or two units multiplied.
    """
    if isinstance(term, Constant):
        return term.unit
    if isinstance(term, Key):
        return _unit_of_key(term)
    return _unit_of_operation(term) if isinstance(term, Operation) else ""


def _unit_of_key(key: Key) -> str:
    """Return the unit that the nearest of a key's names with one ends in."""
    for name in reversed(key.keys):
        for unit in ("bytes", "ms", "bps"):
            if name == unit or name.endswith(f"_{unit}"):
                return unit
    return ""


def _unit_of_operation(term: Operation) -> str | None:
    left, right = unit_of(term.left), unit_of(term.right)
    if term.op in "+-":
        if None not in (left, right) and left != right:
            raise ValueError(f"adds what is {_WORDS[left or '']} and what is {_WORDS[right or '']}")
        return right if left is None else left
    if term.op == "/" and left and left == right:
        return ""
    if right and (left or term.op == "/"):
        word = "multiplies" if term.op == "*" else "divides"
        raise ValueError(f"{word} what is {_WORDS[left or '']} by what is {_WORDS[right or '']}")
    return left or right or (None if left is None and right is None else "")


def unit_words(unit: str | None) -> str:
    """Return a unit as a sentence has it: `in bytes`, `without a unit`."""
    return _WORDS[unit or ""]


class Parser:
    """Reads terms from the tokens of one text."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0
        self._depth = 0

    def peek(self) -> str:
        """Return the next token, nothing at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def take(self) -> str:
        """Return the next token and step over it."""
        token = self.peek()
        self._at += 1
        return token

    def rest(self) -> str:
        """Return what has not been read."""
        return " ".join(self._tokens[self._at :])

    def sum(self) -> Term:
        """Read a sum of products. ValueError says what is wrong and, after `; `, what is allowed."""
        term = self._product()
        while self.peek() in ("+", "-"):
            term = Operation(self.take(), term, self._product())
        return term

    def _product(self) -> Term:
        term = self._factor()
        while self.peek() in ("*", "/"):
            term = Operation(self.take(), term, self._factor())
        return term

    def _factor(self) -> Term:
        token = self.take()
        if token in ("-", "("):
            return self._nested(token)
        if not token or not (token[0].isalnum() or token[0] in "_.'\""):
            found = f"has {token!r} where a value should stand" if token else "has no value at its end"
            raise ValueError(f"{found}; {VALUES}")
        if _NUMBER.fullmatch(token):
            return self._number(token)
        return _quantity(token) if _QUANTITY.fullmatch(token) else _named(token)

    def _nested(self, token: str) -> Term:
        self._depth += 1
        if self._depth > NESTED_MAX:
            raise ValueError(f"is nested more than {NESTED_MAX} deep")
        if token == "-":
            inner = self._factor()
            term: Term = Operation("-", Constant(0.0, None), inner)
            if isinstance(inner, Constant):
                term = Constant(-inner.value, inner.unit)
        else:
            term = self.sum()
            if self.take() != ")":
                raise ValueError("has a '(' that is not closed; write ')'")
        self._depth -= 1
        return term

    def _number(self, token: str) -> Constant:
        if self.peek() in _ALL_UNITS:
            return _quantity(token + self.take())
        return Constant(float(token), None)


def _tokens(text: str) -> Iterator[str]:
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            found = text[at:].strip()[0]
            raise ValueError(f"has {found!r}, which has no meaning here; {VALUES}")
        yield match["token"]
        at = match.end()


def _quantity(text: str) -> Constant:
    unit = text.lstrip("0123456789.")
    if unit in SIZE_UNITS:
        return Constant(float(parse_bytes(text)), "bytes")
    if unit in DURATION_UNITS:
        return Constant(parse_duration(text) / _NS_PER_MS, "ms")
    if unit in RATE_UNITS:
        return Constant(float(parse_rate(text)), "bps")
    near = difflib.get_close_matches(unit.lower(), _ALL_UNITS, 1, 0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"has the unknown unit {unit!r}; the units are {', '.join(_ALL_UNITS)}{hint}")


def _named(token: str) -> Term:
    if token[0] in "'\"":
        return Word(token[1:-1])
    if not _PATH.fullmatch(token):
        raise ValueError(f"has the malformed key {token!r}; write keys of summary.json joined by dots")
    return Key(tuple(token.split(".")))


def replaced(term: Term, old: Key, new: Term) -> Term:
    """Return `term` with `new` in every place of `old`."""
    if isinstance(term, Operation):
        return Operation(term.op, replaced(term.left, old, new), replaced(term.right, old, new))
    return new if term == old else term
