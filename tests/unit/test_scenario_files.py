"""Every shipped and every good file loads and plans; every bad one is refused with its exact message."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.errors import InputError
from testbed.plan.build import build_plan
from testbed.plan.codec import from_json, to_json
from testbed.scenario import load_scenario, shipped_scenarios
from testbed.scenario.reference import reference

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "scenarios"
GOOD = sorted(DATA.glob("good/*.yaml"))
BAD = sorted(DATA.glob("bad/*.yaml"))
SHIPPED = sorted(path.stem for path in (ROOT / "testbed" / "scenarios").glob("*.yaml"))


def test_the_file_sets_are_there() -> None:
    names = [
        *("average-lies", "baseline", "ecmp-collision", "feedback-too-late", "incast", "network-idle"),
        *("one-sender-landing", "pfc-incast", "pfc-landing", "pfc-victim", "placement-no-gain"),
        *("rail-imbalance", "rail-not-leaf", "roce-feedback-too-late", "roce-incast", "scheduler-skew"),
        *("slow-landing", "source-leaf-burst", "source-rail", "spine-hot-path", "two-culprits"),
    ]
    assert names == SHIPPED
    assert len(GOOD) >= 11
    assert len(BAD) >= 62


@pytest.mark.parametrize(
    "scenario", [*SHIPPED, *map(str, GOOD)], ids=[*SHIPPED, *(path.stem for path in GOOD)]
)
def test_good_files_load_plan_and_round_trip(scenario: str) -> None:
    plan = build_plan(load_scenario(scenario), seed=1, backend="uml", clock="virtual")
    assert plan.transfers
    assert from_json(to_json(plan)) == plan


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_files_are_refused_exactly(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    expected = path.read_text().splitlines()[0].removeprefix("# ").replace("{file}", path.name)
    with pytest.raises(InputError) as caught:
        build_plan(load_scenario(path.name), seed=1, backend="uml", clock="virtual")
    assert str(caught.value) == expected


def test_shipped_scenarios_are_listed_under_their_own_names() -> None:
    assert [name for name, _ in shipped_scenarios()] == SHIPPED
    for name, description in shipped_scenarios():
        assert load_scenario(name).name == name
        assert description.endswith(".")
        assert os.linesep not in description


def test_the_reference_is_up_to_date() -> None:
    assert (ROOT / "docs" / "scenario-reference.md").read_text() == reference()
