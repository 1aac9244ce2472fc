"""The page of a sweep: heat maps, lines with the spread of seeds, and what is gained for what (Pareto)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from testbed.regress.compare_page import Figure
from testbed.regress.front import Group, front, groups
from testbed.regress.grid import Grid, Vary
from testbed.regress.pages import render, written
from testbed.regress.picture import picture
from testbed.regress.plots import ALIKE, COLOURS, Axis, Series, chart
from testbed.regress.sweep import OK, Measured
from testbed.report.numbers import format_bytes, format_count, format_ms, format_rate

SLICES_MOST = 6
"""So many maps of one quantity at most, where more than two keys are varied."""

TTFT, GOODPUT = "ttft_ms.p99", "run.goodput_bps"
QUEUE_MAX, QUEUE_MEAN, PAUSES = "run.queue_max_bytes", "run.queue_mean_bytes", "run.pauses"

QUANTITIES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    (TTFT, "Time to KV, p99", format_ms),
    (GOODPUT, "Throughput", format_rate),
    (QUEUE_MAX, "Highest queue", format_bytes),
    (QUEUE_MEAN, "Mean queue of the busiest port", format_bytes),
)


@dataclass(frozen=True)
class Map:
    """A heat map: rows and columns by value; a cell has its text and how dark it is, None without a value."""

    caption: str
    row_key: str
    column_key: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, float] | None, ...]], ...]


@dataclass(frozen=True)
class Trade:
    """Two quantities against each other, with the combinations on the front, best x first."""

    figure: Figure
    names: tuple[str, str]
    rows: tuple[tuple[str, str, str], ...]


def page(grid: Grid, measured: Sequence[Measured]) -> str:
    """Return the page as HTML."""
    found = groups(measured)
    alike = _alike(found)
    return render(
        "sweep.html.j2",
        grid=grid,
        measured=measured,
        bad=[one for one in measured if one.status != OK],
        alike=alike,
        maps=[] if alike else list(_maps(grid, found)),
        lines=list(_lines(grid, found)),
        trades=[] if alike else list(_trades(grid, found)),
    )


def _alike(found: Sequence[Group]) -> tuple[tuple[str, str], ...]:
    """Return each quantity with its mean where no setting makes a difference in any, nothing otherwise."""
    shown = []
    for key, title, write in QUANTITIES:
        means = [mean for group in found if (mean := group.mean(key)) is not None]
        if means and max(means) - min(means) > ALIKE * abs(max(means)):
            return ()
        if means:
            shown.append((title, write(sum(means) / len(means))))
    return tuple(shown) if len(found) > 1 else ()


def trade_picture(grid: Grid, measured: Sequence[Measured]) -> str:
    """Return what is gained for what as one SVG document; nothing where no setting has been measured."""
    figures = [trade.figure for trade in _trades(grid, groups(measured))]
    names = ("no other is better in both", "another one is")
    return picture(figures, names, f"Sweep of {grid.scenario}") if figures else ""


# ---- heat maps ------------------------------------------------------------------------


def _maps(grid: Grid, found: Sequence[Group]) -> Iterator[Map]:
    if len(grid.varied) < 2:
        return
    rows, columns, *rest = grid.varied
    slices = list(product(*(vary.values for vary in rest)))[:SLICES_MOST]
    for key, title, _ in QUANTITIES[:3]:
        means = [mean for group in found if (mean := group.mean(key)) is not None]
        for others in slices:
            fixed = ", ".join(f"{vary.key} {value}" for vary, value in zip(rest, others, strict=True))
            if means:
                yield _map(f"{title}{f' ({fixed})' if fixed else ''}", key, rows, columns, others, found)


def _map(
    caption: str, key: str, rows: Vary, columns: Vary, others: tuple[str, ...], found: Sequence[Group]
) -> Map:
    means = {group.values: mean for group in found if (mean := group.mean(key)) is not None}
    low, high = min(means.values()), max(means.values())

    def cell(row: str, column: str) -> tuple[str, float] | None:
        mean = means.get((row, column, *others))
        if mean is None:
            return None
        return written(key, mean), (mean - low) / (high - low) if high - low > ALIKE * abs(high) else 0.0

    body = tuple((row, tuple(cell(row, column) for column in columns.values)) for row in rows.values)
    return Map(caption, rows.key, columns.key, columns.values, body)


# ---- lines ----------------------------------------------------------------------------


def _lines(grid: Grid, found: Sequence[Group]) -> Iterator[tuple[Figure, tuple[str, ...]]]:
    first, *rest = grid.varied
    lines = list(product(*(vary.values for vary in rest)))[:COLOURS]
    by_values = {group.values: group for group in found}
    for key, title, write in QUANTITIES:
        series = [_line(key, first, others, by_values) for others in lines]
        shown = [one for one in series if one.points]
        if shown:
            drawing = chart(
                shown, Axis(first.key, str, first.values), Axis(title, write), f"{title} by {first.key}"
            )
            yield Figure(title, drawing), tuple(one.name for one in shown)


def _line(key: str, first: Vary, others: tuple[str, ...], by_values: dict[tuple[str, ...], Group]) -> Series:
    points, spread = [], []
    for at, value in enumerate(first.values):
        group = by_values.get((value, *others))
        if group is not None and key in group.spreads:
            one = group.spreads[key]
            points.append((float(at), one.mean))
            spread.append((one.low, one.high))
    return Series(", ".join(others), tuple(points), tuple(spread))


# ---- what is gained for what ----------------------------------------------------------


def _trades(grid: Grid, found: Sequence[Group]) -> Iterator[Trade]:
    yield from _trade(
        grid, found, (QUEUE_MAX, "highest queue", format_bytes), (TTFT, "time to KV, p99", format_ms)
    )
    yield from _trade(
        grid,
        found,
        (QUEUE_MEAN, "mean queue", format_bytes),
        (GOODPUT, "throughput", format_rate),
        higher=True,
    )
    if any(group.mean(PAUSES) for group in found):
        yield from _trade(grid, found, (PAUSES, "pauses", _count), (TTFT, "time to KV, p99", format_ms))


def _count(value: float) -> str:
    return format_count(round(value))


_Quantity = tuple[str, str, Callable[[float], str]]


def _trade(
    grid: Grid, found: Sequence[Group], x: _Quantity, y: _Quantity, *, higher: bool = False
) -> Iterator[Trade]:
    both = [
        (group, (across, up))
        for group in found
        if (across := group.mean(x[0])) is not None and (up := group.mean(y[0])) is not None
    ]
    if not both:
        return
    best = front([point for _, point in both], higher_y=higher)
    others = [at for at in range(len(both)) if at not in best]
    words = [_combination(grid, group) for group, _ in both]

    def series(name: str, chosen: Sequence[int], *, joined: bool) -> Series:
        notes = tuple(f"{words[at]}: {y[2](both[at][1][1])}, {x[2](both[at][1][0])}" for at in chosen)
        return Series(name, tuple(both[at][1] for at in chosen), joined=joined, steps=True, labels=notes)

    drawn = [series("the front", best, joined=True), series("others", others, joined=False)]
    title = f"{y[1][0].upper()}{y[1][1:]} against {x[1]}"
    drawing = chart(drawn, Axis(x[1], x[2]), Axis(y[1], y[2], from_zero=False), title)
    rows = tuple((words[at], x[2](both[at][1][0]), y[2](both[at][1][1])) for at in best)
    yield Trade(Figure(title, drawing), (x[1], y[1]), rows)


def _combination(grid: Grid, group: Group) -> str:
    pairs = zip(grid.varied, group.values, strict=True)
    return ", ".join(f"{vary.key.rpartition('.')[2]} {value}" for vary, value in pairs)
