"""Brings a lab up and notes when each step began, as the outside sees it: real seconds. For `startup`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from testbed.lab.job import Job
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.run.launch import run_plan
from testbed.scenario import load_scenario

UP = "up"
"""The step that follows when the lab stands."""

OURS, STOCK = "testbed.bench.only_up", "testbed.bench.stock"
"""What runs in the guest: the testbed's own bring-up and nothing else, or that of stock Mininet."""

SCENARIO = """\
name: fabric
fabric: {{leaves: {leaves}, spines: {spines}, hosts_per_leaf: {hosts_per_leaf}}}
hosts: {{prefill: {{count: {prefill}}}, decode: {{count: {decode}}}}}
workload: {{requests: {{kind: burst, count: 1, window: 0us, kv_bytes: 64kib}}}}
deadline: {{scenario: 1000s, real: 3600s}}
"""


@dataclass(frozen=True)
class Fabric:
    """A leaf-spine fabric whose leaves are full of hosts."""

    leaves: int
    spines: int
    hosts_per_leaf: int

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return self.leaves * self.hosts_per_leaf

    def plan(self, folder: Path) -> Plan:
        """Return a plan with this fabric and one small transfer; three hosts of four are for prefill."""
        prefill = self.hosts * 3 // 4
        path = folder / "scenario.yaml"
        path.write_text(
            SCENARIO.format(
                leaves=self.leaves,
                spines=self.spines,
                hosts_per_leaf=self.hosts_per_leaf,
                prefill=prefill,
                decode=self.hosts - prefill,
            )
        )
        return build_plan(load_scenario(str(path)), seed=1, backend="uml", clock="virtual")


def bring_up(plan: Plan, entry: str, out: Path) -> dict[str, float]:
    """Boot a guest, let `entry` bring the plan's fabric up, and return how long each step took in
    seconds.

    The first one, `boot`, ends when the guest's program has imported what it needs. Raises what
    `run_plan` raises.
    """
    moments = [("boot", 0.0)]

    def adapt(job: Job) -> Job:
        return replace(job, entry=entry)

    run_plan(plan, f"name: {plan.scenario}\n", out, lambda step, at: moments.append((step, at)), adapt)
    return durations(moments)


def durations(moments: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Return how long each step took, up to the one called `up`."""
    found = {}
    for (step, begin), (_, end) in pairwise(moments):
        if step == UP:
            break
        found[step] = end - begin
    return found


def total(steps: Mapping[str, float], *left_out: str) -> float:
    """Return the sum of all steps but some."""
    return sum(seconds for name, seconds in steps.items() if name not in left_out)
