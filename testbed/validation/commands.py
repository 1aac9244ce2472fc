"""The command `validate`: reads what was typed, measures, prints, and says by its exit what came of it."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.errors import ExpectationError, InputError
from testbed.progress import Progress
from testbed.units import whole_number

Add = Callable[..., argparse.ArgumentParser]


def add_commands(add: Add) -> None:
    """Add the command to the command line."""
    validate = add("validate", "the testbed against what it did not make", _validate, as_json=True)
    validate.add_argument(
        "names", metavar="NAME", nargs="*", help="measurements, families or patterns (default: all)"
    )
    validate.add_argument("--quick", action="store_true", help="only what fits into about two minutes")
    validate.add_argument("--list", action="store_true", help="print the measurements and run nothing")
    validate.add_argument(
        "--seeds", type=whole_number(1), default=1, help="seeds 1 to N where chance has a say (default 1)"
    )
    validate.add_argument(
        "--jobs", type=whole_number(1), metavar="N", help="runs side by side (default: what fits)"
    )
    validate.add_argument(
        "--page", type=Path, metavar="FILE", help="write the table as a page of documentation"
    )


def _validate(options: argparse.Namespace) -> int:
    """Measure what was asked for; InputError for an unknown name, ExpectationError when a row falls short."""
    from testbed.validation.cases import select
    from testbed.validation.page import listing
    from testbed.validation.suite import ALL

    chosen = select(ALL, options.names, quick=options.quick)
    if options.list:
        names = [{"name": case.name, "what": case.what, "quick": case.quick} for case in chosen]
        print(json.dumps(names, indent=1) if options.json else listing(chosen))
        return 0
    _require_writable(options.page)
    _require_kernel()
    if {case.family for case in chosen} == {"diagnosis"}:
        return _diagnosis(options, [case.name.partition(".")[2] for case in chosen])
    return _table(options, chosen)


def _require_writable(page: Path | None) -> None:
    if page is not None and not (page.parent.is_dir() and os.access(page.parent, os.W_OK)):
        raise InputError(f"{page}: cannot be written; give another --page")


def _require_kernel() -> None:
    """Raise MachineError now when nothing could be run."""
    from testbed.lab.kernels import find_kernel

    find_kernel("virtual")


def _table(options: argparse.Namespace, chosen: Any) -> int:
    from testbed.run.environment import made_with
    from testbed.run.many import default_jobs
    from testbed.validation.page import page, table_text
    from testbed.validation.suite import measure

    progress, started = Progress(quiet=options.json), time.monotonic()

    def tell(done: Any, count: int, total: int) -> None:
        word = "holds" if done.passed else "FALLS SHORT"
        progress.step(f"{count} of {total}: {done.case.name} {word}", time.monotonic() - started)

    found = measure(chosen, options.jobs or default_jobs(), options.seeds, tell)
    progress.end()
    rows = [row for measured in found for row in measured.rows]
    print(json.dumps([row.as_json() for row in rows], indent=1) if options.json else table_text(found))
    if options.page:
        options.page.write_text(page(found, _command(options), made_with()))
    short = [row for row in rows if not row.passed]
    if short:
        first = short[0]
        raise ExpectationError(
            f"{len(short)} of {len(rows)} rows fall short; the first is {first.name}: "
            f"{first.note or f'{first.shown}, expected {first.expected}'}"
        )
    return 0


def _command(options: argparse.Namespace) -> str:
    words = ["testbed validate", *(options.names or ())]
    words += ["--quick"] if options.quick else []
    words += ["--seeds", str(options.seeds)] if options.seeds != 1 else []
    return " ".join(words)


def _diagnosis(options: argparse.Namespace, scenarios: list[str]) -> int:
    """Print the confusion matrix."""
    from testbed.run.many import default_jobs
    from testbed.terminal import table
    from testbed.validation.diagnosis import cases, diagnose, matrix, page, right

    progress, started = Progress(quiet=options.json), time.monotonic()

    def tell(answer: Any, count: int, total: int) -> None:
        case, named = answer.case, " + ".join(answer.named)
        elapsed_s = time.monotonic() - started
        progress.step(f"{count} of {total}: {case.scenario}, seed {case.seed}: {named}", elapsed_s)

    answers = diagnose(cases(options.seeds, scenarios), options.jobs or default_jobs(), tell)
    progress.end()
    rows = matrix(answers)
    print(json.dumps(rows) if options.json else "\n".join(table(rows[0], rows[1:], indent="")))
    if options.page:
        options.page.write_text(page(answers, _command(options)))
    wrong = [answer for answer in answers if not right(answer)]
    if wrong:
        first = wrong[0]
        raise ExpectationError(
            f"{len(wrong)} of {len(answers)} runs did not name what their scenario declares; the first is "
            f"{first.case.scenario} with seed {first.case.seed}: {' + '.join(first.named)}"
        )
    return 0
