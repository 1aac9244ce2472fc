"""The syntax of an expectation: `path op literal`, as in `transfers.slowdown.p99 <= 1.05`.

Parsed by hand, never evaluated as code. This is syntax only: it is part of the scenario language, so
that a misspelt expectation is refused before anything starts. `testbed.checks` evaluates expectations
against a summary.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from testbed.units import parse_bytes, parse_duration, parse_rate

OPERATORS = ("==", "!=", "<=", ">=", "<", ">")
"""Longer ones first: a scan from the left must not read `<=` as `<`."""

Literal = str | float | bool | None
"""What an expectation compares with: a word, a number in the key's own unit, true/false or null."""

_SHAPE = re.compile(r"\s*(?P<path>\S+?)\s*(?P<op>==|!=|<=|>=|=|<|>)\s*(?P<literal>.*?)\s*")
# Keys are names of links, hosts, pairs (`p1->d1`) and segments; a path is such keys joined by dots.
_KEY = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]|->)*"
_PATH = re.compile(rf"{_KEY}(?:\.{_KEY})*")
_NUMBER = re.compile(r"-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")
_QUANTITY = re.compile(r"-?[0-9.]+ ?[A-Za-z]+")
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_>.-]*")
_CONSTANTS: dict[str, Literal] = {"null": None, "true": True, "false": False}
_NS_PER_MS = 1_000_000


@dataclass(frozen=True)
class Expectation:
    """One parsed expectation: `text` as written, the keys of its `path`, operator and literal.

    A quantity is converted to the unit its path has in the summary: bytes below a `*_bytes` or `bytes`
    key, milliseconds below a `*_ms` key, bits per second below a `*_bps` key.
    """

    text: str
    path: tuple[str, ...]
    op: str
    literal: Literal


def parse_expectation(text: str) -> Expectation:
    """Return the parsed expectation; ValueError says what is wrong and, after `; `, what is allowed."""
    if "->" in text:
        parts = _split_pairs(text)
    else:
        match = _SHAPE.fullmatch(text)
        parts = (match["path"], match["op"], match["literal"]) if match else None
    if parts is None:
        raise ValueError("is no expectation; write path op value, as in verdict.segment == dest-leaf")
    path, op, literal = parts
    if op == "=":
        raise ValueError("has a single '='; write ==")
    if not _PATH.fullmatch(path):
        raise ValueError(f"has the malformed path {path!r}; write keys of summary.json joined by dots")
    return Expectation(text, tuple(path.split(".")), op, _checked(path, op, _literal(path, literal)))


def _split_pairs(text: str) -> tuple[str, str, str] | None:
    # A pair's name holds `>`, so here, and only here, the operator must stand between spaces.
    words = text.split(maxsplit=2)
    if len(words) == 3 and words[1] in (*OPERATORS, "="):
        return words[0], words[1], words[2].rstrip()
    return None


def _literal(path: str, text: str) -> Literal:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _NUMBER.fullmatch(text):
        return float(text)
    if _QUANTITY.fullmatch(text):
        return _quantity(path, text)
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if not _WORD.fullmatch(text):
        wrong = f"has the malformed value {text!r}" if text else "has no value"
        raise ValueError(f"{wrong}; write a number, a quantity, a word, true, false or null")
    return text


def _quantity(path: str, text: str) -> float:
    unit = unit_of(path)
    if unit == "bytes":
        return float(parse_bytes(text))
    if unit == "ms":
        return parse_duration(text) / _NS_PER_MS
    if unit == "bps":
        return float(parse_rate(text))
    raise ValueError(f"compares {path}, which has no unit, with {text!r}; write a number")


def unit_of(path: str) -> str:
    """Return `bytes`, `ms`, `bps` or nothing: the unit the nearest key of `path` with one ends in."""
    for key in reversed(path.split(".")):
        for unit in ("bytes", "ms", "bps"):
            if key == unit or key.endswith(f"_{unit}"):
                return unit
    return ""


def _checked(path: str, op: str, literal: Literal) -> Literal:
    if op not in ("==", "!=") and (literal is None or isinstance(literal, (str, bool))):
        raise ValueError(f"orders {path} against a word; use == or !=, or a number")
    return literal
