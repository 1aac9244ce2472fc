"""The bench measures labs: its own bring-up, stock Mininet's beside it, and a run with its processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.bench.labs import OURS, STOCK, Fabric, bring_up
from testbed.bench.processes import watched_run
from testbed.record import layout

FABRIC = Fabric(2, 1, 2)
COMMON = ["boot", "open vswitch"]


@pytest.mark.ovs
@pytest.mark.parametrize(
    ("entry", "steps"),
    [
        (OURS, ["controller", "4 hosts, 3 switches", "addresses and queues", "forwarding rules"]),
        (STOCK, ["hosts and links", "switches"]),
    ],
)
def test_a_fabric_comes_up_and_each_step_has_its_time(entry: str, steps: list[str], tmp_path: Path) -> None:
    found = bring_up(FABRIC.plan(tmp_path), entry, tmp_path / "record")
    assert list(found)[: len(COMMON) + len(steps)] == COMMON + steps
    assert all(0 <= seconds < 60 for seconds in found.values())
    log = tmp_path / "record" / layout.log("inside")
    complaints = log.read_text().splitlines() if log.exists() else []
    # Stock Mininet leaves the quantum of its classes to the kernel, which remarks on it.
    assert [line for line in complaints if "r2q" not in line] == []


@pytest.mark.ovs
def test_a_runs_processes_are_counted_while_its_traffic_flows(tmp_path: Path) -> None:
    usage = watched_run("incast", ["workload.requests.kv_bytes=8mib"], tmp_path / "record")
    assert usage.kernel_s > usage.programs_system_s > 0
    assert (tmp_path / "record" / layout.OUTCOMES).exists()
