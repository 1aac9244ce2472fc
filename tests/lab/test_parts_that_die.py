"""A controller or a switch daemon that dies: the run ends at once and says which part it was."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from testbed.errors import LabError
from testbed.lab import job
from testbed.plan.build import build_plan
from testbed.run.launch import run_plan
from testbed.scenario import load_scenario
from testbed.scenario.dump import scenario_yaml
from tests.support.command import SMALL, Machine, manifest, write_scenario

SLOW = (
    SMALL.split("workload:")[0]
    + """\
workload:
  transfers:
  - {from: p1, to: d1, bytes: 4mib, rate: 10mbit}
measure: {interval: 10ms, progress: 10ms}
"""
)
"""One transfer of three seconds, during which a part can die; virtual time makes them short."""

DIES_AT_ONCE = "exit 7"
DIES_LATER = f'{sys.executable} "$@" & sleep 2; exit 7'
WHILE_IT_WORKS = f'{sys.executable} "$@" & sleep 2; %s; wait'
KILLS_THE_SWITCH = "kill -9 $(cat /run/openvswitch/ovs-vswitchd.pid)"
KILLS_THE_DATABASE = "kill -9 $(cat /run/openvswitch/ovsdb-server.pid)"
KILLS_WHOSE_LOG = """for p in /proc/[0-9]*; do
case $(readlink $p/fd/1) in */{0}.log) kill -9 ${{p#/proc/}};; esac; done"""
"""A program of the run is known by its log."""


@pytest.mark.parametrize(
    ("script", "reason", "log"),
    [
        (DIES_AT_ONCE, "the controller ended with status 7; see logs/controller.log", "controller.log"),
        (DIES_LATER, "the controller ended with status 7; see logs/controller.log", "controller.log"),
        (
            WHILE_IT_WORKS % KILLS_THE_SWITCH,
            "ovs-vswitchd ended with status -9; see its log in the record",
            "ovs-vswitchd.log",
        ),
        (
            f'{KILLS_THE_SWITCH}; exec {sys.executable} "$@"',
            "ovs-vswitchd ended with status -9; see its log in the record",
            "ovs-vswitchd.log",
        ),
        (
            WHILE_IT_WORKS % KILLS_THE_DATABASE,
            "ovsdb-server ended with status -9; see its log in the record",
            "ovsdb-server.log",
        ),
        (
            WHILE_IT_WORKS % KILLS_WHOSE_LOG.format("traffic"),
            "traffic was killed by SIGKILL; see logs/traffic.log",
            "traffic.log",
        ),
        (
            WHILE_IT_WORKS % KILLS_WHOSE_LOG.format("probe"),
            "probe was killed by SIGKILL; see logs/probe.log",
            "probe.log",
        ),
    ],
    ids=[
        "controller at once",
        "controller under traffic",
        "ovs-vswitchd under traffic",
        "ovs-vswitchd while the lab is built",
        "ovsdb-server under traffic",
        "senders under traffic",
        "probe under traffic",
    ],
)
def test_the_run_names_what_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str, log: str
) -> None:
    fake = tmp_path / "fake-python"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(job, "controller_python", lambda framework: str(fake))
    scenario = load_scenario(str(write_scenario(tmp_path, SLOW)))
    plan = build_plan(scenario, seed=1, backend="uml", clock="virtual")
    out, machine = tmp_path / "record", Machine()
    with pytest.raises(LabError) as caught:
        run_plan(plan, scenario_yaml(scenario), out, lambda step, seconds: None)
    assert str(caught.value) == reason
    assert (manifest(out)["status"], manifest(out)["reason"]) == ("failed", reason)
    assert (out / "logs" / log).exists()
    machine.assert_clean(out)
