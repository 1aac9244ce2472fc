"""The library of seeded random numbers is loaded into the lab's kernel; nothing else of a run ever sees it.

Its numbers are no secret: a program that wants a key and got one of them would have a key that anybody knows.
So every process of a run is looked at: those that lead to the kernel, the kernel, all in the guest, and the
program that starts the run.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testbed.lab import job, uml
from testbed.lab.kernels import PROJECT, Kernel, built_kernel
from testbed.plan.build import build_plan
from testbed.run.launch import run_plan
from testbed.scenario import load_scenario
from testbed.scenario.dump import scenario_yaml
from tests.support.command import SLOW, manifest, write_scenario

pytestmark = pytest.mark.ovs

WITH_BACKGROUND = SLOW.replace(
    "measure:",
    "  background:\n  - {from: p2, to: d1, protocol: udp, rate: 10mbit, duration: 3s}\nmeasure:",
)

IN_THE_GUEST = """#!/bin/sh
{python} "$@" &
sleep 2
{python} -S {look} >/mnt/logs/processes.txt
wait
"""
"""Stands for the controller's interpreter: while data is on its way it notes what every process has."""

LOOK = """
import contextlib, glob
for process in glob.glob("/proc/[0-9]*"):
    for name in ("cmdline", "environ", "maps"):
        with contextlib.suppress(OSError):  # a kernel thread has no memory; others end meanwhile
            text = open(f"{process}/{name}", errors="replace").read()
            print(f"process {text}" if name == "cmdline" else text)
"""

ON_THE_WAY = """#!/bin/sh
{{ echo 'program {name}'; tr '\\0' '\\n' </proc/self/environ; }} >>{log}
exec /usr/bin/{name} "$@"
"""
"""Stands for a program between the command and the kernel, and notes what it was given."""

CHAIN = ("setpriv", "setarch", "env")


@dataclass(frozen=True)
class Seen:
    """A process of this machine: its program, and whether the library is in its environment or its memory."""

    program: str
    told: bool
    loaded: bool


def _descendants(of: int) -> Iterator[int]:
    """Walk through all that a process started; what ends meanwhile is left out."""
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{of}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from _descendants(int(child))


def _look(process: int) -> Seen:
    place = Path(f"/proc/{process}")
    environment = (place / "environ").read_bytes()
    return Seen(
        os.readlink(place / "exe"), b"LD_PRELOAD" in environment, "shim" in (place / "maps").read_text()
    )


def _living(processes: Iterable[int]) -> Iterator[Seen]:
    """Look at processes; one that ends while it is looked at has nothing to show."""
    for process in processes:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            yield _look(process)


@dataclass
class Found:
    """What a run left in the record, in the programs' log, and in this machine's list of processes."""

    guest: str
    chain: str
    machine: list[Seen]
    own: Seen
    kernel: Kernel


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("run")
    log, programs = folder / "chain.txt", folder / "bin"
    programs.mkdir()
    for name in CHAIN:
        _write(programs / name, ON_THE_WAY.format(name=name, log=log))
    _write(folder / "look.py", LOOK)
    _write(folder / "python", IN_THE_GUEST.format(python=sys.executable, look=folder / "look.py"))
    machine: list[Seen] = []

    def told(step: str, _seconds: float) -> None:
        if step == "traffic":
            machine.extend(_living(_descendants(os.getpid())))

    environment = uml._environment

    def given(*arguments: Any) -> dict[str, str]:
        own = environment(*arguments)
        return own | {"PATH": f"{programs}:{own['PATH']}"}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "controller_python", lambda framework: str(folder / "python"))
        patch.setattr(uml, "_environment", given)
        scenario = load_scenario(str(write_scenario(folder, WITH_BACKGROUND)))
        plan = build_plan(scenario, seed=1, backend="uml", clock="virtual")
        run_plan(plan, scenario_yaml(scenario), folder / "record", told)
    assert manifest(folder / "record")["status"] == "complete"
    guest = (folder / "record/logs/processes.txt").read_text(errors="replace")
    return Found(guest, log.read_text(), machine, _look(os.getpid()), built_kernel())


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_on_this_machine_only_the_kernel_has_it(found: Found) -> None:
    kernel = str(found.kernel.path.resolve())
    assert {one.program for one in found.machine if one.told or one.loaded} == {kernel}
    assert any(one.told and one.loaded for one in found.machine)  # or nothing would have been looked for


def test_what_leads_to_the_kernel_is_not_told(found: Found) -> None:
    assert [line for line in found.chain.splitlines() if line.startswith("program ")] == [
        f"program {name}" for name in CHAIN
    ]
    assert "KV_TESTBED_SEED=1" in found.chain
    assert "LD_PRELOAD" not in found.chain


def test_nothing_in_the_guest_has_it(found: Found) -> None:
    processes = [line for line in found.guest.splitlines() if line.startswith("process ")]
    for part in ("ovs-vswitchd", "ovsdb-server", "controller.main", "testbed.run.inside", "iperf3"):
        assert any(part in line for line in processes), f"{part} was not looked at: {processes}"
    for sign in ("LD_PRELOAD", "KV_TESTBED_SEED", "shim"):
        assert sign not in found.guest
    assert "libc.so.6" in found.guest  # memory was looked at


def test_the_program_that_starts_the_run_has_it_not(found: Found) -> None:
    assert (found.own.told, found.own.loaded) == (False, False)


def test_one_place_says_that_it_is_loaded() -> None:
    folders = ("testbed", "traffic", "controller", "topologies", "scripts")
    files = [
        path for name in folders for path in (PROJECT / name).rglob("*") if path.suffix in ("", ".py", ".sh")
    ]
    named = [
        str(path.relative_to(PROJECT))
        for path in files
        if path.is_file() and "LD_PRELOAD" in path.read_text(errors="replace")
    ]
    assert named == ["testbed/lab/uml.py"]
