"""Two records, or two sets of seeds, side by side: what differs, by how much, and is it more than chance.

Reads summaries only; the page's plots read the records as well. Called by `testbed compare`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.analysis.summary import FORMAT_VERSION
from testbed.errors import InputError
from testbed.record import layout
from testbed.record.codec import Damage, read_mapping
from testbed.regress.flat import HEADLINES, Change, Scalar, changes, in_order, number
from testbed.regress.golden import settings_of
from testbed.regress.measures import RUN, measures
from testbed.regress.significance import ALPHA, can_tell, p_value
from testbed.scenario import load_scenario
from testbed.scenario.problems import shown

ROWS = (*HEADLINES, *RUN)
"""What the table shows; the page has every key that differs."""


@dataclass(frozen=True)
class Run:
    """One record: its folder, what ran, and its values by key."""

    path: Path
    scenario: str
    seed: int
    valid: bool
    settings: Mapping[str, Scalar]
    values: Mapping[str, Scalar]


@dataclass(frozen=True)
class Row:
    """One key on both sides: the values of every seed, and what can be said of the difference.

    `p` is None where the values are no numbers or the seeds too few to tell.
    """

    key: str
    before: tuple[Scalar, ...]
    after: tuple[Scalar, ...]
    p: float | None

    @property
    def change(self) -> Change:
        """The change of the mean, or of the word most seeds agree on."""
        return Change(self.key, centre(self.before), centre(self.after))

    @property
    def same(self) -> bool:
        """Whether both sides have the same values."""
        constant = len({*self.before, *self.after}) == 1  # however many seeds each side has
        return constant or sorted(self.before, key=repr) == sorted(self.after, key=repr)

    @property
    def more_than_chance(self) -> bool | None:
        """Whether the sides differ by more than their seeds do; None where that cannot be told."""
        return None if self.p is None else self.p <= ALPHA

    def judgement(self) -> str:
        """Return in words what can be said of the difference."""
        if self.same:
            return "same"
        if self.p is None:
            if len(self.before) == len(self.after) == 1:
                return "one seed each"
            enough = can_tell(len(self.before), len(self.after))
            return "no numbers to test" if enough else "too few seeds to tell"
        return f"{'more than seeds differ' if self.p <= ALPHA else 'within the seeds'}, p {self.p:.2g}"


@dataclass(frozen=True)
class Comparison:
    """One scenario on both sides. `rows` are all keys that both have, those of the table first."""

    name: str
    before: tuple[Run, ...]
    after: tuple[Run, ...]
    rows: tuple[Row, ...]
    settings: tuple[Change, ...]

    @property
    def shown(self) -> list[Row]:
        """The rows of the table."""
        return [row for row in self.rows if row.key in ROWS and not _empty(row)]

    @property
    def differing(self) -> list[Row]:
        """Every row that differs, in order of effect."""
        order = in_order([row.change for row in self.rows if not row.same])
        by_key = {row.key: row for row in self.rows}
        return [by_key[change.key] for change in order]

    @property
    def invalid(self) -> list[Run]:
        """Runs whose measurement is not valid."""
        return [run for run in (*self.before, *self.after) if not run.valid]


def centre(values: Sequence[Scalar]) -> Scalar:
    """Return the mean of numbers, or the most frequent word; None where a number is missing."""
    numbers = [found for value in values if (found := number(value)) is not None]
    if len(numbers) == len(values):
        return statistics.fmean(numbers)
    words = [value for value in values if isinstance(value, (str, bool))]
    return max(sorted(set(words), key=str), key=words.count) if words else None


def _empty(row: Row) -> bool:
    return set(row.before) | set(row.after) == {None}


@dataclass(frozen=True)
class Compared:
    """Two sides, scenario by scenario; those that only one side has are `alone`, each with its side."""

    comparisons: tuple[Comparison, ...]
    alone: tuple[tuple[str, str], ...]


def compare(first: Path, second: Path) -> list[Comparison]:
    """Compare two records, or two folders of records, scenario by scenario."""
    return list(compare_all(first, second).comparisons)


def compare_all(first: Path, second: Path) -> Compared:
    """Compare two records, or two folders of records, and name the scenarios that only one of them has.

    Sides with one scenario each are compared whatever it is called. InputError when a side is no record, has
    another format or an unfinished run, or both have no scenario in common.
    """
    sides = [_by_scenario(side) for side in (first, second)]
    before, after = sides
    if len(before) == len(after) == 1:
        (name, runs), (other, others) = before.popitem(), after.popitem()
        return Compared((_compare(name if name == other else f"{name} and {other}", runs, others),), ())
    common = [name for name in before if name in after]
    if not common:
        names = " and ".join(", ".join(sorted(side)) for side in sides)
        raise InputError(
            f"{first} and {second}: have no scenario in common ({names}); compare like with like"
        )
    alone = [
        (side, name) for side, runs in zip("AB", sides, strict=True) for name in runs if name not in common
    ]
    return Compared(tuple(_compare(name, before[name], after[name]) for name in common), tuple(alone))


def _compare(name: str, before: Sequence[Run], after: Sequence[Run]) -> Comparison:
    keys = [key for key in before[0].values if all(key in run.values for run in (*before, *after))]
    ordered = sorted(keys, key=lambda key: ROWS.index(key) if key in ROWS else len(ROWS))
    rows = tuple(_row(key, before, after) for key in ordered)
    theirs, ours = before[0].settings, after[0].settings
    every = dict.fromkeys([*theirs, *ours])
    return Comparison(
        name, tuple(before), tuple(after), rows, tuple(changes({**every, **theirs}, {**every, **ours}))
    )


def _row(key: str, before: Sequence[Run], after: Sequence[Run]) -> Row:
    values = tuple(run.values[key] for run in before), tuple(run.values[key] for run in after)
    numbers = [[found for value in side if (found := number(value)) is not None] for side in values]
    whole = len(numbers[0]) == len(before) and len(numbers[1]) == len(after)
    told = whole and values[0] != values[1] and can_tell(len(before), len(after))
    return Row(key, *values, p_value(*numbers) if told else None)


# ---- reading --------------------------------------------------------------------------


def _by_scenario(folder: Path) -> dict[str, list[Run]]:
    runs = [_run(record) for record in _records(folder)]
    found: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: (run.scenario, run.seed)):
        others = found.setdefault(run.scenario, [])
        twin = next((other for other in others if other.seed == run.seed), None)
        if twin is not None:
            raise InputError(
                f"{run.path}: is a second record of {run.scenario} with seed {run.seed}, beside {twin.path}; "
                "give each setting a folder of its own"
            )
        others.append(run)
    return found


def _records(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give a record's, or one that holds records")
    if (folder / layout.MANIFEST).exists():
        yield folder
        return
    found = sorted(path.parent for path in folder.glob(f"*/{layout.MANIFEST}"))
    if not found:
        raise InputError(f"{folder}: is no record and holds none; give a folder as runs/incast-1-...")
    yield from found


def _run(folder: Path) -> Run:
    manifest = _json(folder, layout.MANIFEST)
    if manifest.get("format_version") != layout.FORMAT_VERSION:
        version = manifest.get("format_version")
        raise InputError(
            f"{folder}: is a record of format {version}, this testbed reads {layout.FORMAT_VERSION}; "
            "run it again, or compare with the version that made it"
        )
    if manifest.get("status") != layout.COMPLETE:
        raise InputError(f"{folder}: did not end ({manifest.get('status')}); run it again or take it away")
    summary = _json(folder, layout.SUMMARY)
    if summary.get("format_version") != FORMAT_VERSION:
        raise InputError(
            f"{folder}: has a summary of format {summary.get('format_version')}, this testbed reads "
            f"{FORMAT_VERSION}; make it again: testbed report {folder}"
        )
    settings = _settings(folder / layout.SCENARIO)
    try:
        return Run(
            folder, *_named(summary), summary["fidelity"]["valid"] is True, settings, measures(summary)
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        wrong = f"{layout.SUMMARY} is none of testbed's ({shown(repr(error))})"
        raise InputError(f"{folder}: {wrong}; make it again: testbed report {folder}") from None


def _named(summary: Mapping[str, Any]) -> tuple[str, int]:
    scenario, seed = summary["scenario"], summary["seed"]
    if not (isinstance(scenario, str) and isinstance(seed, int)):
        raise ValueError("scenario or seed is of another kind")
    return scenario, seed


def _settings(path: Path) -> Mapping[str, Scalar]:
    try:
        return settings_of(load_scenario(str(path)))
    except InputError:
        return {}  # of a version that had other keys: the values can still be compared


def _json(folder: Path, name: str) -> Mapping[str, Any]:
    try:
        return read_mapping(folder, name)
    except Damage as damage:
        raise InputError(f"{folder}: {damage}; make it again: testbed report {folder}") from None
