"""The page of connectors is that of the tables, and every example beside it plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.plan.build import build_plan
from testbed.scenario import load_scenario
from testbed.scenario.serving_page import page
from traffic.connectors import CONNECTORS

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.yaml"))


def test_the_page_is_generated() -> None:
    assert (ROOT / "docs" / "serving.md").read_text() == page()


def test_there_is_an_example_of_each_connector() -> None:
    assert {path.stem for path in EXAMPLES} == {*CONNECTORS, "serving", "trace"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_plans_with_its_connector(path: Path) -> None:
    plan = build_plan(load_scenario(str(path)), seed=1, backend="uml", clock="virtual")
    assert plan.serving is not None
    assert len(plan.serving.jobs) == (48 if path.stem == "trace" else 40)
    assert plan.serving.scheme == (path.stem if path.stem in CONNECTORS else "mooncake")
    assert plan.transfers


def test_small_descriptors_of_eight_ranks_are_8_kib() -> None:
    plan = build_plan(
        load_scenario(str(ROOT / "docs/examples/vllm-nixl.yaml")), seed=1, backend="uml", clock="virtual"
    )
    assert plan.serving is not None
    assert (plan.serving.handover.descriptor_bytes, plan.serving.handover.streams) == (8192, 8)
