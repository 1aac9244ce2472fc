"""How seconds and memory grow: exponents for more hosts, more bytes and more transfers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from testbed.bench.figures import Figure, Found
from testbed.bench.scale import EXAMPLES, Case, Cost, traced
from testbed.bench.sections import Section, Setting

MOST_RUNS = 3
HOSTS = (16, 32, 64, 128)
MEBIBYTES = (16, 32, 64, 128)
TRANSFERS = (100, 1_000, 10_000)
LEAVES = 8
COMMAND = "testbed bench growth"

PROSE = """\
An exponent of 1 says that twice as much costs twice as much, 2 that it costs four times as much. *Over all*
is the slope of the line through the logarithms of all sizes (least squares), *at the end* that between the
two largest, where the start of a lab, which every run has, weighs least. Hosts:
`docs/examples/scale/fabric-128.yaml` with 2 to 16 hosts on each leaf, each of which sends or receives the
same. Bytes: `incast` with 16 to 128 MiB from each of its eight senders. Transfers: the first requests of
the trace of `scale`."""


def measure(setting: Setting) -> Found:
    """Run each series several times and return costs and exponents."""
    runs = min(setting.runs, MOST_RUNS)
    figures: list[Figure] = []
    for what, cases in _series(setting).items():
        costs = [_run(setting, f"{what} {number}", cases) for number in range(1, runs + 1)]
        seconds = [[cost.processor_s for cost in one] for one in costs]
        memory = [[cost.touched_mib for cost in one] for one in costs]
        for at, size in enumerate(cases):
            figures.append(_figure(f"{size:,} {what}: processor seconds", [one[at] for one in seconds], "s"))
            figures.append(_figure(f"{size:,} {what}: guest's memory", [one[at] for one in memory], "MiB"))
        for name, values in (("processor seconds", seconds), ("guest's memory", memory)):
            head, sizes = f"{what}: exponent of {name}", list(cases)
            figures.append(_figure(f"{head} over all", [exponent(sizes, one) for one in values]))
            figures.append(_figure(f"{head} at the end", [exponent(sizes[-2:], one[-2:]) for one in values]))
    return Found(tuple(figures), PROSE)


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return the slope of the straight line through the logarithms, by least squares."""
    return float(np.polyfit([math.log(size) for size in sizes], [math.log(cost) for cost in costs], 1)[0])


def _series(setting: Setting) -> dict[str, Mapping[int, Case]]:
    fabric = str(EXAMPLES / "fabric-128.yaml")
    return {
        "hosts": {count: Case(f"{count} hosts", fabric, _hosts(count)) for count in HOSTS},
        "MiB": {
            size: Case(f"{size} MiB", "incast", (f"workload.requests.kv_bytes={size}mib",))
            for size in MEBIBYTES
        },
        "transfers": {count: traced(setting.folder, count) for count in TRANSFERS},
    }


def _hosts(count: int) -> tuple[str, ...]:
    half = count // 2
    return (
        f"fabric.hosts_per_leaf={count // LEAVES}",
        f"hosts.prefill.count={half}",
        f"hosts.decode.count={half}",
        f"workload.requests.count={count}",
    )


def _run(setting: Setting, folder: str, cases: Mapping[int, Case]) -> list[Cost]:
    costs = []
    for case in cases.values():
        setting.tell(f"{folder}: {case.name}")
        costs.append(case.run(setting.folder / folder.replace(" ", "-") / case.name.replace(" ", "-")))
    return costs


def _figure(what: str, samples: Sequence[float], unit: str = "") -> Figure:
    return Figure(what, tuple(samples), unit, COMMAND)


SECTION = Section("growth", "exponents of seconds and memory", measure)
