"""Limits on a change: `--fail-if 'ttft_ms.p99 > +5%'`.

A key, a comparison, and a change with its sign: in percent of what it was, or in the key's own unit. Or a key
and `changed`, for words. Parsed by hand, never evaluated as code. Called by `testbed compare`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.errors import InputError
from testbed.regress.compare import Comparison, Row
from testbed.regress.flat import number, shown
from testbed.scenario.expectation import TEXT_MAX
from testbed.scenario.expression import Constant, Key, Parser, unit_of, unit_words
from testbed.scenario.problems import nearest
from testbed.scenario.problems import shown as shown_text

_LIMIT = re.compile(
    r"\s*(?P<key>\S+)\s+(?:(?P<op>[<>])\s*(?P<by>[-+]?[0-9.]+\s*(?:%|[A-Za-z]+)?)|changed)\s*"
)
_FORM = "write KEY > +5%, KEY < -2ms or KEY changed"


@dataclass(frozen=True)
class Limit:
    """How far a key may go. `share` is a fraction of what it was, `by` an amount; neither: not at all."""

    text: str
    key: str
    op: str
    share: float | None
    by: float | None

    def broken_by(self, row: Row) -> str | None:
        """Return in words how a row breaks the limit, None where it does not.

        Where the seeds can tell, a change that is within their spread breaks nothing.
        """
        change = row.change
        told = f"{shown(change.before)} -> {shown(change.after)}, {row.judgement()}"
        if self.share is None and self.by is None:
            return None if row.same else told
        before, after = number(change.before), number(change.after)
        if before is None or after is None:
            return None if change.before == change.after else f"{told}: no number to compare"
        allowed = self.by if self.share is None else self.share * abs(before)
        assert allowed is not None
        beyond = after - before > allowed if self.op == ">" else after - before < allowed
        return told if beyond and row.more_than_chance is not False else None


def parse_limit(text: str) -> Limit:
    """Return the parsed limit; InputError says what is wrong and what is allowed."""
    if len(text) > TEXT_MAX:
        raise InputError(f"--fail-if {shown_text(text)}: is longer than {TEXT_MAX} characters; {_FORM}")
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise InputError(f"--fail-if {text}: is no limit; {_FORM}")
    key, amount = match["key"], match["by"]
    if amount is None:
        return Limit(text, key, "", None, None)
    try:
        if amount.endswith("%"):
            return Limit(text, key, match["op"], float(amount[:-1]) / 100, None)
        return Limit(text, key, match["op"], None, _amount(key, amount))
    except ValueError as error:
        raise InputError(f"--fail-if {text}: {error}; {_FORM}") from None


def _amount(key: str, text: str) -> float:
    term = Parser(text.lstrip("+")).sum()
    if not isinstance(term, Constant):
        raise ValueError(f"{text} is no number")
    unit = unit_of(Key(tuple(key.split("."))))
    if term.unit not in (None, unit):
        raise ValueError(f"{key} is {unit_words(unit)}, {text} {unit_words(term.unit)}")
    return term.value


@dataclass(frozen=True)
class Broken:
    """A limit that a comparison breaks, and how."""

    scenario: str
    limit: Limit
    how: str


def broken(limits: Sequence[Limit], comparisons: Sequence[Comparison]) -> list[Broken]:
    """Return every limit that is broken, scenario by scenario. InputError for a key that nothing has."""
    found = []
    for comparison in comparisons:
        rows = {row.key: row for row in comparison.rows}
        for limit in limits:
            if limit.key not in rows:
                raise InputError(
                    f"--fail-if {limit.text}: {comparison.name} has no key {limit.key!r} on both sides"
                    f"{nearest(limit.key, list(rows))}"
                )
            how = limit.broken_by(rows[limit.key])
            if how is not None:
                found.append(Broken(comparison.name, limit, how))
    return found
