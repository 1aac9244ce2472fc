"""Plans as JSON: exact round trips, exact refusals, hashes that tell plans apart, light imports."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields, replace
from typing import Any

import pytest

from testbed.errors import InputError
from testbed.plan.build import build_plan
from testbed.plan.codec import from_json, plan_hash, to_json
from testbed.plan.model import Plan
from testbed.scenario import load_scenario


@pytest.fixture(scope="module")
def plan() -> Plan:
    background = "workload.background=[{from: p1, to: d1, duration: 1ms}]"
    return build_plan(load_scenario("incast", [background]), seed=7, backend="uml", clock="virtual")


def test_round_trip_keeps_values_and_types(plan: Plan) -> None:
    again = from_json(to_json(plan))
    assert again == plan
    assert to_json(again) == to_json(plan)
    for field in fields(Plan):
        assert type(getattr(again, field.name)) is type(getattr(plan, field.name))


def test_a_whole_float_comes_back_as_a_float(plan: Plan) -> None:
    text = to_json(plan).replace('"dilation": 1.0', '"dilation": 1')
    assert '"dilation": 1,' in text
    assert type(from_json(text).dilation) is float


def changed(plan: Plan, **changes: Any) -> str:
    return json.dumps({**json.loads(to_json(plan)), **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 2}, "plan: format_version is 2; this testbed reads 1"),
        ({"seed": "7"}, "plan.seed: is str; expected int"),
        ({"seed": True}, "plan.seed: is bool; expected int"),
        ({"seed": 7.0}, "plan.seed: is float; expected int"),
        ({"dilation": None}, "plan.dilation: is NoneType; expected float"),
        ({"queues": {}}, "plan.queues: is dict; expected a list"),
        ({"transfers": [3]}, "plan.transfers[0]: is int; expected a mapping"),
        ({"more": 1}, "plan: the keys differ: missing [], unknown ['more']"),
        (
            {"measure": {"interval_ns": 1, "departures": []}},
            "plan.measure: the keys differ: missing ['progress_ns'], unknown []",
        ),
    ],
)
def test_refused(plan: Plan, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        from_json(changed(plan, **changes))
    assert str(caught.value) == message


def test_what_is_no_plan() -> None:
    with pytest.raises(InputError) as caught:
        from_json("[]")
    assert str(caught.value) == "plan: format_version is None; this testbed reads 1"
    with pytest.raises(InputError) as caught:
        from_json("{")
    assert str(caught.value).startswith("plan: is not valid JSON: ")


def test_hash_names_the_plan(plan: Plan) -> None:
    assert plan_hash(plan) == plan_hash(from_json(to_json(plan)))
    assert len(plan_hash(plan)) == 8
    others = [
        replace(plan, seed=8),
        replace(plan, backend="native"),
        replace(plan, clock="real"),
        replace(plan, queues=plan.queues[:-1]),
    ]
    assert len({plan_hash(other) for other in [plan, *others]}) == 5


def test_the_lab_does_not_pay_for_the_planner() -> None:
    """Inside the lab each import costs time: what is loaded there must stay free of pydantic and numpy."""
    code = "import sys, testbed.plan.codec, testbed.plan.dilation; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "topologies" in loaded
    assert loaded.isdisjoint({"pydantic", "numpy", "yaml", "argparse", "asyncio"})
    assert "testbed.plan.build" not in done.stdout.split()
