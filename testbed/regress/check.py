"""Runs scenarios and holds each against what its file expects, and against its golden: `testbed check`.

A run that failed, or whose measurement is not valid, has not passed; nor has one of which nothing is
expected. Pure judgement stands in `judge`; the runs are made by `testbed.run.many`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.checks import Result, evaluate
from testbed.errors import InputError
from testbed.plan.build import build_plan
from testbed.plan.codec import plan_hash
from testbed.plan.model import Plan
from testbed.regress.flat import Scalar
from testbed.regress.golden import (
    Difference,
    Golden,
    difference,
    golden_path,
    read_golden,
    settings_of,
    write_golden,
)
from testbed.regress.toolchain import Toolchain
from testbed.run.launch import resolve_backend
from testbed.run.many import Ended, Task, run_many
from testbed.scenario import load_scenario

PASSED, FAILED, NOT_VALID, BAD_INPUT, LAB = "passed", "FAILED", "NOT VALID", "BAD INPUT", "LAB FAILED"
EXIT_CODES: Mapping[str, int] = {PASSED: 0, FAILED: 1, NOT_VALID: 4, BAD_INPUT: 2, LAB: 3}
"""Exit code of each outcome, the worst last: without a run nothing is known, and numbers that must not be
believed say nothing of an expectation."""


@dataclass(frozen=True)
class Case:
    """A run to be made and judged. `places` are those of the expectations, as `file:line`."""

    task: Task
    plan: Plan
    places: tuple[str, ...]
    settings: Mapping[str, Scalar]
    golden: Golden | None

    @property
    def name(self) -> str:
        """What it is called in tables."""
        return f"{self.plan.scenario}, seed {self.plan.seed}"


@dataclass(frozen=True)
class Judged:
    """A case that has run: its outcome, why (where no expectation says so), and what was held against it."""

    case: Case
    outcome: str
    reason: str
    seconds: float
    results: tuple[Result, ...] = ()
    golden: Difference | None = None

    @property
    def failures(self) -> list[str]:
        """Each expectation that does not hold, in one line: where, expected, measured."""
        pairs = zip(self.case.places, self.results, strict=False)
        return [
            f"{place}: expected {result.expectation}, measured {result.measured}"
            for place, result in pairs
            if not result.ok
        ]


@dataclass(frozen=True)
class Wanted:
    """What is to be checked: scenarios, `--set` overrides, seeds, and where records and goldens are."""

    scenarios: Sequence[str]
    overrides: tuple[str, ...]
    seeds: Sequence[int]
    backend: str
    clock: str | None
    records: Path
    goldens: Path | None
    update: bool


def cases(wanted: Wanted) -> list[Case]:
    """Return a case for each scenario and seed. InputError for whatever could not be judged later."""
    backend, clock = resolve_backend(wanted.backend, wanted.clock)
    found = []
    for name in wanted.scenarios:
        scenario = load_scenario(name, wanted.overrides)
        if not scenario.expect and wanted.goldens is None:
            raise InputError(
                f"{name}: expects nothing, so that nothing would be checked; write expect, or give --golden"
            )
        for seed in wanted.seeds:
            plan = build_plan(scenario, seed=seed, backend=backend, clock=clock)
            golden = None
            if wanted.goldens is not None and not wanted.update:
                path = golden_path(wanted.goldens, plan.scenario, seed)
                golden = read_golden(path, plan.scenario, seed, clock)
            out = wanted.records / f"{plan.scenario}-{seed}-{plan_hash(plan)}"
            task = Task(name, seed, out, wanted.overrides, backend, clock)
            found.append(Case(task, plan, scenario.expect_places, settings_of(scenario), golden))
    _distinct(found)
    return found


def _distinct(found: Sequence[Case]) -> None:
    seen: dict[str, str] = {}
    for case in found:
        other = seen.setdefault(case.name, case.task.scenario)
        if other != case.task.scenario or [one.name for one in found].count(case.name) > 1:
            raise InputError(f"{case.task.scenario}: has the name of another, {case.name}; name each once")


def check(
    found: Sequence[Case], jobs: int, tools: Toolchain, tell: Callable[[Judged, int, int], None]
) -> list[Judged]:
    """Run all cases, `jobs` at a time, and judge each; `tell` is called as each ends."""
    by_task = {case.task: case for case in found}
    judged: dict[Task, Judged] = {}

    def ended(one: Ended, done: int, total: int) -> None:
        judged[one.task] = judge(by_task[one.task], one, tools)
        tell(judged[one.task], done, total)

    run_many([case.task for case in found], jobs, ended)
    return [judged[case.task] for case in found]


def judge(case: Case, ended: Ended, tools: Toolchain) -> Judged:
    """Return the outcome of a case from how its run ended."""
    if not ended.measured:
        outcome = BAD_INPUT if ended.exit_code == EXIT_CODES[BAD_INPUT] else LAB
        return Judged(case, outcome, ended.message, ended.seconds)
    summary = ended.summary()
    results = tuple(evaluate(case.plan.expectations, summary))
    golden = None if case.golden is None else difference(case.golden, summary, case.settings, tools)
    outcome, reason = _outcome(summary, results, golden)
    return Judged(case, outcome, reason, ended.seconds, results, golden)


def _outcome(
    summary: Mapping[str, Any], results: Sequence[Result], golden: Difference | None
) -> tuple[str, str]:
    if not summary["fidelity"]["valid"]:
        return NOT_VALID, summary["fidelity"]["reasons"][0]
    holds = all(result.ok for result in results) and (golden is None or golden.same)
    return (PASSED if holds else FAILED), ""


def worst(judged: Sequence[Judged]) -> str:
    """Return the worst outcome of all."""
    order = list(EXIT_CODES)
    return max((one.outcome for one in judged), key=order.index, default=PASSED)


def update(judged: Sequence[Judged], folder: Path, tools: Toolchain) -> list[Path]:
    """Write a golden of every case that passed, and return their files."""
    written = []
    for one in judged:
        if one.outcome == PASSED:
            case = one.case
            path = golden_path(folder, case.plan.scenario, case.plan.seed)
            summary = Ended(case.task, 0, "", one.seconds).summary()
            write_golden(path, summary, case.settings, tools)
            written.append(path)
    return written
