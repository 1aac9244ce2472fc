"""Measures what this machine can do on a real clock, and keeps the answer for `testbed plan`.

A small incast is run undilated, far too fast for any machine: how fast it went then is the budget. The
answer holds for one backend, kernel and processor, and is kept beside the built kernels.
"""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from testbed.errors import LabError
from testbed.lab.kernels import cache_dir, distribution_kernel
from testbed.plan.budget import ACKS_PER_PACKET, Budget
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.record.files import write_whole
from testbed.record.reader import Record
from testbed.run.launch import run_plan
from testbed.scenario import load_scenario
from testbed.scenario.dump import scenario_yaml
from testbed.signals import scratch_folder

SCENARIO = Path(__file__).with_name("calibration.yaml")
LINKS = 4
"""Every transfer of the calibration crosses a spine."""

CPU_INFO = Path("/proc/cpuinfo")


def measure(backend: str, tell: Callable[[str, float], None]) -> Budget:
    """Run the calibration by `backend`, keep its answer and return it. Raises as `run_plan` does."""
    scenario = load_scenario(str(SCENARIO), [])
    plan = build_plan(scenario, seed=1, backend=backend, clock="real")
    with scratch_folder("calibrate") as folder:
        out = folder / "record"
        run_plan(plan, scenario_yaml(scenario), out, tell)
        budget = _budget(plan, Record.open(out))
    kept = _kept() | {_key(backend): asdict(budget)}
    _store().parent.mkdir(parents=True, exist_ok=True)
    write_whole(_store(), json.dumps(kept, indent=1, sort_keys=True) + "\n")
    return budget


def known(backend: str) -> Budget | None:
    """Return what was measured for `backend` on this kernel and processor, None when nothing was."""
    try:
        return Budget(**_kept()[_key(backend)])
    except (KeyError, TypeError):
        return None


def _budget(plan: Plan, record: Record) -> Budget:
    ends = [outcome.end_ns for outcome in record.outcomes if outcome.end_ns is not None]
    starts = [outcome.start_ns for outcome in record.outcomes if outcome.start_ns is not None]
    if len(ends) < len(plan.transfers):
        raise LabError("the calibration did not complete; run it again on a quiet machine")
    seconds = (max(ends) - min(starts)) / 1e9
    wire_bytes = sum(transfer.wire_bytes for transfer in plan.transfers)
    hops = wire_bytes / (plan.mtu + 14) * LINKS * (1 + ACKS_PER_PACKET)
    gaps = np.diff(record.sample_times(record.groups[0]))
    return Budget(hops / seconds, float(np.median(gaps)) / 1e9, time.strftime("%Y-%m-%d", time.gmtime()))


def _store() -> Path:
    return cache_dir().parent / "budget.json"


def _kept() -> dict[str, dict[str, Any]]:
    try:
        kept = json.loads(_store().read_text())
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _key(backend: str) -> str:
    found = re.search(r"^model name\s*: (.*)", CPU_INFO.read_text(), re.MULTILINE)
    model = found.group(1) if found else platform.machine()
    return f"{backend}, Linux {_kernel(backend)}, {os.cpu_count()} x {model}"


def _kernel(backend: str) -> str:
    return distribution_kernel().version if backend == "uml" else platform.release()
