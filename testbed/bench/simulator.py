"""The same incast in ns-3: seconds, memory, completion times, marks, and what a person has to write."""

from __future__ import annotations

import json
import os
import shutil
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.bench.figures import Figure, Found, ratios
from testbed.bench.packets import NO_PROBES
from testbed.bench.programs import TESTBED, Spent, timed
from testbed.bench.sections import Section, Setting
from testbed.errors import LabError, MachineError
from testbed.record import layout

SOURCES = Path(__file__).parent / "ns3"
PROGRAM, SCENARIO = SOURCES / "incast.cc", SOURCES / "incast.yaml"

BYTES = 256 << 20
"""What each sender sends; `SCENARIO` has the same."""

BOTTLENECK = "leaf1-d1"
MODULES = ("applications", "internet", "point-to-point", "traffic-control", "network", "stats", "core")
DEBIAN, OPTIMISED_BUILD = "ns-3 (Debian)", "ns-3 (optimised)"
OPTIMISED = "KV_NS3"
"""Environment variable: the folder into which an ns-3 with `--build-profile=optimized` is installed."""

MOST_RUNS = 3
REMEDY = "install the packages libns3-dev and g++ (apt install)"
COMMAND = "testbed bench ns3"

PROSE = f"""\
Eight hosts send {BYTES >> 20} MiB each to one through one switch: DCTCP, 100 Gbit/s, links of 1 us,
packets of 4,200 B, marks from 100 kB on with a probability that rises to 0.2 at 400 kB, on the queue as
it is at that moment. In ns-3 that is `testbed/bench/ns3/incast.cc`, here
`testbed/bench/ns3/incast.yaml`. Debian's ns-3 3.37 is built as `release` with its logging compiled in
(`--enable-logs`); the optimised one is the same source with `--build-profile=optimized` (`-O3
-march=native`, no logging), installed under the folder that `{OPTIMISED}` names. Seconds of the testbed
are given for its traffic alone, with all queues sampled and without, and for the whole command, which boots
the guest, builds and reads back the lab, and analyses; ns-3's are the whole program's, without its
compilation. Memory is the peak of the
largest process of each; a guest's memory is a file, of which its kernel's process counts what it has
touched.

Not like for like: the testbed runs Linux's TCP, Open vSwitch and queues and samples each queue every 20 us,
ns-3 runs its own models and records nothing but the ends of flows and the queue's totals; without samples the
testbed does the same. On its way through one switch a packet of the testbed's crosses two pairs of virtual
cables, two queues with a rate, the filter and the queue that delay it, and Open vSwitch's table, in a real
kernel; that is where the time goes, and it is spread over some two hundred functions. ns-3's frame has 2 B of
PPP where the testbed counts 14 B of Ethernet, its links delay each packet by themselves, and its
receivers acknowledge every second packet where Linux decides. A line counts when it is neither blank nor
a comment."""


@dataclass(frozen=True)
class Flows:
    """What came of the eight flows: completion times in ms, and the bottleneck's packets and marks."""

    ends_ms: tuple[float, ...]
    packets: int
    marked: int

    @property
    def marked_share(self) -> float:
        """Marks of the packets that left the bottleneck, in percent."""
        return 100 * self.marked / self.packets


def measure(setting: Setting) -> Found:
    """Run ours and every ns-3 there is in turn. MachineError where there is none."""
    programs = {name: build(name, path, setting.folder) for name, path in builds().items()}
    runs = min(setting.runs, MOST_RUNS)
    ours: list[Ours] = []
    bare: list[Ours] = []
    theirs: dict[str, list[tuple[Spent, Flows]]] = {name: [] for name in programs}
    for number in range(1, runs + 1):
        setting.tell(f"testbed, run {number} of {runs}")
        ours.append(run_ours(setting.folder / "record"))
        setting.tell(f"testbed without samples, run {number} of {runs}")
        bare.append(run_ours(setting.folder / "record", NO_PROBES))
        for name, program in programs.items():
            setting.tell(f"{name}, run {number} of {runs}")
            spent = timed([str(program), str(BYTES)])
            theirs[name].append((spent, parse(spent.output)))
    figures = _ours(ours, bare)
    for name, found in theirs.items():
        figures += _theirs(name, found, ours, bare)
    return Found(tuple(figures), PROSE)


# ---- ns-3 -----------------------------------------------------------------------------


def builds() -> dict[str, Path]:
    """Return the builds of ns-3 by name, each with the folder it is installed in."""
    prefix = os.environ.get(OPTIMISED)
    return {DEBIAN: Path("/usr")} | ({OPTIMISED_BUILD: Path(prefix)} if prefix else {})


def build(name: str, prefix: Path, folder: Path) -> Path:
    """Compile the program against a build of ns-3 and return it; MachineError with what is missing."""
    if shutil.which("g++") is None:
        raise MachineError(f"{name}: there is no g++; {REMEDY}")
    libraries = [str(_library(name, prefix, module)) for module in MODULES]
    places = sorted({f"-Wl,-rpath,{Path(library).parent}" for library in libraries})
    program = folder / ("optimised" if name == OPTIMISED_BUILD else "debian")
    head = ["g++", "-std=c++17", "-O2", f"-I{prefix / 'include'}", str(PROGRAM), "-o", str(program)]
    timed([*head, *libraries, *places])
    return program


