"""A scenario written out is the same scenario when it is read again."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from testbed.plan.build import build_plan
from testbed.plan.codec import to_json
from testbed.scenario import load_scenario
from testbed.scenario.dump import scenario_yaml

ROOT = Path(__file__).resolve().parents[2]
GOOD = [
    *sorted((ROOT / "testbed/scenarios").glob("*.yaml")),
    *sorted((ROOT / "tests/data/scenarios/good").glob("*.yaml")),
]


def plan(path: Path, *overrides: str) -> str:
    # The real clock takes every good file: one with a dilation above 1 has no virtual time.
    return to_json(build_plan(load_scenario(str(path), overrides), seed=1, backend="uml", clock="real"))


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_every_good_scenario_comes_back(path: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.yaml"
    again.write_text(scenario_yaml(load_scenario(str(path))))
    assert plan(again) == plan(path)
    # And a second time round nothing changes any more.
    assert scenario_yaml(load_scenario(str(again))) == again.read_text()


def test_what_was_set_on_the_command_line_is_part_of_it(tmp_path: Path) -> None:
    overrides = ("fabric.queue.kmin=50kb", "description=Hello: world", "workload.requests.count=3")
    again = tmp_path / "again.yaml"
    again.write_text(scenario_yaml(load_scenario(str(GOOD[1]), overrides)))
    assert plan(again) == plan(GOOD[1], *overrides)
    assert "kmin: 50kb" in again.read_text()


def test_a_base_is_merged_and_no_longer_needed(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("name: base\nworkload: {requests: {kv_bytes: 1mib}}\n")
    (tmp_path / "child.yaml").write_text(
        "name: child\nextends: base.yaml\nfabric: {leaves: 2, hosts_per_leaf: 8}\n"
    )
    text = scenario_yaml(load_scenario(str(tmp_path / "child.yaml")))
    assert "extends" not in text
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone/again.yaml").write_text(text)
    assert plan(tmp_path / "alone/again.yaml") == plan(tmp_path / "child.yaml")


@pytest.mark.parametrize(
    "description",
    ["yes", "null", "2024-01-01", "010", "1e7", "a: b # c", "- item", "'quoted'", "ümläut", "~"],
)
def test_texts_that_yaml_would_read_as_something_else(description: str, tmp_path: Path) -> None:
    source = {"name": "x", "description": description, "workload": {"requests": {"kv_bytes": "1mib"}}}
    path = tmp_path / "x.yaml"
    path.write_text(yaml.safe_dump(source, allow_unicode=True))
    scenario = load_scenario(str(path))
    again = tmp_path / "again.yaml"
    again.write_text(scenario_yaml(scenario))
    assert load_scenario(str(again)).description == scenario.description == description
