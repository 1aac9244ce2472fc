"""The dilation that a machine needs: what a plan demands, what was measured, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.plan.budget import Budget, advice, hops_per_scenario_s, least_dilation
from testbed.run import calibrate
from testbed.scenario import load_scenario
from tests.support.lab import small_plan
from tests.support.synthetic import baseline, write_record

BUDGET = Budget(hops_per_s=1e6, sample_s=1e-6, at="2026-01-01")


def test_what_a_plan_demands() -> None:
    # Two senders of 100 Gbit/s into one receiver: 100 Gbit/s of frames of 4,214 B over four links, and an ACK
    # for every second one.
    plan = small_plan(clock="real")
    assert hops_per_scenario_s(plan) == pytest.approx(100e9 / 8 / 4214 * 4 * 1.5)


def test_within_a_leaf_packets_cross_two_links() -> None:
    one_leaf = [
        "fabric.leaves=1",
        "hosts.prefill.leaves=[1]",
        "hosts.decode.leaves=[1]",
        "fabric.hosts_per_leaf=4",
    ]
    here, across = small_plan(*one_leaf, clock="real"), small_plan(clock="real")
    assert hops_per_scenario_s(here) == hops_per_scenario_s(across) / 2


@pytest.mark.parametrize(
    ("hops_per_s", "sample_s", "least"),
    [
        (17797817 * 10, 1e-9, 1),  # all of the demand in a tenth of the budget
        (17797816 * 10 / 3, 1e-9, 5),
        (17797816 * 10 / 1001, 1e-9, 2000),
        (1e12, 2e-6, 1),  # 20 us between samples, a tenth of them for taking one
        (1e12, 0.4e-3, 200),
    ],
)
def test_the_least_dilation(hops_per_s: float, sample_s: float, least: float) -> None:
    plan = small_plan("measure.interval=20us", clock="real")
    assert least_dilation(plan, Budget(hops_per_s, sample_s, "")) == pytest.approx(least)


def test_what_is_said() -> None:
    plan = small_plan("measure.interval=20us", clock="real")
    unknown = (
        "dilation 1; what this machine can keep up with is not known: `testbed doctor --budget` measures it"
    )
    assert advice(plan, None) == unknown
    able = "(1,000,000 packets over a link a second, all queues read in 0.001 ms)"
    assert advice(plan, BUDGET) == (
        "dilation 1 is too small for this machine: expect a run that is not valid; use dilation: 200 " + able
    )
    slowed = small_plan("measure.interval=20us", "dilation=200", clock="real")
    assert advice(slowed, BUDGET) == f"dilation 200; this machine should keep up from 200 on {able}"


# ---- the calibration ------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KV_KERNEL_CACHE", str(tmp_path / "kernel"))
    monkeypatch.setattr(calibrate, "_kernel", lambda backend: "6.1")
    return tmp_path / "budget.json"


def test_its_scenario_is_good() -> None:
    assert load_scenario(str(calibrate.SCENARIO), []).dilation == 1


def test_a_measured_budget_is_kept_for_its_backend(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "run_plan", lambda plan, text, out, tell: write_record(out, baseline()))
    assert calibrate.known("uml") is None
    budget = calibrate.measure("uml", lambda step, seconds: None)
    assert calibrate.known("uml") == budget
    assert calibrate.known("native") is None
    assert len(json.loads(store.read_text())) == 1


@pytest.mark.parametrize("text", ["", "[]", '{"x": 1}'])
def test_a_store_that_cannot_be_read_is_no_budget(store: Path, text: str) -> None:
    store.write_text(text)
    assert calibrate.known("uml") is None
