"""Large runs: what each costs in real time and memory, and how far off the plan's estimates are."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.bench import trace
from testbed.bench.figures import Figure, Found
from testbed.bench.programs import TESTBED, timed
from testbed.bench.sections import Section, Setting
from testbed.lab.kernels import PROJECT
from testbed.plan.build import build_plan
from testbed.run.needs import MIB, Needs, needs_of
from testbed.scenario import load_scenario

EXAMPLES = PROJECT / "docs/examples/scale"
MOST_RUNS = 3
"""Runs of what takes up to a minute."""

TRACE_REQUESTS = 10_000
COMMAND = "testbed bench scale"
LARGE = ("incast-64", "incast-256", "fabric-128", "trace-10k")
FITTED = ("incast", "baseline", "roce-incast", "scheduler-skew", "pfc-incast", "average-lies")
OTHERS = ("two-culprits", "rail-imbalance", "pfc-victim", "roce-feedback-too-late", "placement-no-gain")
"""Shipped scenarios that the constants of estimates were taken from, beside the large ones, and others."""

PROSE = """\
Scenarios of `docs/examples/scale`: 64:1 and 256:1 on one leaf, eight leaves and eight spines with 128
hosts, and 10,000 requests of a made-up trace. Seconds are those of the whole command, from the scenario to
the page; its processor seconds are the same on a machine with nothing else to do, and tell more on one that
has. The guest's memory is what its kernel touched at most, which is what it takes of the machine; what it was
given stands in the record. *Estimate* is what `testbed plan` says beforehand, as a part of what was measured,
of seconds of the processor: 1 is exact. Its constants were taken from runs of the large scenarios and of
`incast`, `baseline`, `roce-incast`, `scheduler-skew`, `pfc-incast` and `average-lies`; the other ones stand
for what it is worth elsewhere."""


@dataclass(frozen=True)
class Cost:
    """What a run took: seconds of the whole command and of the processors, and mebibytes its guest touched
    and its record has."""

    seconds: float
    processor_s: float
    touched_mib: float
    record_mib: float


@dataclass(frozen=True)
class Case:
    """A scenario with some values changed, and what a person types for it.

    `typed` is that where it is not `run` with the same values: a trace that the bench writes into a temporary
    folder is gone afterwards.
    """

    name: str
    scenario: str
    overrides: tuple[str, ...] = ()
    typed: str = ""

    @property
    def command(self) -> str:
        """The command for a person."""
        words = ["testbed run", self.scenario, *(f"--set {item}" for item in self.overrides)]
        return self.typed or " ".join(words)

    def needs(self) -> Needs:
        """Return what the plan says beforehand."""
        scenario = load_scenario(self.scenario, self.overrides)
        return needs_of(build_plan(scenario, seed=1, backend="uml", clock="virtual"))

    def run(self, out: Path) -> Cost:
        """Run it into `out`. LabError when that fails; whether expectations hold is not asked here."""
        words = [word for item in self.overrides for word in ("--set", item)]
        spent = timed(
            [*TESTBED, "run", self.scenario, *words, "--out", str(out), "--json", "--allow-invalid"],
            allowed=(0, 1),
        )
        memory = json.loads((out / "environment.json").read_text())["memory"]
        size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
        return Cost(spent.seconds, spent.processor_s, memory["touched_mib"], size / MIB)


def traced(folder: Path, requests: int) -> Case:
    """Return the trace's scenario with so many requests; the trace is written into `folder`."""
    path = folder / "trace.jsonl"
    if not path.exists():
        path.write_text("".join(trace.lines(TRACE_REQUESTS)))
    overrides = (f"workload.requests.path={path}", f"workload.requests.limit={requests}")
    return Case(f"trace of {requests:,}", str(EXAMPLES / "trace-10k.yaml"), overrides, COMMAND)


def measure(setting: Setting) -> Found:
    """Run the large scenarios and hold the estimates against them and against some shipped ones."""
    large = [Case(name, str(EXAMPLES / f"{name}.yaml")) for name in LARGE[:-1]]
    large.append(traced(setting.folder, TRACE_REQUESTS))
    small = [Case(name, name) for name in (*FITTED, *OTHERS)]
    runs = min(setting.runs, MOST_RUNS)
    figures = [
        *(figure for case in large for figure in _figures(case, _runs(setting, case, runs), whole=True)),
        *(figure for case in small for figure in _figures(case, _runs(setting, case, 1), whole=False)),
    ]
    return Found(tuple(figures), PROSE)


def _runs(setting: Setting, case: Case, runs: int) -> list[Cost]:
    costs = []
    for number in range(1, runs + 1):
        setting.tell(f"{case.name}, run {number} of {runs}")
        costs.append(case.run(setting.folder / f"{case.name.replace(' ', '-')}-{number}"))
    return costs


def _figures(case: Case, costs: Sequence[Cost], *, whole: bool) -> list[Figure]:
    needs = case.needs()
    values: dict[str, tuple[Callable[[Cost], float], float, str]] = {
        "processor seconds": (lambda cost: cost.processor_s, needs.real_s, "s"),
        "guest's memory": (lambda cost: cost.touched_mib, needs.touched_bytes / MIB, "MiB"),
        "record": (lambda cost: cost.record_mib, needs.record_bytes / MIB, "MiB"),
    }
    command = case.command.replace(str(EXAMPLES), "docs/examples/scale")
    whole_s = tuple(cost.seconds for cost in costs)
    figures = [Figure(f"{case.name}: seconds", whole_s, "s", command)] if whole else []
    for name, (value, estimate, unit) in values.items():
        measured = tuple(value(cost) for cost in costs)
        if whole:
            figures.append(Figure(f"{case.name}: {name}", measured, unit, command))
        shares = tuple(estimate / one for one in measured)
        figures.append(Figure(f"{case.name}: estimate of {name}", shares, "of it", command))
    return figures


SECTION = Section("scale", "large runs, and what is known of them beforehand", measure)
