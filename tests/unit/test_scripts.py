"""The scripts of scenarios: one for each, and nothing in it but the command."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from testbed.cli import build_parser
from testbed.regress.grid import build_grid, parse_vary
from testbed.scenario import shipped_scenarios

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
TESTBED = '"$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/testbed"'
ALSO = {"hot-path": "spine-hot-path"}
"""Scripts under the name that people look for, and their scenario."""

SCENARIOS = [name for name, _ in shipped_scenarios()]


def command(name: str) -> str:
    """The one command of a script; everything else in it is a comment."""
    path = SCRIPTS / f"{name}.sh"
    assert path.stat().st_mode & 0o111, f"{path} cannot be executed"
    first, *lines = path.read_text().replace("\\\n", " ").splitlines()
    assert first == "#!/usr/bin/env bash"
    (line,) = [line for line in lines if not line.startswith("#")]
    return line


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_has_a_script_that_runs_it(name: str) -> None:
    # A new scenario: copy scripts/incast.sh and put its name in.
    assert command(name) == f'exec {TESTBED} run {name} "$@"'


def test_no_script_is_of_a_scenario_that_is_gone() -> None:
    named = re.compile(rf"^exec {re.escape(TESTBED)} run (\S+) ", re.MULTILINE)
    found = {path.stem: named.findall(path.read_text()) for path in SCRIPTS.glob("*.sh")}
    assert {stem: names for stem, names in found.items() if names and names != [ALSO.get(stem, stem)]} == {}
    assert sorted(stem for stem, names in found.items() if names and stem not in ALSO) == SCENARIOS
    assert found.keys() >= ALSO.keys()


def test_the_ecn_sweep_is_a_grid_that_can_be_run(tmp_path: Path) -> None:
    program, *words = shlex.split(command("ecn-sweep").removeprefix("exec ").removesuffix('"$@"'))
    assert program.endswith("testbed")
    options = build_parser().parse_args(words)
    varied = [parse_vary(text) for text in options.vary]
    assert [len(vary.values) for vary in varied] == [5, 5]
    grid = build_grid(options.scenario, varied, range(1, options.seeds + 1), tmp_path, overrides=options.set)
    assert len({point.task.out for point in grid.points}) == 75
