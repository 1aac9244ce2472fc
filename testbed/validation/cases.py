"""What the validation is made of: cases with names, and which of them a person asks for. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from testbed.errors import InputError
from testbed.scenario.problems import nearest
from testbed.validation.bench import Bench
from testbed.validation.rows import Row

Measure = Callable[[Bench, int], list[Row]]
"""Runs what it needs, with seeds 1 to the number given where a case is about chance, and returns rows."""


@dataclass(frozen=True)
class Case:
    """A measurement that is selected as a whole. Its name is FAMILY.NAME, its rows' names begin with it.

    `quick` cases are part of `--quick`.
    """

    name: str
    what: str
    measure: Measure
    quick: bool = False

    @property
    def family(self) -> str:
        """The name's first word."""
        return self.name.partition(".")[0]


def select(cases: Sequence[Case], wanted: Sequence[str], *, quick: bool) -> list[Case]:
    """Return the cases a person asks for, in their order: all, or those that a name or pattern fits.

    A name is a case's, a family's, or the beginning of a case's up to a dot; a pattern has `*`, `?` or
    `[...]`. With `quick` only quick cases are left, but one named in full is always taken. Raises InputError
    for what fits nothing, with the nearest name, and for what `quick` leaves nothing of.
    """
    chosen: set[str] = set()
    for text in wanted:
        fitting = [case for case in cases if _fits(case.name, text)]
        if not fitting:
            names = list(dict.fromkeys([*(case.family for case in cases), *(case.name for case in cases)]))
            raise InputError(
                f"{text}: no measurement is called so; see `testbed validate --list`{nearest(text, names)}"
            )
        left = {case.name for case in fitting if case.quick or not quick or case.name == text}
        if not left:
            raise InputError(f"{text}: nothing of it is quick; leave --quick out")
        chosen |= left
    if wanted:
        return [case for case in cases if case.name in chosen]
    return [case for case in cases if case.quick or not quick]


def _fits(name: str, text: str) -> bool:
    return name == text or name.startswith(text + ".") or fnmatchcase(name, text)
