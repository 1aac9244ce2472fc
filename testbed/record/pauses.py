"""The pauses of a lossless fabric as the lab noted them: who was held when, and by which queue.

Turns rows into spans of scenario time; it judges none of them. Called by `testbed.record.reader`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.plan.model import Plan
from testbed.record.codec import Damage

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Pause:
    """The queue of link `by` held the port of `link` from `start_ns` to `end_ns`, scenario time.

    A pause that had not ended when the run did ends at the last sample.
    """

    link: str
    by: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Deadlock:
    """Ports that held each other in a circle, each held by the next, when the run was ended at `time_ns`."""

    time_ns: int
    links: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Spans:
    """Stretches of time, in order and apart from each other: edges in ns."""

    start_ns: Ints
    end_ns: Ints

    @staticmethod
    def of(pauses: Iterable[Pause]) -> Spans:
        """Return the stretches in which any of `pauses` lasted."""
        starts: list[int] = []
        ends: list[int] = []
        for pause in sorted(pauses, key=lambda pause: pause.start_ns):
            if ends and pause.start_ns <= ends[-1]:
                ends[-1] = max(ends[-1], pause.end_ns)
            else:
                starts.append(pause.start_ns)
                ends.append(pause.end_ns)
        return Spans(np.array(starts, np.int64), np.array(ends, np.int64))

    @property
    def lengths_ns(self) -> Ints:
        """How long each stretch is."""
        return self.end_ns - self.start_ns

    @cached_property
    def _area(self) -> tuple[Floats, Floats]:
        edges = np.column_stack((self.start_ns, self.end_ns)).ravel().astype(np.float64)
        rises = np.column_stack((np.zeros(len(self.start_ns)), self.lengths_ns)).ravel()
        return edges, np.asarray(np.cumsum(rises), np.float64)

    def within_ns(self, start_ns: Floats | Ints, end_ns: Floats | Ints) -> Floats:
        """Return how much of each interval from `start_ns` to `end_ns` lies within the stretches."""
        if not len(self.start_ns):
            return np.zeros(len(start_ns))
        return np.asarray(np.interp(end_ns, *self._area) - np.interp(start_ns, *self._area), np.float64)


@dataclass(frozen=True, eq=False)
class Pausings:
    """All pauses of a run, in order of their start, and the deadlock that ended it, if one did."""

    pauses: tuple[Pause, ...] = ()
    deadlock: Deadlock | None = None

    @cached_property
    def by_link(self) -> Mapping[str, Mapping[str, Spans]]:
        """The stretches in which each port was held, by the queue that held it."""
        found: dict[str, dict[str, list[Pause]]] = {}
        for pause in self.pauses:
            found.setdefault(pause.link, {}).setdefault(pause.by, []).append(pause)
        return {
            link: {by: Spans.of(pauses) for by, pauses in causes.items()} for link, causes in found.items()
        }

    @cached_property
    def held(self) -> Mapping[str, Spans]:
        """The stretches in which each port was held by any queue."""
        links = dict.fromkeys(pause.link for pause in self.pauses)
        return {link: Spans.of(pause for pause in self.pauses if pause.link == link) for link in links}


NO_PAUSES = Pausings()
"""What a fabric that drops has."""


def parse_pauses(rows: Ints, plan: Plan, last_ns: int) -> tuple[Pause, ...]:
    """Return the pauses of rows in the layout of PAUSE_FIELDS, in lab time; Damage for an unknown link."""
    names = [link.name for link in plan.topology.all_links]
    begun: dict[tuple[int, int], int] = {}
    found = []
    for time_ns, link, by, held in rows.tolist():
        if not (0 <= link < len(names) and 0 <= by < len(names)):
            raise Damage(f"pauses have link number {max(link, by)} of {len(names)}")
        if held:
            begun.setdefault((link, by), time_ns)
        elif (link, by) in begun:
            found.append((begun.pop((link, by)), time_ns, link, by))
    lab_last = max([round(last_ns * plan.dilation), *begun.values()])
    found += [(start, lab_last, *pair) for pair, start in begun.items()]
    return tuple(
        Pause(names[link], names[by], round(start / plan.dilation), round(end / plan.dilation))
        for start, end, link, by in sorted(found)
    )


def parse_deadlock(found: Mapping[str, Any], plan: Plan) -> Deadlock:
    """Return the deadlock of the lab's file, in scenario time; Damage where it makes no sense."""
    time_ns, links = found.get("time_ns"), found.get("links")
    if not isinstance(time_ns, int) or not isinstance(links, list):
        raise Damage("the deadlock has no time or no links")
    return Deadlock(round(time_ns / plan.dilation), tuple(map(str, links)))
