"""The validation as text: the table in the terminal and the page of the documentation. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.validation.cases import Case
from testbed.validation.prose import BEFORE, CANNOT
from testbed.validation.rows import Row
from testbed.validation.suite import FAMILIES, Measured

WIDTH = 80
INDENT = " " * 6


def listing(cases: Sequence[Case]) -> str:
    """Return the cases with what each is about; `*` marks those of `--quick`."""
    width = max(len(case.name) for case in cases)
    return "\n".join(f"{'*' if case.quick else ' '} {case.name:{width}}  {case.what}" for case in cases)


def table_text(found: Sequence[Measured]) -> str:
    """Return each row on a few lines of at most 80 columns, and the count of those that hold."""
    rows = [row for measured in found for row in measured.rows]
    lines = [line for row in rows for line in _lines(row)]
    holding = sum(row.passed for row in rows)
    return "\n".join([*lines, f"{holding} of {len(rows)} rows hold"])


def _lines(row: Row) -> list[str]:
    head = f"{'ok' if row.passed else 'FAILS':5} {row.name}"
    said = [row.what, f"{row.shown}; expected {row.expected}; tolerance {row.tolerance}"]
    said += [f"({row.why}; {row.source})"] if row.why else []
    said += [row.note] if row.note else []
    return [head] + [
        line
        for text in said
        for line in textwrap.wrap(text, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT)
    ]


def page(found: Sequence[Measured], command: str, environment: Mapping[str, Any]) -> str:
    """Return the page: what was held against what, a table for each family, and what cannot be shown."""
    rows = [row for measured in found for row in measured.rows]
    holding = sum(row.passed for row in rows)
    lines = ["# What the numbers were held against", "", BEFORE, ""]
    lines += [f"Made by `{command}`; do not edit. {holding} of {len(rows)} rows hold.", ""]
    lines += [
        "| made with | |",
        "|---|---|",
        *(f"| {name} | {text} |" for name, text in environment.items()),
        "",
    ]
    for family, (_, about) in FAMILIES.items():
        own = [row for measured in found if measured.case.family == family for row in measured.rows]
        if own:
            lines += [f"## {family}: {about}", "", *_table(own), ""]
    return "\n".join([*lines, CANNOT])


def _table(rows: Sequence[Row]) -> list[str]:
    lines = ["| | what | measured | expected | tolerance | where it comes from | source |", "|" + "---|" * 7]
    for row in rows:
        mark = "holds" if row.passed else "**falls short**"
        what = row.what + (f". {row.note}" if row.note else "")
        cells = [mark, what, row.shown, row.expected, row.tolerance, row.why, row.source]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines
