"""What the bench is made of: sections with names, and which of them a person asks for. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.bench.figures import Found
from testbed.errors import InputError
from testbed.scenario.problems import nearest


@dataclass(frozen=True)
class Setting:
    """What a section is given: how often to measure, a folder that goes at its end, and whom to tell.

    `runs` is for what takes seconds; a section may measure less often what takes minutes, and says so.
    """

    runs: int
    folder: Path
    tell: Callable[[str], None]


@dataclass(frozen=True)
class Section:
    """A part of the page that is measured for itself, whatever the other sections do.

    `measure` raises LabError (MachineError with the remedy) when it cannot be measured here.
    """

    name: str
    title: str
    measure: Callable[[Setting], Found]


def select(sections: Sequence[Section], wanted: Sequence[str]) -> list[Section]:
    """Return the sections of those names, in their own order; all, when none is named.

    Raises InputError, with the nearest name, for one that there is not.
    """
    names = [section.name for section in sections]
    for text in wanted:
        if text not in names:
            raise InputError(
                f"{text}: no section is called so; see `testbed bench --list`{nearest(text, names)}"
            )
    return [section for section in sections if not wanted or section.name in wanted]
