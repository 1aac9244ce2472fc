"""docs/performance.md is what its results say, and says of each figure what made it."""

from __future__ import annotations

import re
from pathlib import Path

from testbed.bench import results
from testbed.bench.page import page
from testbed.bench.suite import SECTIONS
from testbed.cli import build_parser

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "docs/performance"
PAGE = ROOT / "docs/performance.md"


def test_the_page_is_made_from_the_results_beside_it() -> None:
    text = PAGE.read_text()
    command = re.search(r"^Made by `(.*)`; do not edit\.$", text, re.MULTILINE)
    assert command is not None
    known = [results.read(KEPT, section.name) for section in SECTIONS]
    assert text == page(SECTIONS, [result for result in known if result], command[1])
    build_parser().parse_args(command[1].split()[1:])


def test_every_kept_result_is_a_sections_and_every_figure_has_a_command_that_is_one() -> None:
    names = {path.stem for path in KEPT.glob("*.json")}
    assert names <= {section.name for section in SECTIONS}
    assert {"startup", "startup128", "packets", "ns3", "analysis"} <= names
    for name in names:
        result = results.read(KEPT, name)
        assert result is not None
        for figure in result.found.figures:
            program, *words = figure.command.split()
            assert program == "testbed"
            build_parser().parse_args(words)
