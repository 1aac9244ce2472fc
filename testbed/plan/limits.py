"""Fixed limits of Linux and of the lab's own numbering that a plan can meet, refused before anything starts.

What single values may be is in the scenario's models, a source's ports and the names of interfaces where they
are given out (`build`, `system`, `topologies`), and what a machine may lack in `testbed.run.room`. Limits
that no plan can reach are listed in docs/scale.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from testbed.plan.model import BACKGROUND_PORT_FIRST, SERVED_PORT_FIRST, Plan
from testbed.plan.served import open_files
from testbed.scenario.models import Scenario
from testbed.scenario.problems import Problem
from testbed.scenario.tree import Path
from traffic.roce.pairs import QUEUE_PAIRS_MAX

FILES_MAX = 1 << 20
"""Descriptors that Linux lets one process have (fs.nr_open)."""

BACKGROUND_MAX = SERVED_PORT_FIRST - BACKGROUND_PORT_FIRST
"""iperf3's ports end where those of the transfers begin."""


def check_limits(scenario: Scenario, plan: Plan) -> None:
    """Raise InputError, with the place, the number, the limit and what to change, for what cannot be."""
    found = list(_problems(scenario, plan))
    if found:
        raise scenario.error(*found)


def _problems(scenario: Scenario, plan: Plan) -> Iterator[Problem]:
    background = len(plan.background)
    if background > BACKGROUND_MAX:
        wrong = f"are {background} flows, each of which has a port of its own"
        yield Problem(("workload", "background"), wrong, f"at most {BACKGROUND_MAX}", show=False)
    files = open_files(plan)
    if files > FILES_MAX:
        wrong = f"takes {files} descriptors, of which Linux lets a process have {FILES_MAX}"
        yield Problem(_workload(scenario), wrong, "use fewer transfers", show=False)
    if plan.transport.roce:
        ends = Counter(end for transfer in plan.transfers for end in (transfer.src, transfer.dst))
        host, pairs = ends.most_common(1)[0]
        if pairs > QUEUE_PAIRS_MAX:
            wrong = f"gives {host} {pairs} queue pairs, whose numbers have 16 bits"
            allowed = f"at most {QUEUE_PAIRS_MAX}: use more hosts or fewer transfers"
            yield Problem(_workload(scenario), wrong, allowed, show=False)


def _workload(scenario: Scenario) -> Path:
    return ("workload", "requests" if scenario.workload.requests else "transfers")
