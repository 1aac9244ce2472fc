"""The command `testbed clocks`: its words on the command line, and its table on standard output."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from testbed.errors import ExpectationError
from testbed.progress import Progress
from testbed.signals import scratch_folder


def add_clocks(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command by `add`, which makes a subcommand."""
    parser = add("clocks", "virtual time and a real clock side by side", _clocks)
    parser.add_argument("scenario", metavar="S", help="a shipped scenario's name, or a file")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="change one value")
    parser.add_argument(
        "--dilation", metavar="K,...", type=_dilations, required=True, help="dilations to try, as 500,1000"
    )


def _dilations(text: str) -> list[float]:
    try:
        values = [float(word) for word in text.split(",")]
    except ValueError:
        values = [0.0]
    if not all(1 <= value < float("inf") for value in values):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers from 1 on, as 500,1000")
    return values


def _clocks(options: argparse.Namespace) -> int:
    """Run a scenario in virtual time and at each dilation; 1 when a valid run differs from virtual time."""
    from testbed.clocks.rows import departures, lines, plan_clock, run_clock
    from testbed.terminal import table

    plans = [plan_clock(options.scenario, options.set, dilation) for dilation in (None, *options.dilation)]
    progress, rows = Progress(quiet=False), []
    with scratch_folder("clocks") as folder:
        for number, (scenario, plan) in enumerate(plans):
            progress.line(f"dilation {plan.dilation:g}" if number else "virtual time")
            rows.append(run_clock(scenario, plan, folder / f"{number}"))
    progress.end()
    head, *cells = lines(rows)
    print("\n".join(table(head, cells, indent="")))
    if any(departures(row, rows[0]) for row in rows):
        raise ExpectationError("a valid run on the real clock differs from virtual time")
    return 0
