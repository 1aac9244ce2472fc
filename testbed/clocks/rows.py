"""`testbed clocks`: one scenario in virtual time and, dilated, on a real clock, in one table.

Shows from which dilation on a machine can be believed, and that what it measures then is what virtual time
measures. Called by the command line; the runs themselves are `testbed.run.launch`'s.
"""

from __future__ import annotations

import json
import math
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.analysis import write_outputs
from testbed.errors import DeadlineError
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.record.reader import Record
from testbed.run.launch import resolve_backend, run_plan
from testbed.scenario import Scenario, load_scenario
from testbed.scenario.dump import scenario_yaml

SHARE = 0.05
"""How far a valid run on a real clock may be from virtual time."""
QUEUE_SHARE = 0.15
"""The same for the mean queue: a difference of two rates, and so the most sensitive figure."""

CHANCE = 2.0
"""The share of marks may be off by so many standard deviations more: each packet is marked by chance, so that
of n marks two runs differ by sqrt(2 / n) of their number."""

HEAD = ("clock", "dilation", "last end", "p99", "queue", "peak", "CE", "CPU", "")


@dataclass(frozen=True)
class Figures:
    """What is compared: times in scenario milliseconds, queues in bytes of the link most marked."""

    last_end_ms: float
    slowdown_p99: float
    queue_mean: float
    queue_peak: float
    ce_share: float
    ce_marks: int


@dataclass(frozen=True)
class Row:
    """One run. `failed` names its checks of validity that failed; `cpu`: how many processors it kept busy."""

    clock: str
    dilation: float
    figures: Figures | None
    failed: tuple[str, ...]
    cpu: float


def figures(summary: dict[str, Any], mtu: int) -> Figures:
    """Return what is compared of a run's summary."""
    link = max(summary["links"].values(), key=lambda link: (link["ce_marks"], link["queue_bytes"]["mean"]))
    transfers = summary["transfers"]
    packets = link["bytes"] / (mtu + 14)
    return Figures(
        last_end_ms=transfers["last_end_ms"],
        slowdown_p99=transfers["slowdown"]["p99"],
        queue_mean=link["queue_bytes"]["mean"],
        queue_peak=link["queue_bytes"]["max"],
        ce_share=link["ce_marks"] / packets if packets else 0.0,
        ce_marks=link["ce_marks"],
    )


def plan_clock(scenario: str, sets: Sequence[str], dilation: float | None) -> tuple[Scenario, Plan]:
    """Return a scenario and its plan, in virtual time where `dilation` is None.

    Raises as `load_scenario` and `build_plan` do.
    """
    sets = [*sets, f"dilation={1 if dilation is None else dilation:g}"]
    backend, clock = ("uml", "virtual") if dilation is None else resolve_backend("auto", "real")
    loaded = load_scenario(scenario, sets)
    return loaded, build_plan(loaded, seed=1, backend=backend, clock=clock)


def run_clock(scenario: Scenario, plan: Plan, folder: Path) -> Row:
    """Run a plan, with its record in `folder`.

    Raises as `run_plan` does; a run that a deadline ended is a row without figures.
    """
    clock, began, cpu_s = plan.clock, time.monotonic(), _cpu_s()
    try:
        run_plan(plan, scenario_yaml(scenario), folder, lambda step, seconds: None)
    except DeadlineError:
        return Row(clock, plan.dilation, None, ("deadline",), 0.0)
    cpu = (_cpu_s() - cpu_s) / (time.monotonic() - began)
    return _row(plan, folder, cpu)


def _row(plan: Plan, folder: Path, cpu: float) -> Row:
    summary = json.loads(json.dumps(write_outputs(Record.open(folder))))
    failed = tuple(check["name"] for check in summary["fidelity"]["checks"] if not check["ok"])
    return Row(plan.clock, plan.dilation, figures(summary, plan.mtu), failed, cpu)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def departures(row: Row, virtual: Row) -> list[str]:
    """Return the figures in which a valid row is further from virtual time than it may be.

    A run that is not valid has none: nothing is claimed of it.
    """
    if row.failed or row.figures is None or virtual.figures is None:
        return []
    away = []
    by_chance = CHANCE * math.sqrt(2 / max(virtual.figures.ce_marks, 1))
    for name, share in (
        ("last_end_ms", SHARE), ("slowdown_p99", SHARE), ("ce_share", SHARE + by_chance),
        ("queue_mean", QUEUE_SHARE),
    ):  # fmt: skip
        here, there = getattr(row.figures, name), getattr(virtual.figures, name)
        if abs(here - there) > share * abs(there):
            away.append(name)
    return away


def lines(rows: Sequence[Row]) -> list[list[str]]:
    """Return the table's cells, the head first. The first row is virtual time's."""
    return [list(HEAD), *(_cells(row, rows[0]) for row in rows)]


def _cells(row: Row, virtual: Row) -> list[str]:
    words = [row.clock, "-" if row.clock == "virtual" else f"{row.dilation:g}"]
    if row.figures is None:
        return [*words, "-", "-", "-", "-", "-", "-", f"not valid: {', '.join(row.failed)}"]
    found = row.figures
    away = departures(row, virtual)
    said = f"not valid: {', '.join(row.failed)}" if row.failed else "valid"
    return [
        *words, f"{found.last_end_ms:.2f} ms", f"{found.slowdown_p99:.2f}",
        f"{found.queue_mean / 1e3:.1f} kB", f"{found.queue_peak / 1e3:.1f} kB",
        f"{found.ce_share:.1%}", f"{row.cpu:.2f}",
        f"differs: {', '.join(away)}" if away else said,
    ]  # fmt: skip
