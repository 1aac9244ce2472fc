"""Runs that do not come to their own end: deadlines, signals, parts that are killed, two at once.

Whatever happens, the record says what became of the run, and nothing of it is left on the machine.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from testbed.record.reader import Record
from testbed.signals import OUT_OF_MEMORY
from tests.support.command import (
    COMES_WITHIN_S,
    Machine,
    await_step,
    call,
    child_of,
    ends_within_s,
    manifest,
    processes_in,
    run,
    settings,
    start,
    wait_for,
    write_scenario,
)

LONG = settings(["workload.requests.kv_bytes=4gib"])
"""Half a minute of traffic: what comes in the midst of it does, and nothing ends by itself meanwhile."""


@pytest.fixture
def machine() -> Machine:
    return Machine()


# ---- deadlines ------------------------------------------------------------------------


def test_the_scenarios_deadline_ends_the_run(tmp_path: Path, machine: Machine) -> None:
    out = tmp_path / "record"
    done = call("run", write_scenario(tmp_path), "--out", out, *settings(["deadline.scenario=300us"]))
    reason = (
        "2 of 2 transfers had not ended after 0.3 ms of scenario time, the first is 0, p1 -> d1 "
        "(deadline.scenario)"
    )
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == f"testbed: {reason}"
    assert (manifest(out)["status"], manifest(out)["reason"]) == ("failed", reason)
    machine.assert_clean(out)


def test_what_was_measured_until_the_deadline_can_be_read(tmp_path: Path) -> None:
    out = tmp_path / "record"
    call("run", write_scenario(tmp_path), "--out", out, *settings(["deadline.scenario=300us"]))
    record = Record.open(out)
    assert len(record.series("leaf2-d1").time_ns) >= 300 // 20
    assert record.totals("leaf2-d1")["bytes"] > 1_000_000  # 0.3 ms at 100 Gbit/s are 3.75 MB
    times, received = record.progress(0)
    assert len(times) >= 2
    assert received[-1] > 0
    done = call("report", out)
    assert done.returncode == 0, done.stderr
    assert "the run is failed" in done.stdout


def test_the_real_deadline_ends_the_run(tmp_path: Path, machine: Machine) -> None:
    out = tmp_path / "record"
    begun = time.monotonic()
    more = settings(["workload.requests.kv_bytes=1gib", "deadline.real=20s"])
    process = start("run", write_scenario(tmp_path), "--out", out, *more)
    await_step(process, "traffic")
    os.kill(child_of(process.pid), signal.SIGSTOP)  # however fast the machine is, it does not get to its end
    _, errors = process.communicate(timeout=20 + 2 * ends_within_s())
    assert time.monotonic() - begun >= 20
    reason = "the run was ended after 20 s of real time (deadline.real)"
    assert process.returncode == 3
    assert errors.splitlines()[-1] == f"testbed: {reason}"
    assert (manifest(out)["status"], manifest(out)["reason"]) == ("failed", reason)
    machine.assert_clean(out)


# ---- signals --------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("step", ["open vswitch", "forwarding rules", "traffic"])
def test_a_signal_ends_the_run(tmp_path: Path, machine: Machine, number: signal.Signals, step: str) -> None:
    out = tmp_path / "record"
    process = start("run", write_scenario(tmp_path), "--out", out, *LONG)
    await_step(process, step)
    process.send_signal(number)
    output, errors = process.communicate(timeout=ends_within_s())
    assert process.returncode == 128 + number
    assert output == ""
    assert errors.splitlines()[-1] == f"testbed: ended by {number.name}"
    assert (manifest(out)["status"], manifest(out)["reason"]) == ("aborted", f"ended by {number.name}")
    machine.assert_clean(out)


# ---- kill -9 --------------------------------------------------------------------------


def test_the_guest_dies_with_the_command(tmp_path: Path) -> None:
    out, machine = tmp_path / "record", Machine()
    scenario = write_scenario(tmp_path)
    process = start("run", scenario, "--out", out, *LONG)
    await_step(process, "traffic")
    assert len(processes_in(out)) > 5  # the guest kernel and, traced by it, each process of the lab
    process.kill()
    process.communicate()
    wait_for(lambda: not processes_in(out), ends_within_s(), lambda: f"still there: {processes_in(out)}")
    assert manifest(out)["status"] == "running"

    done = call("clean", tmp_path)
    assert done.stdout == f"{out}: marked as aborted, temporary files removed\n"
    assert manifest(out)["status"] == "aborted"
    assert manifest(out)["reason"] == "the run was killed; found by `testbed clean`"
    machine.assert_clean(out)


MOMENTS = [
    ("", 0.0), ("", 0.2), ("open vswitch", 0.0), ("controller", 0.0), ("3 hosts, 4 switches", 0.0),
    ("addresses and queues", 0.0), ("forwarding rules", 0.0), ("reading back", 0.0), ("traffic", 0.0),
    ("traffic", 0.5),
]  # fmt: skip
"""Steps of a run, the first that its record is there, and so many seconds after each began."""


def test_killed_at_any_of_ten_moments_nothing_runs_on_and_the_same_command_works_at_once(
    tmp_path: Path,
) -> None:
    out, scenario, machine = tmp_path / "record", write_scenario(tmp_path), Machine()
    for step, seconds in MOMENTS:
        if not step:
            shutil.rmtree(out, ignore_errors=True)
        process = start("run", scenario, "--out", out, *LONG)
        if step:
            await_step(process, step)
        else:
            wait_for((out / ".lab/init.sh").exists, COMES_WITHIN_S, lambda: "the run did not begin")
        time.sleep(seconds)
        process.kill()
        process.communicate()
        wait_for(lambda: not processes_in(out), ends_within_s(), lambda: f"still there: {processes_in(out)}")
        assert Machine() == machine
        assert manifest(out)["status"] == "running"
        assert (out / ".lab").exists()
    again = run(out, scenario)
    assert again.summary["fidelity"]["valid"] is True
    assert manifest(out)["status"] == "complete"
    machine.assert_clean(out)


def test_a_killed_guest_is_told(tmp_path: Path, machine: Machine) -> None:
    out = tmp_path / "record"
    process = start("run", write_scenario(tmp_path), "--out", out, *LONG)
    await_step(process, "traffic")
    os.kill(child_of(process.pid), signal.SIGKILL)
    _, errors = process.communicate(timeout=ends_within_s())
    assert process.returncode == 3
    said = errors.splitlines()[-1]
    reason = (
        f"the lab ended without a result: the guest kernel was killed by SIGKILL, {OUT_OF_MEMORY}; "
        "see logs/guest-kernel.log"
    )
    assert said.startswith(f"testbed: {reason}")
    assert manifest(out)["status"] == "failed"
    assert f"testbed: {manifest(out)['reason']}" == said
    machine.assert_clean(out)


# ---- two at once ----------------------------------------------------------------------


def test_a_second_run_into_the_same_folder_is_refused(tmp_path: Path) -> None:
    out, scenario = tmp_path / "record", write_scenario(tmp_path)
    first = start("run", scenario, "--out", out)
    await_step(first, "open vswitch")
    first.send_signal(signal.SIGSTOP)  # however long the others take, it does not end meanwhile
    try:
        second = call("run", scenario, "--out", out)
        assert second.returncode == 3
        assert second.stderr == (
            f"testbed: {out}: another run is writing there; wait for it or give another --out\n"
        )
        # Nor does `clean` take a run that is alive for one that was killed.
        assert call("clean", tmp_path).stdout == f"nothing to clean in {tmp_path}\n"
    finally:
        first.send_signal(signal.SIGCONT)
    _, errors = first.communicate(timeout=60)
    assert first.returncode == 0, errors
    assert manifest(out)["status"] == "complete"


def test_a_reader_that_goes_away_does_not_harm_the_run(tmp_path: Path) -> None:
    out = tmp_path / "record"
    with start("run", write_scenario(tmp_path), "--out", out, "--json") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=60) == 141
    assert manifest(out)["status"] == "complete"
