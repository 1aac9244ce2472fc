"""The syntax of an expectation: two terms and a comparison, as in `transfers.slowdown.p99 < 1.2 * ideal`.

This is syntax only: it is part of the scenario language, so that a misspelt expectation is refused before
anything starts. `testbed.checks` evaluates expectations against a summary.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.scenario.expression import (
    COMPARISONS,
    IDEAL,
    VALUES,
    Constant,
    Key,
    Parser,
    Term,
    Word,
    keys_of,
    replaced,
    unit_of,
    unit_words,
)
from testbed.scenario.summary_keys import IDEALS, ideal_of

TEXT_MAX = 500
_SHAPE = "is no expectation; write path op value, as in verdict.segment == dest-leaf"
_CONSTANTS: dict[str, Word] = {"null": Word(None), "true": Word(True), "false": Word(False)}


@dataclass(frozen=True)
class Expectation:
    """One parsed expectation: its `text` as written, two terms and the comparison between them.

    Numbers are in the unit their keys have in the summary: bytes below a `*_bytes` or `bytes` key,
    milliseconds below a `*_ms` key, bits per second below a `*_bps` key.
    """

    text: str
    left: Term
    op: str
    right: Term

    @property
    def keys(self) -> tuple[Key, ...]:
        """Every key of the summary that is asked for."""
        return (*keys_of(self.left), *keys_of(self.right))


def parse_expectation(text: str) -> Expectation:
    """Return the parsed expectation; ValueError says what is wrong and, after `; `, what is allowed."""
    if len(text) > TEXT_MAX:
        raise ValueError(f"is longer than {TEXT_MAX} characters")
    parser = Parser(text)
    if not parser.peek():
        raise ValueError(_SHAPE)
    left = parser.sum()
    op = parser.take()
    if op not in COMPARISONS:
        raise ValueError("has a single '='; write ==" if op == "=" else _SHAPE)
    right = parser.sum()
    if parser.peek():
        raise ValueError(f"is not understood from {parser.rest()!r} on; write one comparison of two values")
    return Expectation(text, *_checked(left, op, right))


def _checked(left: Term, op: str, right: Term) -> tuple[Term, str, Term]:
    asked = list(keys_of(left))
    if not asked:
        raise ValueError(f"has no key of summary.json on the left of {op}; write path op value")
    # Alone on the right, one name without a dot is a word: a segment, a link, true.
    if isinstance(right, Key) and len(right.keys) == 1 and right.keys != (IDEAL,):
        name = right.keys[0]
        right = _CONSTANTS.get(name, Word(name))
    right = _with_ideal(asked, right)
    _same_units(left, op, right)
    return left, op, right


def _with_ideal(asked: list[Key], right: Term) -> Term:
    ideal = Key((IDEAL,))
    if ideal not in keys_of(right):
        return right
    known = ideal_of(asked[0].keys) if len(set(asked)) == 1 else None
    if known is None:
        allowed = ", ".join(".".join(keys) for keys in IDEALS)
        raise ValueError(f"compares {asked[0]} with an ideal it has not; these have one: {allowed}")
    return replaced(right, ideal, Constant(known, "") if isinstance(known, float) else Key(known))


def _same_units(left: Term, op: str, right: Term) -> None:
    name = next(str(key) for key in keys_of(left))
    if isinstance(right, Word):
        if op not in ("==", "!="):
            raise ValueError(f"orders {name} against a word; use == or !=, or a number")
        return
    units = unit_of(left), unit_of(right)
    if None not in units and units[0] != units[1]:
        raise ValueError(
            f"compares {name}, {unit_words(units[0])}, with what is {unit_words(units[1])}; {VALUES}"
        )
