"""Runs a grid and makes one table of it: `testbed sweep`.

A point's record is named by its plan, so that a sweep that was interrupted finds what it has finished: runs
are deterministic, and a finished one is not made again. A run that was killed has left a record that says so,
and is made again. Called by the command; the runs are made by `testbed.run.many`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.analysis.summary import FORMAT_VERSION
from testbed.errors import InputError
from testbed.record import layout
from testbed.record.codec import Damage, read_mapping
from testbed.record.files import write_whole
from testbed.regress.flat import Scalar
from testbed.regress.grid import Grid, Point
from testbed.regress.measures import RUN, measures
from testbed.run.many import Ended, Task, run_many
from testbed.screen import cell

POINTS = "points.csv"
PAGE = "sweep.html"
PICTURE = "sweep.svg"

COLUMNS = (
    *("verdict.segment", "verdict.share", "ttft_ms.p50", "ttft_ms.p99", "ttft_ms.max"),
    *("transfers.completed", "transfers.slowdown.p50", "transfers.slowdown.p99", "transfers.last_end_ms"),
    *("transfers.jain", "transfers.retransmissions", "fabric.utilisation", *RUN),
)
"""Keys of a summary that are columns of `points.csv`."""

OK, NOT_VALID, FAILED = "ok", "not valid", "failed"


@dataclass(frozen=True)
class Measured:
    """A point with its values by key; `status` is `ok`, `not valid` or `failed` (and `message` says why)."""

    point: Point
    status: str
    values: dict[str, Scalar]
    message: str = ""


Tell = Callable[[Ended, int, int], None]


def finished(point: Point) -> Measured | None:
    """Return what an earlier run of the point has measured, None where there is none that came to its end."""
    folder = point.task.out
    try:
        manifest, summary = (read_mapping(folder, name) for name in (layout.MANIFEST, layout.SUMMARY))
        status, versions = manifest["status"], (manifest["format_version"], summary["format_version"])
        whole = status == layout.COMPLETE and versions == (layout.FORMAT_VERSION, FORMAT_VERSION)
        return _measured(point, summary) if whole else None
    except (Damage, KeyError, TypeError, AttributeError, ValueError, IndexError):
        return None  # not a whole one: it is made again


def _measured(point: Point, summary: Any) -> Measured:
    fidelity, values = summary["fidelity"], measures(summary)
    status, message = (OK, "") if fidelity["valid"] else (NOT_VALID, fidelity["reasons"][0])
    return Measured(point, status, {key: values.get(key) for key in COLUMNS}, message)


def already(grid: Grid) -> dict[Task, Measured]:
    """Return the points that an earlier sweep has finished."""
    return {point.task: one for point in grid.points if (one := finished(point)) is not None}


def run_grid(
    grid: Grid, there: Mapping[Task, Measured], jobs: int, tell: Tell, pool: Executor | None = None
) -> list[Measured]:
    """Run every point that is not `there`, and return all of them in the grid's order.

    `tell` counts the runs that are made now.
    """
    # Two ways to write one setting (100kb, 0.1mb) are one run with one record.
    missing = {point.task.out: point.task for point in grid.points if point.task not in there}
    ended = {one.task.out: one for one in run_many([*missing.values()], jobs, tell, pool)}
    return [there.get(point.task) or _ended(point, ended[point.task.out]) for point in grid.points]


def _ended(point: Point, ended: Ended) -> Measured:
    if not ended.measured:
        return Measured(point, FAILED, {}, ended.message)
    try:
        return _measured(point, ended.summary())
    except OSError:  # a worker that does not see the same files
        return Measured(point, FAILED, {}, f"{point.task.out}: has no {layout.SUMMARY} here")


def points_csv(grid: Grid, measured: Sequence[Measured]) -> str:
    """Return a line for each point: the varied keys, the seed, its status, and `COLUMNS`.

    The same points give the same bytes, in whatever order they ran.
    """
    keys = [vary.key for vary in grid.varied]
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow([*map(cell, keys), "seed", "status", *COLUMNS])
    for one in measured:
        values = ["" if (value := one.values.get(key)) is None else value for key in COLUMNS]
        writer.writerow(map(cell, (*one.point.values, one.point.seed, one.status, *values)))
    return lines.getvalue()


def write_points(out: Path, grid: Grid, measured: Sequence[Measured]) -> Path:
    """Write `points.csv` into the sweep's folder and return its path."""
    path = out / POINTS
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_whole(path, points_csv(grid, measured))
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}; give another --out") from None
    return path
