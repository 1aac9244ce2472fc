"""Runs the installed command as a person does and looks at what it leaves behind.

Called by the lab and end-to-end tests. A scenario is written as a file below the test's own folder, mostly
as a few lines that extend `SMALL`; the record goes there too.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from controller.document import controller_document, parse_document
from controller.prediction import Prediction
from testbed.plan.model import Plan, Transfer
from testbed.record.reader import Record

TESTBED = Path(sys.executable).with_name("testbed")
RUN_LIMIT_S = 150
ENDS_WITHIN_S = 5
"""What docs/faults.md promises of a command that is asked to end, where it has a processor to itself."""
COMES_WITHIN_S = 60
"""Until something has come that nothing promises a time for: only a test that would fail waits so long."""

MIB = 1 << 20
HEADER_BYTES = 14 + 20 + 20 + 12
"""Ethernet, IP, TCP and its padded timestamp option (RFC 7323), in front of every segment."""

SMALL = """\
name: small
fabric:
  leaves: 2
  spines: 2
  hosts_per_leaf: 4
  host_link: {rate: 100gbit, delay: 1us}
  fabric_link: {rate: 200gbit, delay: 1us}
  mtu: 4200
  queue: {kmin: 100kb, kmax: 400kb, pmax: 0.2, limit: 8mb}
hosts: {prefill: {count: 2}, decode: {count: 1}}
transport: {kind: tcp, congestion_control: dctcp}
workload:
  requests: {kind: burst, count: 2, window: 0us, kv_bytes: 4mib}
"""
"""Two prefill hosts on leaf1 send 4 MiB each to d1 on leaf2 at once: an incast of half a millisecond."""

SLOW = (
    SMALL.split("workload:")[0]
    + """\
workload:
  transfers:
  - {from: p1, to: d1, bytes: 4mib, rate: 10mbit}
measure: {interval: 10ms, progress: 10ms}
"""
)
"""One transfer of more than two seconds, after which it is given up; virtual time makes them short."""

ONE_LEAF = [
    "fabric.leaves=1", "fabric.spines=1", "hosts.prefill.leaves=[1]", "hosts.decode.leaves=[1]",
]  # fmt: skip
"""Settings that put all of `SMALL` on one switch: no hash has a say."""

OF_TIME = frozenset({"counted", "coverage", "departures", "processors", "rates", "sampling", "starts"})
"""The checks of validity that a machine busy with something else may fail on a real clock: all that hold a
time or a count of one moment against another. What was set and what arrived no load may change."""

Done = subprocess.CompletedProcess[str]


def command(*words: str | Path) -> list[str]:
    """Return the installed command with `words` as its arguments."""
    return [str(TESTBED), *map(str, words)]


def call(
    *words: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    limit_s: float = RUN_LIMIT_S,
) -> Done:
    """Run the command to its end; subprocess.TimeoutExpired after `limit_s`."""
    return subprocess.run(
        command(*words),
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )


def start(*words: str | Path) -> subprocess.Popen[str]:
    """Start the command with pipes for its outputs."""
    return subprocess.Popen(
        command(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ends_within_s() -> float:
    """Return how long a command that is asked to end may take, by how many want a processor just now."""
    return ENDS_WITHIN_S * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def await_step(process: subprocess.Popen[str], step: str) -> None:
    """Read progress lines until the one that ends with `step`; AssertionError when none does."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if line.rstrip().endswith(step):
            return
    raise AssertionError(f"the run ended before {step!r}: {''.join(seen)}")


def await_handlers(process: subprocess.Popen[str]) -> None:
    """Wait until a command ends in order by a signal: before, its interpreter is being started."""
    mark = 1 << (signal.SIGHUP - 1)  # the last that is set up

    def caught() -> bool:
        status = Path(f"/proc/{process.pid}/status").read_text()
        return bool(int(status.partition("SigCgt:")[2].split()[0], 16) & mark)

    wait_for(caught, COMES_WITHIN_S, lambda: "the command did not begin")


def write_scenario(folder: Path, text: str = SMALL, name: str = "scenario.yaml") -> Path:
    """Write a scenario file and return it."""
    path = folder / name
    path.write_text(text)
    return path


def settings(values: list[str] | tuple[str, ...]) -> list[str]:
    """Return the `--set` options of `key=value` words."""
    return [word for value in values for word in ("--set", value)]


