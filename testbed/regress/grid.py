"""The grid of a sweep: which keys take which values, and a run for every combination and seed.

Everything is checked here, before anything runs. Called by `testbed.regress.sweep`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from testbed.errors import InputError
from testbed.plan.build import build_plan
from testbed.plan.codec import plan_hash
from testbed.run.launch import resolve_backend
from testbed.run.many import Task
from testbed.scenario import load_scenario
from testbed.scenario.problems import shown

POINTS_MOST = 100_000
RECORDS = "records"
"""Folder of the records below that of the sweep."""

_FORM = "write KEY=VALUE,VALUE,..."


@dataclass(frozen=True)
class Vary:
    """A key of the scenario and the values it takes, as they are written."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Point:
    """One combination of values with one seed, and the run that measures it."""

    values: tuple[str, ...]
    seed: int
    task: Task


@dataclass(frozen=True)
class Grid:
    """All points of a sweep, in order: the last key changes first, seeds before keys."""

    scenario: str
    varied: tuple[Vary, ...]
    seeds: tuple[int, ...]
    points: tuple[Point, ...]


def parse_vary(text: str) -> Vary:
    """Return the parsed `key=v1,v2,...`; a comma in brackets belongs to a value. InputError if it is none."""
    key, equals, values = text.partition("=")
    found = tuple(_split(values))
    if not equals or not key.strip() or not all(found):
        raise InputError(f"--vary {shown(text)}: is no list of values; {_FORM}")
    twice = next((value for value in found if found.count(value) > 1), None)
    if twice is not None:
        raise InputError(f"--vary {shown(text)}: has {shown(twice)} twice; name each value once")
    return Vary(key.strip(), found)


def _split(text: str) -> Iterator[str]:
    depth, value = 0, ""
    for letter in text:
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth == 0:
            yield value.strip()
            value = ""
        else:
            value += letter
    yield value.strip()


def build_grid(
    scenario: str,
    varied: Sequence[Vary],
    seeds: Sequence[int],
    out: Path,
    *,
    overrides: Sequence[str] = (),
    backend: str = "auto",
    clock: str | None = None,
    tell: Callable[[int, int], None] = lambda planned, count: None,
) -> Grid:
    """Return the grid with a planned run for every point. InputError for the first that cannot be run.

    A plan takes milliseconds, a thousand of them a while: `tell` hears how many are planned, of how many.
    """
    keys = [vary.key for vary in varied]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise InputError(f"--vary {shown(twice)}: is varied twice; give all its values at once")
    count = len(seeds)
    for vary in varied:
        count *= len(vary.values)
    if count > POINTS_MOST:
        raise InputError(f"--vary: {count} runs are more than {POINTS_MOST}; vary less at once")
    found_backend, found_clock = resolve_backend(backend, clock)
    named = str(Path(scenario).resolve()) if Path(scenario).is_file() else scenario
    points = []
    for values in product(*(vary.values for vary in varied)):
        sets = tuple(f"{vary.key}={value}" for vary, value in zip(varied, values, strict=True))
        # Expectations belong to the scenario's own settings; a sweep leaves these on purpose.
        all_sets = (*overrides, *sets, "expect=[]")
        loaded = load_scenario(scenario, all_sets)
        for seed in seeds:
            plan = build_plan(loaded, seed=seed, backend=found_backend, clock=found_clock)
            record = out.resolve() / RECORDS / f"{plan.scenario}-{seed}-{plan_hash(plan)}"
            task = Task(named, seed, record, all_sets, found_backend, found_clock)
            points.append(Point(values, seed, task))
        tell(len(points), count)
    return Grid(plan.scenario, tuple(varied), tuple(seeds), tuple(points))
