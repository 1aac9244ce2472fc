"""A comparison as a table in the terminal, and as Markdown for a pull request. Text only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from testbed.regress.compare import Comparison, Row, centre
from testbed.regress.flat import Scalar, number
from testbed.regress.limits import Broken
from testbed.regress.pages import written
from testbed.report.numbers import significant
from testbed.screen import printable
from testbed.terminal import table

HEAD = ("", "A", "B", "change", "")
LEAST_PERCENT = 0.1
"""Below it, a change is written with two decimals: more digits of it tell nothing."""
LEAST_SHOWN_PERCENT = 0.01

ABOUT = {"ttft_ms.p99": "time to KV p99", "run.queue_max_bytes": "highest queue"}
"""What the headline is about, where it differs."""


def by(row: Row) -> str:
    """Return by how much a row changed: in percent of what it was, where that is a number."""
    change = row.change
    if row.same:
        return "0"
    if change.relative is None:
        return "" if number(change.before) is None else "from 0"
    percent = change.relative * 100
    if abs(percent) < LEAST_SHOWN_PERCENT:
        return f"<{LEAST_SHOWN_PERCENT}\N{NO-BREAK SPACE}%"
    text = significant(percent, 3) if abs(percent) >= LEAST_PERCENT else f"{percent:.2f}"
    return f"{'+' if percent > 0 else ''}{text}\N{NO-BREAK SPACE}%"


def span(key: str, values: Sequence[Scalar]) -> str:
    """Return one value, or the mean of several with the lowest and highest."""
    numbers = sorted(found for value in values if (found := number(value)) is not None)
    middle = written(key, centre(values))
    low, high = (written(key, value) for value in (numbers[0], numbers[-1])) if numbers else ("", "")
    return middle if low == high else f"{middle} ({low} to {high})"


def compare_text(
    comparisons: Sequence[Comparison], broken: Sequence[Broken], alone: Sequence[tuple[str, str]] = ()
) -> str:
    """Return what `testbed compare` prints."""
    lines: list[str] = []
    for one in comparisons:
        lines += ["", *_head(one)]
        rows = [
            [
                row.key,
                *(written(row.key, centre(side)) for side in (row.before, row.after)),
                by(row),
                row.judgement(),
            ]
            for row in one.shown
        ]
        lines += table(HEAD, rows)
        lines.append(f"  {len(one.differing)} of {len(one.rows)} values differ")
    lines += ["", left_out(alone)] if alone else []
    lines += ["", *_broken(broken)] if broken else []
    return "\n".join(lines[1:])


def _head(one: Comparison) -> Iterator[str]:
    yield f"{one.name}: A {_seeds(one.before)}, B {_seeds(one.after)}"
    for change in one.settings:
        yield f"  {change.key}: {_set(change.before)} -> {_set(change.after)}"
    for run in one.invalid:
        yield f"  {run.path}: the measurement is NOT VALID"


def _seeds(runs: Sequence[Any]) -> str:
    return f"seed {runs[0].seed}" if len(runs) == 1 else f"{len(runs)} seeds"


def _set(value: Scalar) -> str:
    return "not set" if value is None else str(value)


def _broken(broken: Sequence[Broken]) -> Iterator[str]:
    for one in broken:
        yield f"BROKEN {one.limit.text} ({one.scenario}): {one.how}"


def left_out(alone: Sequence[tuple[str, str]]) -> str:
    """Return which scenarios only one side has, in one line."""
    return f"not compared: {', '.join(f'{name} (only in {side})' for side, name in alone)}"


def markdown(
    comparisons: Sequence[Comparison],
    broken: Sequence[Broken],
    names: Sequence[str],
    alone: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the comparison as Markdown: what is broken first, a table for each scenario."""
    lines = [f"### {_cell(headline(comparisons, broken))}", ""]
    lines += [f"A: {_code(names[0])}, B: {_code(names[1])}", ""]
    lines += [
        f"* **{_cell(one.limit.text)}** is broken ({_cell(one.scenario)}): {_cell(one.how)}" for one in broken
    ]
    for one in comparisons:
        lines += ["", f"**{_cell(one.name)}** (A {_seeds(one.before)}, B {_seeds(one.after)})", ""]
        lines += [
            f"{_code(change.key)}: {_cell(_set(change.before))} -> {_cell(_set(change.after))}  "
            for change in one.settings
        ]
        lines += ["", "| | A | B | change | more than chance? |", "|---|--:|--:|--:|---|"]
        for row in one.shown:
            cells = (
                span(row.key, row.before),
                span(row.key, row.after),
                by(row),
                row.judgement(),
            )
            lines.append(" | ".join((f"| {_code(row.key)}", *map(_cell, cells))) + " |")
        lines.append(f"\n{len(one.differing)} of {len(one.rows)} values differ.")
    lines += ["", _cell(left_out(alone))] if alone else []
    return "\n".join(lines) + "\n"


_MEANT = str.maketrans({"|": "\\|", "`": "\\`", "[": "\\[", "<": "&lt;", "&": "&amp;", "\n": " "})
"""What Markdown and HTML would take for a table's edge, code, a link, a picture or an element."""

_IN_CODE = str.maketrans({"|": "\\|", "`": "'", "\n": " "})


def _cell(text: str) -> str:
    return printable(text.translate(_MEANT))


def _code(text: str) -> str:
    """Return a name between backticks, none of which is its own."""
    return f"`{printable(text.translate(_IN_CODE))}`"


def headline(comparisons: Sequence[Comparison], broken: Sequence[Broken]) -> str:
    """Return the comparison in one sentence."""
    if broken:
        return f"{len(broken)} limit{'s' if len(broken) > 1 else ''} broken"
    if all(not one.differing for one in comparisons):
        return "Nothing differs"
    found = []
    for one in comparisons:
        rows = {row.key: row for row in one.rows}
        told = [
            f"{words} {by(rows[key])}" for key, words in ABOUT.items() if key in rows and not rows[key].same
        ]
        found.append(f"{one.name}: {', '.join(told) or 'little differs'}")
    return "; ".join(found[:3]) + ("; ..." if len(found) > 3 else "")


def as_json(
    comparisons: Sequence[Comparison], broken: Sequence[Broken], alone: Sequence[tuple[str, str]] = ()
) -> dict[str, Any]:
    """Return the comparison as plain values: every key that differs, and what is broken."""
    return {
        "comparisons": [
            {
                "scenario": one.name,
                "seeds": [[run.seed for run in side] for side in (one.before, one.after)],
                "settings": [[change.key, change.before, change.after] for change in one.settings],
                "changes": [
                    {"key": row.key, "before": row.before, "after": row.after, "p": row.p}
                    for row in one.differing
                ],
            }
            for one in comparisons
        ],
        "broken": [{"limit": one.limit.text, "scenario": one.scenario, "how": one.how} for one in broken],
        "not_compared": [{"side": side, "scenario": name} for side, name in alone],
    }
