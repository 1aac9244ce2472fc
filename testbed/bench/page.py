"""The bench as text: the table in the terminal and the page of the documentation. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from testbed.bench.figures import Figure
from testbed.bench.results import Result
from testbed.bench.sections import Section

WIDTH = 80
INDENT = " " * 6

BEFORE = """\
What a run costs in seconds and memory, on one machine. A figure is the median of several runs, with the
least and the greatest beside it; a ratio is that of two measurements in turn, and the median is that of
the ratios. Each stands beside the command that made it. `make bench` measures everything anew, `testbed
bench SECTION... --results DIR --page FILE` some sections, each of which names the state of the code and
the machine it was measured with. No test looks at these figures: another machine has others."""


def listing(sections: Sequence[Section]) -> str:
    """Return the sections with what each is about."""
    width = max(len(section.name) for section in sections)
    return "\n".join(f"{section.name:{width}}  {section.title}" for section in sections)


def text(results: Sequence[Result]) -> str:
    """Return each figure on lines of at most 80 columns."""
    lines = []
    for result in results:
        lines.append(result.section)
        for figure in result.found.figures:
            aim = f"; aim: {figure.aim}" if figure.aim else ""
            spread = f" ({figure.spread})" if figure.spread else ""
            lines += textwrap.wrap(f"{figure.what}: {figure.shown}{spread}{aim}", WIDTH, initial_indent="  ",
                                   subsequent_indent=INDENT)  # fmt: skip
    return "\n".join(lines)


def page(sections: Sequence[Section], results: Sequence[Result], command: str) -> str:
    """Return the page: of each measured section its prose, its table, and what it was made with."""
    titles = {section.name: section.title for section in sections}
    lines = ["# Performance", "", BEFORE, "", f"Made by `{command}`; do not edit.", ""]
    for result in results:
        lines += [f"## {result.section}: {titles[result.section]}", ""]
        lines += [result.found.prose.strip(), ""] if result.found.prose else []
        lines += [*_table(result.found.figures), ""]
        made = "; ".join(f"{name}: {said}" for name, said in result.made_with.items())
        lines += [f"Measured with {made}.", ""]
    return "\n".join(lines)


def _table(figures: Sequence[Figure]) -> list[str]:
    lines = ["| what | median | least to most | aim | command |", "|" + "---|" * 5]
    for figure in figures:
        cells = [figure.what, figure.shown, figure.spread, figure.aim, f"`{figure.command}`"]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines
