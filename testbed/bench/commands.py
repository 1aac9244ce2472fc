"""The command `bench`: measures sections one after the other, prints their figures, writes the page."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import InputError
from testbed.progress import Progress
from testbed.units import whole_number

if TYPE_CHECKING:
    from testbed.bench.results import Result
    from testbed.bench.sections import Section

RUNS = 5


def add_commands(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    bench = add("bench", "what the testbed costs in seconds and memory", _bench, as_json=True)
    bench.add_argument("names", metavar="SECTION", nargs="*", help="what to measure (default: everything)")
    bench.add_argument("--list", action="store_true", help="print the sections and measure nothing")
    bench.add_argument(
        "--runs", type=whole_number(1), default=RUNS, help=f"runs of each measurement (default {RUNS})"
    )
    bench.add_argument(
        "--results", type=Path, metavar="DIR", help="keep each section's figures there, as JSON"
    )
    bench.add_argument(
        "--page", type=Path, metavar="FILE", help="write a page of all sections that --results has"
    )
    bench.add_argument("--measured", action="store_true", help="measure nothing: show what --results has")


def _bench(options: argparse.Namespace) -> int:
    """Measure what was asked for and show it; InputError for an unknown section or a place that is none."""
    from testbed.bench import results
    from testbed.bench.page import listing, page, text
    from testbed.bench.sections import select
    from testbed.bench.suite import SECTIONS

    chosen = select(SECTIONS, options.names)
    if options.list:
        names = [{"name": section.name, "title": section.title} for section in chosen]
        print(json.dumps(names, indent=1) if options.json else listing(chosen))
        return 0
    _require_places(options)
    if options.measured:
        kept = [results.read(options.results, section.name) for section in chosen]
        shown = [result for result in kept if result]
    else:
        shown = _measure(options, chosen)
    if options.page:
        known = [results.read(options.results, section.name) for section in SECTIONS]
        options.page.write_text(page(SECTIONS, [result for result in known if result], _command(options)))
    if options.json:
        print(json.dumps({each.section: each.found.as_json() for each in shown}, indent=1))
    else:
        print(text(shown))
    return 0


def _measure(options: argparse.Namespace, chosen: list[Section]) -> list[Result]:
    """Measure sections one after the other: nothing else of this command runs beside a measurement."""
    from testbed.bench.results import Result, machine, write
    from testbed.bench.suite import measure

    progress, started, found = Progress(quiet=options.json), time.monotonic(), []
    for section in chosen:

        def tell(step: str, name: str = section.name) -> None:
            progress.step(f"{name}: {step}", time.monotonic() - started)

        result = Result(section.name, measure(section, options.runs, tell), machine())
        found.append(result)
        if options.results:
            write(options.results, result)
    progress.end()
    return found


def _require_places(options: argparse.Namespace) -> None:
    if (options.page or options.measured) and not options.results:
        raise InputError("--page and --measured show what is in --results; give that folder too")
    page: Path | None = options.page
    if page is not None and not (page.parent.is_dir() and os.access(page.parent, os.W_OK)):
        raise InputError(f"{page}: cannot be written; give another --page")


def _command(options: argparse.Namespace) -> str:
    return f"testbed bench --results {options.results} --page {options.page}"