@dataclass(frozen=True)
class Run:
    """A run that has ended, and its record."""

    done: Done
    out: Path

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What `summary.json` says."""
        summary: dict[str, Any] = json.loads((self.out / "summary.json").read_text())
        return summary

    @cached_property
    def record(self) -> Record:
        """The record, opened."""
        return Record.open(self.out)

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """The rows of `transfers.csv`."""
        return list(csv.DictReader((self.out / "transfers.csv").read_text().splitlines()))

    @property
    def paths(self) -> list[str]:
        """Each transfer's measured path, links separated by blanks."""
        return [row["path"] for row in self.rows]

    def ce_marks(self) -> dict[str, int]:
        """Return the CE marks of each link that set any."""
        return {name: link["ce_marks"] for name, link in self.summary["links"].items() if link["ce_marks"]}

    def last_end_ns(self) -> float:
        """Return when the last byte arrived, in scenario nanoseconds."""
        return float(self.summary["transfers"]["last_end_ms"]) * 1e6


def run(out: Path, scenario: str | Path, *words: str, sets: list[str] | None = None, expect: int = 0) -> Run:
    """Run a scenario into `out`; AssertionError with all output unless it exits with `expect`."""
    done = call("run", scenario, "--out", out, *settings(sets or []), *words)
    assert done.returncode == expect, done.stderr + done.stdout
    return Run(done, out)


def small(folder: Path, *sets: str, expect: int = 0) -> Run:
    """Run `SMALL` with some values changed into `folder`/record."""
    return run(folder / "record", write_scenario(folder), sets=list(sets), expect=expect)


def wire_bytes(payload_bytes: int, mtu: int) -> int:
    """Return what a queue counts for a payload in full segments, from the sizes of the headers."""
    segment = mtu - (HEADER_BYTES - 14)
    packets = -(-payload_bytes // segment)
    return payload_bytes + packets * HEADER_BYTES


def manifest(out: Path) -> dict[str, Any]:
    """Return a record's manifest."""
    answer: dict[str, Any] = json.loads((out / "manifest.json").read_text())
    return answer


def failed_checks(summary: dict[str, Any]) -> set[str]:
    """Return the names of the checks of validity that a run did not pass."""
    return {check["name"] for check in summary["fidelity"]["checks"] if not check["ok"]}


# ---- what a run leaves behind ---------------------------------------------------------


def processes_in(folder: Path) -> dict[int, str]:
    """Return the living processes that work in `folder` or below: pid and command line."""
    return {pid: words for pid, cwd, words in _processes() if cwd == folder or folder in cwd.parents}


def _processes() -> Iterator[tuple[int, Path, str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                yield int(entry.name), Path(os.readlink(entry / "cwd")), words
            except OSError:
                continue  # it has ended, or is somebody else's


def state_of(pid: int) -> str:
    """Return a process's state, one letter as in /proc/PID/stat; X when it is no longer there."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def child_of(pid: int) -> int:
    """Return the only child of a process."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert len(children) == 1, children
    return int(children[0])


def _mounts() -> tuple[str, ...]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return tuple(sorted(line.split()[4] for line in lines))


@dataclass(frozen=True)
class Machine:
    """What a run could leave on the machine, as it was when this was made."""

    interfaces: frozenset[str] = field(default_factory=lambda: frozenset(os.listdir("/sys/class/net")))
    mounts: tuple[str, ...] = field(default_factory=_mounts)
    memory: frozenset[str] = field(default_factory=lambda: frozenset(os.listdir("/dev/shm")))

    def assert_clean(self, out: Path) -> None:
        """Assert that nothing is left of the run that recorded into `out`: before long, no process."""
        wait_for(lambda: not processes_in(out), ends_within_s(), lambda: f"still there: {processes_in(out)}")
        now = Machine()
        assert now.interfaces == self.interfaces
        assert now.mounts == self.mounts
        assert now.memory == self.memory
        assert not (out / ".lab").exists()


def wait_for(predicate: Callable[[], bool], limit_s: float, what: Callable[[], str]) -> None:
    """Wait until `predicate()` holds; AssertionError with `what()` after `limit_s`."""
    end = time.monotonic() + limit_s
    while not predicate():
        assert time.monotonic() < end, what()
        time.sleep(0.02)


# ---- paths beforehand -----------------------------------------------------------------


def predicted_paths(plan: Plan) -> list[str]:
    """Return the links, separated by blanks, that the rules foretell for every transfer of the plan."""
    prediction = Prediction(parse_document(controller_document(plan)))
    return [_predicted_path(plan, transfer, prediction) for transfer in plan.transfers]


def _predicted_path(plan: Plan, transfer: Transfer, prediction: Prediction) -> str:
    source = plan.topology.host(transfer.src).nic(transfer.src_nic)
    target = plan.topology.host(transfer.dst).nic(transfer.dst_nic)
    fields: dict[str, int | str] = {
        "ipv4_src": source.ip,
        "ipv4_dst": target.ip,
        "ip_proto": 6,
        "tcp_src": transfer.src_port,
        "tcp_dst": transfer.dst_port,
    }
    spine = prediction.spine_of(fields)
    middle = [source.leaf, *([spine, target.leaf] if spine else [])]
    return " ".join(f"{a}-{b}" for a, b in pairwise([source.name, *middle, target.name]))