def _library(name: str, prefix: Path, module: str) -> Path:
    """Return a module's library; its name has the version or the profile in it, and may begin another's."""
    found = [
        path for folder in ("lib", "lib64") for path in (prefix / folder).glob(f"**/libns3*-{module}*.so")
    ]
    if not found:
        raise MachineError(f"{name}: no library of its module {module} below {prefix}; {REMEDY}")
    return min(found, key=lambda path: len(path.name))


def parse(output: str) -> Flows:
    """Return what the program printed; LabError when it is not whole."""
    lines = [line.split() for line in output.splitlines()]
    ends = [float(line[1]) for line in lines if line[:1] == ["flow"]]
    totals = [line for line in lines if line[:1] == ["packets"]]
    if not totals or not ends or min(ends) <= 0:
        raise LabError(f"ns-3's flows did not all end: {output.strip()!r}")
    return Flows(tuple(ends), int(totals[0][1]), int(totals[0][3]))


# ---- the testbed ----------------------------------------------------------------------


@dataclass(frozen=True)
class Ours:
    """A run of the testbed: the whole command, the seconds of its traffic, and its flows."""

    spent: Spent
    traffic_s: float
    flows: Flows


def run_ours(out: Path, sets: Sequence[str] = ()) -> Ours:
    """Run the scenario as a person would, with some values set, and read its summary."""
    words = [word for each in sets for word in ("--set", each)]
    # A run without samples is not valid (4), but its flows end and its packets are marked.
    command = [*TESTBED, "run", str(SCENARIO), *words, "--out", str(out), "--json"]
    spent = timed(command, allowed=(0, 4) if sets else (0,))
    summary = json.loads(spent.output)
    seconds = json.loads((out / layout.ENVIRONMENT).read_text())["seconds"]
    link = summary["links"][BOTTLENECK]
    transfers = summary["transfers"]["fct_ms"]
    ends = (transfers["p50"], transfers["max"])
    return Ours(spent, seconds["traffic_s"], Flows(ends, link["packets"], link["ce_marks"]))


# ---- figures --------------------------------------------------------------------------


def lines_of(path: Path) -> int:
    """Return how many lines of a file are neither blank nor a comment."""
    lines = [line.strip() for line in path.read_text().splitlines()]
    return sum(
        (bool(line) and not line.startswith(("//", "#"))) or line.startswith("#include") for line in lines
    )


def _ours(ours: Sequence[Ours], bare: Sequence[Ours]) -> list[Figure]:
    command = f"testbed run testbed/bench/ns3/{SCENARIO.name}"

    def figure(what: str, value: Callable[[Ours], float], unit: str) -> Figure:
        return Figure(f"testbed: {what}", tuple(value(each) for each in ours), unit, command)

    return [
        figure("seconds of the traffic", lambda run: run.traffic_s, "s"),
        Figure(
            "testbed: seconds of the traffic, without samples",
            tuple(run.traffic_s for run in bare),
            "s",
            " ".join([command, *(f"--set {each}" for each in NO_PROBES)]),
        ),
        figure("seconds of the whole command", lambda run: run.spent.seconds, "s"),
        figure("peak memory", lambda run: run.spent.peak_mb, "MB"),
        figure("median completion time", lambda run: run.flows.ends_ms[0], "ms"),
        figure("last completion time", lambda run: run.flows.ends_ms[-1], "ms"),
        figure("packets marked", lambda run: run.flows.marked_share, "%"),
        Figure("testbed: lines to write", (float(lines_of(SCENARIO)),), "", command),
    ]


def _theirs(
    name: str, found: Sequence[tuple[Spent, Flows]], ours: Sequence[Ours], bare: Sequence[Ours]
) -> list[Figure]:
    seconds = [spent.seconds for spent, _ in found]

    def figure(what: str, values: Sequence[float], unit: str, aim: str = "") -> Figure:
        return Figure(f"{name}: {what}", tuple(values), unit, COMMAND, aim)

    aim = "5 times" if name == OPTIMISED_BUILD else ""
    return [
        figure("seconds", seconds, "s"),
        figure(
            "seconds over the testbed's traffic",
            ratios(seconds, [run.traffic_s for run in ours]),
            "times",
            aim,
        ),
        figure(
            "seconds over the testbed's traffic without samples",
            ratios(seconds, [run.traffic_s for run in bare]),
            "times",
        ),
        figure(
            "seconds over the testbed's whole command",
            ratios(seconds, [run.spent.seconds for run in ours]),
            "times",
        ),
        figure("peak memory", [spent.peak_mb for spent, _ in found], "MB"),
        figure("median completion time", [statistics.median(flows.ends_ms) for _, flows in found], "ms"),
        figure("last completion time", [max(flows.ends_ms) for _, flows in found], "ms"),
        figure("packets marked", [flows.marked_share for _, flows in found], "%"),
        figure("lines to write", [float(lines_of(PROGRAM))], ""),
    ]


SECTION = Section("ns3", "the same incast in a simulator", measure)
