"""A part of the lab that dies, whenever it does: the run ends at once, names the part and leaves nothing."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import RUN_LIMIT_S, SLOW, Machine, manifest, run, write_scenario

ROOT = Path(__file__).parents[2]
KILLER = ROOT / "tests/data/guest/killer.py"
PROGRESS_INSIDE = "/mnt/.lab/progress.log"
AT_ONCE = 2
"""Labs beside each other: a guest uses one processor."""

pytestmark = pytest.mark.timeout(600)

Moment = tuple[str, float]
"""A step of the lab's progress, and the seconds of virtual time after it began."""

BUILDING: list[Moment] = [
    ("controller", 0), ("3 hosts, 4 switches", 0), ("addresses and queues", 0), ("forwarding rules", 0),
    ("reading back", 0),
]  # fmt: skip
RUNNING: list[Moment] = [
    ("traffic", 0), ("traffic", 0.001), ("traffic", 0.5), ("traffic", 1.2), ("traffic", 1.9),
]  # fmt: skip
MORE_RUNNING: list[Moment] = [
    ("traffic", 0.004), ("traffic", 0.006), ("traffic", 0.1), ("traffic", 0.9), ("traffic", 1.5),
]  # fmt: skip

VSWITCHD = "ovs-vswitchd ended with status -9; see its log in the record"
OVSDB = "ovsdb-server ended with status -9; see its log in the record"
CONTROLLER = "the controller ended with status {0}; see logs/controller.log"


def killing(part: str, step: str, seconds: float) -> str:
    """Return the script that kills a part at a moment, beside the real controller."""
    words = [
        "/usr/bin/python3",
        "-IS",
        str(KILLER),
        PROGRESS_INSIDE,
        step,
        str(seconds),
        part,
        sys.executable,
    ]
    return f'exec {shlex.join(words)} "$@"'


def begin(folder: Path, script: str) -> subprocess.Popen[str]:
    """Start a run of `SLOW` with a shell script in the place of the controller's interpreter."""
    folder.mkdir()
    fake = folder / "fake-python"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    words = [str(write_scenario(folder, SLOW)), str(folder / "record"), str(fake)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.dying", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def deaths(folder: Path, scripts: list[str]) -> list[Path]:
    """Run with each of the scripts, some beside each other; return the records, whose runs all failed.

    Each said what its manifest says.
    """
    folders = [folder / str(number) for number in range(len(scripts))]
    said = []
    for first in range(0, len(scripts), AT_ONCE):
        some = slice(first, first + AT_ONCE)
        processes = [begin(*each) for each in zip(folders[some], scripts[some], strict=True)]
        try:
            said += [process.communicate(timeout=RUN_LIMIT_S)[0].strip() for process in processes]
        finally:
            for process in processes:
                process.kill()  # its guest dies with it
    records = [each / "record" for each in folders]
    assert [manifest(each)["status"] for each in records] == ["failed"] * len(records)
    assert [manifest(each)["reason"] for each in records] == said
    return records


@pytest.mark.parametrize(
    ("part", "moments", "reason", "log"),
    [
        ("ovs-vswitchd", BUILDING + RUNNING, VSWITCHD, "ovs-vswitchd.log"),
        ("controller", BUILDING + RUNNING, CONTROLLER.format(-9), "controller.log"),
        (
            "traffic",
            RUNNING + MORE_RUNNING,
            "traffic was killed by SIGKILL; see logs/traffic.log",
            "traffic.log",
        ),
    ],
    ids=["ovs-vswitchd", "controller", "senders"],
)
def test_killed_at_any_of_ten_moments_it_is_named_and_the_next_run_works(
    tmp_path: Path, part: str, moments: list[Moment], reason: str, log: str
) -> None:
    machine = Machine()
    records = deaths(tmp_path, [killing(part, *moment) for moment in moments])
    said = {moment: manifest(record)["reason"] for moment, record in zip(moments, records, strict=True)}
    assert said == dict.fromkeys(moments, reason)
    assert len(said) == 10
    assert [record for record in records if not (record / "logs" / log).exists()] == []
    for record in records:
        machine.assert_clean(record)
    again = run(records[0], write_scenario(tmp_path))
    assert again.summary["fidelity"]["valid"] is True
    machine.assert_clean(records[0])


OTHERS = [
    ("exit 7", CONTROLLER.format(7), "controller.log"),
    (f'{sys.executable} "$@" & sleep 2; exit 7', CONTROLLER.format(7), "controller.log"),
    (killing("ovsdb-server", "3 hosts, 4 switches", 0), OVSDB, "ovsdb-server.log"),
    (killing("ovsdb-server", "forwarding rules", 0), OVSDB, "ovsdb-server.log"),
    (killing("ovsdb-server", "traffic", 1), OVSDB, "ovsdb-server.log"),
    (killing("probe", "traffic", 0), "probe was killed by SIGKILL; see logs/probe.log", "probe.log"),
    (killing("probe", "traffic", 1), "probe was killed by SIGKILL; see logs/probe.log", "probe.log"),
]
"""A controller that gives up, at once and under traffic, and the parts that run for the lab alone."""


def test_whatever_else_ends_is_named(tmp_path: Path) -> None:
    machine = Machine()
    records = deaths(tmp_path, [script for script, _, _ in OTHERS])
    assert [manifest(record)["reason"] for record in records] == [reason for _, reason, _ in OTHERS]
    for record, (_, _, log) in zip(records, OTHERS, strict=True):
        assert (record / "logs" / log).exists()
        machine.assert_clean(record)
