"""The commands `check`, `compare` and `sweep`: their options, and the stages they call in order.

What they need is imported when they run: `testbed --help` reads none of it. Called by `testbed.cli`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.errors import (
    ExpectationError,
    InputError,
    LabError,
    MeasurementError,
    TestbedError,
)
from testbed.progress import Progress
from testbed.screen import say
from testbed.units import whole_number

RUNS = Path("runs")
COUNT = whole_number(1, 10_000)
"""Reads a number of runs or seeds."""

PLANNING_TOLD_S = 2
"""A sweep says so often how much of it is planned."""

Add = Callable[..., argparse.ArgumentParser]


def add_commands(add: Add, seed: Callable[[str], int]) -> None:
    """Add the commands; `add` makes a parser from name, help, action and `as_json`, `seed` reads a seed."""
    check = add("check", "run scenarios: do their expectations and goldens hold?", _check, as_json=True)
    check.add_argument("scenario", metavar="S", nargs="*", help="scenarios or files (default: all shipped)")
    _add_runs(check, seed)
    check.add_argument("--out", type=Path, default=RUNS, help="folder for the records (default: runs)")
    check.add_argument("--golden", metavar="DIR", type=Path, help="hold each against its golden in DIR")
    check.add_argument("--update", action="store_true", help="write the goldens instead, where all holds")
    check.add_argument("--junit", metavar="FILE", type=Path, help="write the outcome as JUnit XML")
    compare = add("compare", "two records or sets of seeds: what differs?", _compare, as_json=True)
    compare.add_argument(
        "before", metavar="A", type=Path, help="a record's folder, or one that holds records"
    )
    compare.add_argument("after", metavar="B", type=Path, help="the same, of what changed")
    compare.add_argument(
        "--fail-if", metavar="LIMIT", action="append", default=[],
        help="exit 1 if a value changed so much: 'ttft_ms.p99 > +5%%', 'verdict.segment changed'",
    )  # fmt: skip
    compare.add_argument(
        "--html", metavar="FILE", type=Path, help="write a page with both in the same charts"
    )
    compare.add_argument("--picture", metavar="FILE", type=Path, help="write its first charts as one SVG")
    compare.add_argument("--markdown", metavar="FILE", type=Path, help="write the tables as Markdown")
    sweep = add("sweep", "run a grid of settings and seeds: what is gained for what?", _sweep)
    sweep.add_argument("scenario", metavar="S", help="a shipped scenario's name, or a file")
    sweep.add_argument(
        "--vary", metavar="KEY=V1,V2", action="append", required=True, help="a key and its values; repeatable"
    )
    _add_runs(sweep, seed)
    sweep.add_argument("--out", type=Path, help="folder of the sweep (default: runs/sweep-<name>)")
    sweep.add_argument("--executor", metavar="ADDRESS", help="dask://HOST:PORT: run on the workers of dask")


def _add_runs(parser: argparse.ArgumentParser, seed: Callable[[str], int]) -> None:
    """Add what every command has that makes many runs."""
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="change one value of each scenario"
    )
    parser.add_argument("--seed", type=seed, default=1, help="the first seed (default 1)")
    parser.add_argument("--seeds", type=COUNT, default=1, metavar="N", help="so many seeds (default 1)")
    parser.add_argument("--backend", choices=["auto", "native", "uml"], default="auto")
    parser.add_argument("--clock", choices=["virtual", "real"], help="default: virtual where it can be had")
    parser.add_argument("--jobs", type=COUNT, metavar="N", help="runs side by side (default: what fits)")


class _Clock:
    """Progress of many runs: how many are done and how long the rest will take."""

    def __init__(self, jobs: int, *, quiet: bool) -> None:
        self._progress = Progress(quiet=quiet)
        self._started = time.monotonic()
        self._seconds: list[float] = []
        self._jobs = jobs

    def tell(self, text: str, seconds: float, done: int, total: int) -> None:
        """Show that a run has ended."""
        from testbed.run.many import seconds_left

        self._seconds.append(seconds)
        left = seconds_left(self._seconds, total - done, self._jobs)
        rest = f", about {_duration(left)} left" if total > done else ""
        self._progress.step(f"{done} of {total}{rest}: {text}", time.monotonic() - self._started)

    def note(self, text: str) -> None:
        """Show a text beside the count."""
        self._progress.step(text, time.monotonic() - self._started)

    def end(self) -> None:
        """Leave the line."""
        self._progress.end()


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes >= 2 else f"{seconds:.0f} s"


def _jobs(options: argparse.Namespace) -> int:
    from testbed.run.many import default_jobs

    return options.jobs or default_jobs()


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


# ---- check ----------------------------------------------------------------------------


def _check(options: argparse.Namespace) -> int:
    """Run every case, print the table, write JUnit and goldens, and end as the worst case did."""
    from testbed.regress import check, text
    from testbed.regress.junit import junit
    from testbed.regress.toolchain import toolchain
    from testbed.scenario import shipped_scenarios

    if options.update and options.golden is None:
        raise InputError("--update writes goldens; say where, with --golden DIR")
    wanted = check.Wanted(
        scenarios=options.scenario or [name for name, _ in shipped_scenarios()],
        overrides=tuple(options.set),
        seeds=range(options.seed, options.seed + options.seeds),
        backend=options.backend,
        clock=options.clock,
        records=options.out,
        goldens=options.golden,
        update=options.update,
    )
    found = check.cases(wanted)
    first = found[0].plan
    tools = toolchain(first.backend, first.clock)
    clock = _Clock(_jobs(options), quiet=options.json)

    def tell(one: check.Judged, done: int, total: int) -> None:
        clock.tell(f"{one.case.name}: {one.outcome}", one.seconds, done, total)

    try:
        judged = check.check(found, _jobs(options), tools, tell)
    finally:
        clock.end()
    say(json.dumps(text.check_json(judged), indent=1) if options.json else text.check_text(judged))
    if options.junit:
        _write(options.junit, junit(judged))
    if options.update:
        written = check.update(judged, options.golden, tools)
        if not options.json:
            say(f"\n{len(written)} of {len(judged)} goldens written to {options.golden}{os.sep}")
    if check.worst(judged) != check.PASSED:
        raise _error(judged)
    return 0


def _error(judged: Any) -> TestbedError:
    """Return the error of the worst outcome."""
    from testbed.regress.check import EXIT_CODES, PASSED, worst

    outcome = worst(judged)
    bad = [one for one in judged if one.outcome != PASSED]
    first = next(one for one in bad if one.outcome == outcome)
    told = [*([first.reason] if first.reason else []), *first.failures]
    why = told[0] if told else f"its golden {first.golden.golden} does not hold"
    kinds: list[type[TestbedError]] = [ExpectationError, InputError, LabError, MeasurementError]
    kind = next(kind for kind in kinds if kind.exit_code == EXIT_CODES[outcome])
    return kind(f"{len(bad)} of {len(judged)} runs did not pass; {first.case.name}: {why}")


# ---- compare --------------------------------------------------------------------------


def _compare(options: argparse.Namespace) -> int:
    """Compare two sides, write what was asked for, and fail where a limit is broken."""
    from testbed.regress import compare_text
    from testbed.regress.compare import compare_all
    from testbed.regress.limits import broken, parse_limit

    limits = [parse_limit(text) for text in options.fail_if]
    compared = compare_all(options.before, options.after)
    found, alone = compared.comparisons, compared.alone
    over = broken(limits, found)
    names = (str(options.before), str(options.after))
    say(
        json.dumps(compare_text.as_json(found, over, alone), indent=1)
        if options.json
        else compare_text.compare_text(found, over, alone)
    )
    if options.markdown:
        _write(options.markdown, compare_text.markdown(found, over, names, alone))
    if options.html:
        from testbed.regress.compare_page import page

        _write(options.html, page(found, over, names, alone))
    if options.picture:
        from testbed.regress.compare_page import figures
        from testbed.regress.picture import picture

        _write(options.picture, picture(list(figures(found[0])), names, found[0].name))
    invalid = [run for one in found for run in one.invalid]
    if invalid:
        raise MeasurementError(
            f"{invalid[0].path}: the measurement is not valid; nothing follows from its values"
        )
    if over:
        first = over[0]
        raise ExpectationError(f"--fail-if {first.limit.text} ({first.scenario}): {first.how}")
    return 0


# ---- sweep ----------------------------------------------------------------------------


def _sweep(options: argparse.Namespace) -> int:
    """Plan the whole grid, run what has not been run, write the table and the page."""
    from testbed.record.writer import lock_folder
    from testbed.regress import sweep, sweep_page
    from testbed.regress.executors import executor
    from testbed.scenario import load_scenario

    out = options.out or RUNS / f"sweep-{load_scenario(options.scenario, options.set).name}"
    grid = _planned(options, out)
    with executor(options.executor) as pool, lock_folder(out):
        there = sweep.already(grid)
        clock = _Clock(_jobs(options) if pool is None else pool[1], quiet=False)
        if there:
            clock.note(f"{len(there)} of {len(grid.points)} points are there already")

        def tell(one: Any, count: int, total: int) -> None:
            name = " ".join([*one.task.overrides[len(options.set) : -1], f"seed {one.task.seed}"])
            clock.tell(f"{name}{f': {one.message}' if one.message else ''}", one.seconds, count, total)

        try:
            measured = sweep.run_grid(grid, there, _jobs(options), tell, pool[0] if pool else None)
        finally:
            clock.end()
        points = sweep.write_points(out, grid, measured)
        _write(out / sweep.PAGE, sweep_page.page(grid, measured))
        drawn = sweep_page.trade_picture(grid, measured)
        if drawn:
            _write(out / sweep.PICTURE, drawn)
    say(f"points  {points}\npage    {out / sweep.PAGE}")
    return _sweep_end(measured)


def _planned(options: argparse.Namespace, out: Path) -> Any:
    """Plan every point, and say how many are planned where that takes a while."""
    from testbed.regress.grid import build_grid, parse_vary

    progress, started = Progress(quiet=False), time.monotonic()
    told = started

    def tell(planned: int, count: int) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told >= PLANNING_TOLD_S:
            told = now
            progress.step(f"{planned} of {count} points are planned", now - started)

    try:
        return build_grid(
            options.scenario,
            [parse_vary(text) for text in options.vary],
            range(options.seed, options.seed + options.seeds),
            out,
            overrides=options.set,
            backend=options.backend,
            clock=options.clock,
            tell=tell,
        )
    finally:
        progress.end()


def _sweep_end(measured: Any) -> int:
    from testbed.regress.sweep import FAILED, NOT_VALID

    for status, kind in ((FAILED, LabError), (NOT_VALID, MeasurementError)):
        bad = [one for one in measured if one.status == status]
        if bad:
            where = f"{', '.join(bad[0].point.values)}, seed {bad[0].point.seed}"
            raise kind(f"{len(bad)} of {len(measured)} runs {status}; the first is {where}: {bad[0].message}")
    return 0
