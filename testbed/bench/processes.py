"""Runs a scenario and counts what its guest's processes use while traffic flows. For `packets`."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from testbed.lab.job import Job
from testbed.plan.build import build_plan
from testbed.run.launch import run_plan
from testbed.scenario import load_scenario
from testbed.scenario.dump import scenario_yaml

LOOK_S = 0.1
"""How often the guest's processes are looked at: a part in fifty of the shortest phase that is measured."""

TRAFFIC = "traffic"
"""The step of a run with which its traffic begins."""


@dataclass(frozen=True)
class Usage:
    """Seconds of processor time of a guest: its kernel's process and its programs', in their own code
    and in the machine's kernel on their behalf."""

    kernel_s: float = 0.0
    kernel_system_s: float = 0.0
    programs_s: float = 0.0
    programs_system_s: float = 0.0

    @property
    def total_s(self) -> float:
        """All of it."""
        return float(sum(getattr(self, each.name) for each in fields(self)))

    def since(self, before: Usage) -> Usage:
        """Return what was used since `before`."""
        return Usage(*(getattr(self, each.name) - getattr(before, each.name) for each in fields(self)))


class Watch:
    """Looks at a guest's processes between two looks at its progress."""

    def __init__(self) -> None:
        self._began: Usage | None = None
        self._traffic = False
        self._last: dict[int, tuple[bool, float, float]] = {}
        self._looked = 0.0

    def tell(self, step: str, _seconds: float) -> None:
        """Note the step of the run."""
        self._traffic = self._traffic or step == TRAFFIC

    def pause(self, process: subprocess.Popen[Any], seconds: float) -> None:
        """Look, when it is time, and wait."""
        now = time.monotonic()
        if self._traffic and now - self._looked >= LOOK_S:
            self._looked = now
            # What has ended keeps what it had used.
            self._last |= processes_of(process.pid)
            if self._began is None:
                self._began = usage_of(self._last)
        time.sleep(seconds)

    @property
    def usage(self) -> Usage:
        """What was used between the first and the last look."""
        return usage_of(self._last).since(self._began or Usage())


def processes_of(session: int) -> dict[int, tuple[bool, float, float]]:
    """Return each process of a session by its id: whether it leads, its own seconds and its system's."""
    tick = os.sysconf("SC_CLK_TCK")
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            if int(words[3]) == session:
                number = int(folder.name)
                found[number] = (number == session, int(words[11]) / tick, int(words[12]) / tick)
    return found


def usage_of(processes: dict[int, tuple[bool, float, float]]) -> Usage:
    """Add up processes: the session's leader is the guest's kernel, the others are its programs."""
    sums = {True: [0.0, 0.0], False: [0.0, 0.0]}
    for leads, own_s, system_s in processes.values():
        sums[leads][0] += own_s
        sums[leads][1] += system_s
    return Usage(*sums[True], *sums[False])


def watched_run(scenario: str, sets: Sequence[str], out: Path) -> Usage:
    """Run a scenario in virtual time, leave its record in `out`, and return what its traffic used.

    Raises what `run_plan` raises.
    """
    found = load_scenario(scenario, sets)
    plan = build_plan(found, seed=1, backend="uml", clock="virtual")
    watch = Watch()

    def adapt(job: Job) -> Job:
        return replace(job, pause=watch.pause)

    run_plan(plan, scenario_yaml(found), out, watch.tell, adapt)
    return watch.usage
