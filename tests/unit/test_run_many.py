"""Many runs: the command each one is, how they end, the order, and what an interruption leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from testbed.machine import Machine
from testbed.run import many
from testbed.run.many import Ended, Task, default_jobs, run_many, seconds_left
from testbed.signals import OUT_OF_MEMORY, Aborted

RUN = """
import os, pathlib, signal, sys, time
words = sys.argv[1:]
out, seed = pathlib.Path(words[words.index("--out") + 1]), int(words[words.index("--seed") + 1])
def end(number, frame):
    (out / "ended").write_text(str(number))
    sys.exit(128 + number)
signal.signal(signal.SIGTERM, end)
out.mkdir(parents=True)
(out / "begun").write_text(str(os.getpid()))
if words[1] == "sleep":
    time.sleep(30)
if words[1] == "nap":
    time.sleep(1)
if words[1] == "first-last" and seed == 1:
    while not (out.parent / "2" / "begun").exists():
        time.sleep(0.01)
if words[1] == "die":
    os.kill(os.getpid(), signal.SIGKILL)
(out / "summary.json").write_text('{"seed": %d}' % seed)
print("testbed: something was said\\ntestbed: the last word" if seed == 3 else "", file=sys.stderr)
sys.exit({3: 3, 4: 4}.get(seed, 0))
"""
"""Stands in for the testbed: what it does depends on the scenario's name and the seed."""


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "run.py"
    program.write_text(RUN)
    monkeypatch.setattr(many, "COMMAND", (sys.executable, str(program)))


def tasks(folder: Path, scenario: str, *seeds: int) -> list[Task]:
    return [Task(scenario, seed, folder / str(seed)) for seed in seeds]


def quiet(_ended: Ended, _done: int, _total: int) -> None:
    pass


def wait_for(path: Path) -> None:
    end = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.01)


def test_a_task_is_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "COMMAND", ("testbed",))
    task = Task("incast", 7, Path("here"), ("fabric.mtu=1500", "hosts.decode.count=2"), clock="real")
    assert " ".join(task.command()) == (
        "testbed run incast --seed 7 --backend auto --clock real "
        "--set fabric.mtu=1500 --set hosts.decode.count=2 --out here --json"
    )


def test_each_ends_by_itself(tmp_path: Path) -> None:
    ended = run_many(tasks(tmp_path, "plain", 1, 3, 4), 2, quiet)
    assert [(one.task.seed, one.exit_code, one.message, one.measured) for one in ended] == [
        (1, 0, "", True),
        (3, 3, "the last word", False),
        (4, 4, "left no message: it ended with status 4", True),
    ]
    assert [one.summary() for one in ended] == [{"seed": 1}, {"seed": 3}, {"seed": 4}]
    assert all(0 < one.seconds < 10 for one in ended)


def test_a_run_that_is_killed_has_a_status_of_its_own(tmp_path: Path) -> None:
    (one,) = run_many(tasks(tmp_path, "die", 1), 1, quiet)
    assert (one.exit_code, one.measured) == (128 + signal.SIGKILL, False)
    assert one.message == f"left no message: it was killed by SIGKILL, {OUT_OF_MEMORY}"


def test_the_order_is_that_of_the_tasks(tmp_path: Path) -> None:
    told: list[tuple[int, int, int]] = []
    ended = run_many(
        tasks(tmp_path, "first-last", 1, 2),
        2,
        lambda one, done, total: told.append((one.task.seed, done, total)),
    )
    assert [one.task.seed for one in ended] == [1, 2]
    assert len(told) == 2
    assert [step[1:] for step in told] == [(1, 2), (2, 2)]


def test_no_more_than_jobs_at_a_time(tmp_path: Path) -> None:
    # With one job, the first would wait for the second for ever: it is ended by the interruption.
    timer = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGTERM))
    timer.start()
    try:
        with pytest.raises(Aborted):
            run_many(tasks(tmp_path, "first-last", 1, 2), 1, quiet)
    finally:
        timer.cancel()
    assert not (tmp_path / "2").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_what_runs_and_begins_nothing(tmp_path: Path, number: int) -> None:
    wanted = tasks(tmp_path, "sleep", 1, 2)

    def interrupt() -> None:
        wait_for(wanted[0].out / "begun")
        os.kill(os.getpid(), number)

    other = threading.Thread(target=interrupt)
    other.start()
    with pytest.raises(KeyboardInterrupt) as caught:
        run_many(wanted, 1, quiet)
    other.join()
    assert getattr(caught.value, "number", signal.SIGINT) == number
    assert (wanted[0].out / "ended").read_text() == str(int(signal.SIGTERM))
    assert not wanted[1].out.exists()


def test_a_run_does_not_outlive_the_program(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys\n"
        "from testbed.run import many\n"
        f"many.COMMAND = {many.COMMAND!r}\n"
        "many.run_many([many.Task('sleep', 1, pathlib.Path(sys.argv[1]))], 1, lambda *_: None)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "1")])
    wait_for(tmp_path / "1" / "begun")
    process.kill()
    process.wait()
    wait_for(tmp_path / "1" / "ended")


def test_an_executor_runs_the_same_tasks(tmp_path: Path) -> None:
    told: list[int] = []
    with ThreadPoolExecutor(2) as pool:
        ended = run_many(tasks(tmp_path, "plain", 1, 3), 1, lambda one, done, total: told.append(done), pool)
    assert [one.exit_code for one in ended] == [0, 3]
    assert told == [1, 2]


def test_an_interruption_takes_back_what_an_executor_has_not_begun(tmp_path: Path) -> None:
    wanted = tasks(tmp_path, "nap", 1, 2)

    def interrupt() -> None:
        wait_for(wanted[0].out / "begun")
        os.kill(os.getpid(), signal.SIGTERM)

    other = threading.Thread(target=interrupt)
    other.start()
    with ThreadPoolExecutor(1) as pool, pytest.raises(Aborted):
        run_many(wanted, 1, quiet, pool)
    other.join()
    assert (wanted[0].out / "summary.json").exists()
    assert not wanted[1].out.exists()


def test_time_left_is_that_of_the_rest_at_the_mean_so_far() -> None:
    assert seconds_left([4.0, 6.0], 10, 2) == 25.0
    assert seconds_left([4.0, 6.0], 1, 2) == 5.0  # one run keeps one job busy
    assert seconds_left([], 10, 2) == 0.0
    assert seconds_left([5.0], 0, 2) == 0.0


@pytest.mark.parametrize(("mebibytes", "jobs"), [(3 << 10, 6), (100, 1), (1 << 20, 8), (None, 8)])
def test_jobs_fit_the_machine(mebibytes: int | None, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Described(Machine):
        def available_memory_bytes(self) -> int | None:
            return None if mebibytes is None else mebibytes << 20

    monkeypatch.setattr(many.os, "cpu_count", lambda: 8)
    assert default_jobs(Described()) == jobs
