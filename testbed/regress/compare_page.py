"""The page of a comparison: the table, and both sides in the same charts. Reads the records' raw facts."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from markupsafe import Markup

from testbed.analysis.losses import SENDER
from testbed.errors import InputError
from testbed.record import layout
from testbed.record.codec import Damage, read_text
from testbed.record.reader import Record
from testbed.regress.compare import Comparison, Run, centre
from testbed.regress.compare_text import by, headline, left_out, span
from testbed.regress.flat import number
from testbed.regress.limits import Broken
from testbed.regress.measures import SWITCHES
from testbed.regress.pages import render
from testbed.regress.plots import Axis, Series, chart
from testbed.report.binning import bin_edges, bin_level
from testbed.report.numbers import format_bytes, format_ms
from testbed.scenario.problems import shown
from topologies.model import SEGMENTS

BINS = 240

_AGAIN = "make it again: testbed report"


@dataclass(frozen=True)
class Figure:
    """A chart with its title and a note below it."""

    title: str
    drawing: Markup
    note: str = ""


@dataclass(frozen=True)
class Part:
    """One scenario's comparison with its charts."""

    comparison: Comparison
    figures: tuple[Figure, ...]
    shares: tuple[tuple[str, tuple[tuple[str, float], ...]], ...]


def page(
    comparisons: Sequence[Comparison],
    broken: Sequence[Broken],
    labels: Sequence[str],
    alone: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the page as HTML."""
    parts = [Part(one, tuple(figures(one)), _shares(one)) for one in comparisons]
    return render(
        "compare.html.j2",
        labels=labels,
        headline=headline(comparisons, broken),
        broken=broken,
        left_out=left_out(alone) if alone else "",
        parts=parts,
        segments=(*SEGMENTS, SENDER),
        span=span,
        by=by,
    )


def figures(one: Comparison) -> Iterator[Figure]:
    """Yield the charts that have both sides in them."""
    sides = (one.before, one.after)
    curves = [_completion(name, runs) for name, runs in zip("AB", sides, strict=True)]
    if all(curve.points for curve in curves):
        yield Figure(
            "Share of transfers completed after a time",
            chart(
                curves,
                Axis("time to KV", format_ms),
                Axis("share", "{:.0%}".format),
                "Completion of both sides",
            ),
            "All seeds together." if max(map(len, sides)) > 1 else "",
        )
    queues = [_queue(name, runs[0]) for name, runs in zip("AB", sides, strict=True)]
    if all(curve.points for curve in queues):
        links = " and ".join(dict.fromkeys(curve.labels[0] for curve in queues))
        yield Figure(
            f"Queue of {links}",
            chart(
                queues, Axis("time", format_ms), Axis("queue", format_bytes), "Queue of both sides over time"
            ),
            f"The switch port with the highest mean queue; the highest sample in each of {BINS} bins.",
        )
    for key, title in (
        ("ttft_ms.p99", "Time to KV, p99, by seed"),
        ("run.queue_max_bytes", "Highest queue, by seed"),
    ):
        figure = _by_seed(one, key, title)
        if figure is not None:
            yield figure


def _completion(name: str, runs: Sequence[Run]) -> Series:
    times = sorted(chain.from_iterable(_times(run.path) for run in runs))
    steps = [(time, (rank + 1) / len(times)) for rank, time in enumerate(times)]
    # Some hundred steps tell the same as a million.
    stride = max(1, len(steps) // 400)
    kept = [*steps[::stride], *steps[-1:]] if steps else []
    points = ((0.0, 0.0), *kept) if kept else ()
    return Series(name, points, marked=False, steps=True)


def _times(record: Path) -> list[float]:
    try:
        rows = csv.DictReader(io.StringIO(read_text(record, layout.TRANSFERS)))
        times = [float(row["fct_ms"]) for row in rows if row["fct_ms"]]
        if not all(map(math.isfinite, times)):
            raise ValueError("a time is no number")
    except Damage as damage:
        raise InputError(f"{record}: {damage}; {_AGAIN} {record}") from None
    except (KeyError, ValueError, csv.Error) as error:
        wrong = f"{layout.TRANSFERS} is none of testbed's ({shown(repr(error))})"
        raise InputError(f"{record}: {wrong}; {_AGAIN} {record}") from None
    return times


def _queue(name: str, run: Run) -> Series:
    record = Record.open(run.path, verify=False)
    link = _busiest(record, run)
    series = record.series(link) if link else None
    if series is None or len(series.time_ns) < 2:
        return Series(name, ())
    end_ns = min(float(series.time_ns[-1]), (number(run.values["transfers.last_end_ms"]) or 0.0) * 1.02e6)
    edges = bin_edges(0.0, max(end_ns, 1.0), BINS)
    level = bin_level(series.time_ns, series.backlog_bytes, edges).maximum
    points = tuple((float(at) / 1e6, float(value)) for at, value in zip(edges[:-1], level, strict=True))
    return Series(name, points, marked=False, steps=True, labels=(str(link),))


def _busiest(record: Record, run: Run) -> str | None:
    links = [link.name for link in record.plan.topology.all_links if link.segment in SWITCHES]
    means = {name: number(run.values.get(f"links.{name}.queue_bytes.mean")) or 0.0 for name in links}
    return max(means, key=lambda name: means[name], default=None)


def _by_seed(one: Comparison, key: str, title: str) -> Figure | None:
    row = next((row for row in one.rows if row.key == key), None)
    sides: tuple[Any, ...] = (row.before, row.after) if row is not None else ()
    if max(len(one.before), len(one.after)) < 2 or any(
        number(value) is None for side in sides for value in side
    ):
        return None
    series = [
        Series(name, tuple((float(at), float(value)) for at, value in enumerate(side)), joined=False)
        for name, side in zip("AB", sides, strict=True)
    ]
    seeds = max(one.before, one.after, key=len)
    names = tuple(str(run.seed) for run in seeds)
    form = format_bytes if key.endswith("_bytes") else format_ms
    return Figure(title, chart(series, Axis("seed", str, names), Axis("", form), title))


def _shares(one: Comparison) -> tuple[tuple[str, tuple[tuple[str, float], ...]], ...]:
    rows = {row.key: row for row in one.rows}
    found: list[tuple[str, tuple[tuple[str, float], ...]]] = []
    for name, side in (("A", "before"), ("B", "after")):
        shares = []
        for segment in (*SEGMENTS, SENDER):
            row = rows.get(f"verdict.shares.{segment}")
            shares.append((segment, number(centre(getattr(row, side))) or 0.0 if row else 0.0))
        found.append((name, tuple((segment, share) for segment, share in shares if share > 0)))
    return tuple(found)
