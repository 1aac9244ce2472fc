"""`rerun`, and what `run` does for `--twice` and `--seeds`."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.errors import ExpectationError, InputError, LabError, MeasurementError, TestbedError
from testbed.plan.model import Plan
from testbed.progress import Progress
from testbed.run.capture import Captures
from testbed.screen import say
from testbed.signals import scratch_folder
from testbed.units import whole_number

Add = Callable[..., argparse.ArgumentParser]
SEEDS_MOST = 10_000


def add_commands(add: Add) -> None:
    """Add `rerun` to the command line."""
    rerun = add("rerun", "repeat a record: does it come out the same?", _rerun, as_json=True)
    rerun.add_argument("record", metavar="DIR", type=Path, help="a record's folder")
    rerun.add_argument("--out", type=Path, help="keep the repetition's record here")


def add_run_options(run: argparse.ArgumentParser) -> None:
    """Add the options of `run` that make more than one run."""
    several = run.add_mutually_exclusive_group()
    several.add_argument("--twice", action="store_true", help="run it again: are the results the same bytes?")
    several.add_argument(
        "--seeds", type=whole_number(1, SEEDS_MOST), metavar="N", default=1, help="N seeds from --seed on"
    )
    run.add_argument(
        "--jobs", type=whole_number(1, SEEDS_MOST), metavar="N", help="with --seeds: runs side by side"
    )


# ---- rerun ----------------------------------------------------------------------------


def _rerun(options: argparse.Namespace) -> int:
    """Repeat a record and say what is the same; MeasurementError when the results differ."""
    from testbed.repeat.again import open_record, repeat

    record = open_record(options.record)
    if options.out is not None and options.out.resolve() == options.record.resolve():
        raise InputError(f"{options.out}: is the record that is repeated; give another --out")
    progress = Progress(quiet=options.json)
    with scratch_folder("rerun") as folder:
        try:
            found = repeat(record, options.out or folder / "record", progress.step, options.words)
        finally:
            progress.end()
    say(json.dumps(found.as_json(), indent=1) if options.json else found.text())
    if not found.same:
        raise MeasurementError(f"the repetition differs: {found.results[0]}")
    return 0


# ---- run --twice ----------------------------------------------------------------------


def run_twice(plan: Plan, scenario: str, first: Path, progress: Progress, captures: Captures) -> str | None:
    """Run the plan of the record `first` again and return where the results differ, None where nowhere."""
    from testbed.repeat.again import second_run

    with scratch_folder("twice") as folder:
        try:
            found = second_run(plan, scenario, first, folder, progress.step, captures)
        finally:
            progress.end()
    return str(found[0]) if found else None


# ---- run --seeds ----------------------------------------------------------------------


def run_seeds(options: argparse.Namespace, plan: Plan, out: Path) -> int:
    """Run the scenario with several seeds below `out`, print medians and intervals, end as the worst did."""
    from testbed.record.files import write_whole
    from testbed.record.writer import lock_folder
    from testbed.repeat.spread import over_seeds
    from testbed.report.spread import spread_page
    from testbed.run.many import Task, default_jobs, run_many

    seeds = range(options.seed, options.seed + options.seeds)
    tasks = [
        Task(options.scenario, seed, out / f"seed-{seed}", tuple(options.set), options.backend, options.clock)
        for seed in seeds
    ]
    progress, started = Progress(quiet=options.json), time.monotonic()

    def tell(one: Any, done: int, total: int) -> None:
        word = one.message or "done"
        progress.step(f"{done} of {total}: seed {one.task.seed}: {word}", time.monotonic() - started)

    with lock_folder(out):
        try:
            ended = run_many(tasks, options.jobs or default_jobs(), tell)
        finally:
            progress.end()
    broken = next((one for one in ended if not one.measured), None)
    if broken is not None:
        raise LabError(f"seed {broken.task.seed}: {broken.message}")
    found = over_seeds(plan.scenario, {one.task.seed: one.summary() for one in ended})
    write_whole(out / "seeds.json", json.dumps(found.as_json(), indent=1) + "\n")
    write_whole(out / "seeds.html", spread_page(found.as_json()))
    say(json.dumps(found.as_json(), indent=1) if options.json else spread_text(found, out))
    worst = _worst(ended, allow_invalid=options.allow_invalid)
    if worst is not None:
        raise worst
    return 0


def _worst(ended: Any, *, allow_invalid: bool) -> TestbedError | None:
    """Return the error of the first run that is not valid, or else of the first that expected otherwise."""
    kinds: tuple[tuple[int, type[TestbedError]], ...] = ((4, MeasurementError), (1, ExpectationError))
    for code, kind in kinds[1 if allow_invalid else 0 :]:
        for one in ended:
            if one.exit_code == code:
                return kind(f"seed {one.task.seed}: {one.message}")
    return None


def spread_text(found: Any, out: Path) -> str:
    """Return the table of the figures' medians and intervals."""
    from testbed.report.numbers import significant
    from testbed.terminal import table

    rows = [
        [
            each.figure,
            significant(each.median),
            f"{significant(each.low)} .. {significant(each.high)}",
            f"{100 * each.confidence:.3g} %",
            f"{significant(min(each.values))} .. {significant(max(each.values))}",
        ]
        for each in found.figures
    ]
    named = ", ".join(f"{name} in {count}" for name, count in found.verdicts)
    lines = [f"{found.scenario}, seeds {found.seeds[0]} to {found.seeds[-1]}: the verdict names {named}", ""]
    lines += table(["figure", "median", "interval", "holds it", "all seeds"], rows)
    return "\n".join([*lines, "", f"  report      {out / 'seeds.html'}"])
