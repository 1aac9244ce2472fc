"""Runs many scenarios: a command `testbed run` for each, side by side, here or on an executor's workers.

A run is a process of its own, so that nothing of one reaches another and each can be ended alone. No
result is judged here: a task has ended, with an exit code, and its record lies where the task said.
Called by the commands that need more than one run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.machine import Machine
from testbed.record import layout
from testbed.signals import how_ended, termination

COMMAND = (sys.executable, "-m", "testbed.cli")
"""The testbed as a program, the same code that is running now."""

MEMORY_MB = 512
"""What one run of a shipped scenario takes of the machine's memory, at most."""

KILLED_BASE = 128


@dataclass(frozen=True)
class Task:
    """One run to be made. `scenario` is a shipped name or a file, `overrides` are `path.to.key=value`."""

    scenario: str
    seed: int
    out: Path
    overrides: tuple[str, ...] = ()
    backend: str = "auto"
    clock: str | None = None

    def command(self) -> list[str]:
        """Return the command line that makes this run."""
        words = ["run", self.scenario, "--seed", str(self.seed), "--backend", self.backend]
        words += ["--clock", self.clock] if self.clock else []
        words += [word for override in self.overrides for word in ("--set", override)]
        return [*COMMAND, *words, "--out", str(self.out), "--json"]


@dataclass(frozen=True)
class Ended:
    """A task that has ended: the command's exit code, the error it printed (or nothing), and its seconds."""

    task: Task
    exit_code: int
    message: str
    seconds: float

    @property
    def measured(self) -> bool:
        """Whether there is a summary: the run itself came to its end (exit 0, 1 or 4)."""
        return self.exit_code in (0, 1, 4)

    def summary(self) -> dict[str, Any]:
        """Return the run's summary. OSError when there is none."""
        found: dict[str, Any] = json.loads((self.task.out / layout.SUMMARY).read_text(encoding="utf-8"))
        return found


Tell = Callable[[Ended, int, int], None]
"""Told of each task that ended, how many have, and how many there are."""


def run_many(tasks: Sequence[Task], jobs: int, tell: Tell, pool: Executor | None = None) -> list[Ended]:
    """Run all tasks, `jobs` at a time, and return how they ended, in the order of the tasks.

    A run that fails ends nothing but itself. `tell` is called in this thread. With `pool`, tasks go to that
    executor and `jobs` has no effect; its workers must see the same files. When this is interrupted
    (Control-C, SIGTERM), what has not begun is dropped, runs on this machine are ended in order and their
    records say `aborted`; the exception goes on.
    """
    children = Children()
    local = ThreadPoolExecutor(max(1, jobs)) if pool is None else None
    futures: dict[Future[Ended], int] = {}
    ended: dict[int, Ended] = {}
    try:
        with termination():
            for number, task in enumerate(tasks):
                future = local.submit(children.run, task) if local else _remote(pool, task)
                futures[future] = number
            for future in as_completed(futures):
                one = ended[futures[future]] = future.result()
                tell(one, len(ended), len(tasks))
    finally:
        for future in futures:
            future.cancel()
        children.end()
        if local:
            local.shutdown()
    return [ended[number] for number in range(len(tasks))]


def run_task(task: Task) -> Ended:
    """Run one task and return how it ended; what an executor's worker is given to do."""
    return Children().run(task)


def default_jobs(machine: Machine | None = None) -> int:
    """Return how many runs a machine holds side by side: one for each processor, as far as memory goes."""
    processors, available = os.cpu_count() or 1, (machine or Machine()).available_memory_bytes()
    return processors if available is None else max(1, min(processors, available // (MEMORY_MB << 20)))


def seconds_left(seconds: Iterable[float], remaining: int, jobs: int) -> float:
    """Return how long the `remaining` tasks will take, `jobs` at a time, at the mean of those that ended."""
    known = list(seconds)
    return sum(known) / len(known) * remaining / max(1, min(jobs, remaining)) if known and remaining else 0.0


class Children:
    """The processes of this machine's runs, from any thread, and a way to end them all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._living: set[subprocess.Popen[str]] = set()
        self._ended = False

    def run(self, task: Task) -> Ended:
        """Run a task to its end. CancelledError when all were ended before it began."""
        started = time.monotonic()
        process = self._start(task)
        try:
            errors = process.communicate()[1]
        finally:
            with self._lock:
                self._living.discard(process)
        status = process.returncode if process.returncode >= 0 else KILLED_BASE - process.returncode
        return Ended(task, status, _message(errors, status), time.monotonic() - started)

    def _start(self, task: Task) -> subprocess.Popen[str]:
        with self._lock:
            if self._ended:
                raise CancelledError
            # A session of its own: Control-C at a terminal reaches this program only, which ends its runs.
            # And a run must not outlive it, however it is ended.
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *task.command()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            self._living.add(process)
            return process

    def end(self) -> None:
        """Ask every run to end; no other begins."""
        with self._lock:
            self._ended = True
            for process in self._living:
                process.terminate()


def _message(errors: str, status: int) -> str:
    lines = errors.strip().splitlines()
    if not lines:
        how = how_ended(KILLED_BASE - status if status > KILLED_BASE else status)
        return "" if status == 0 else f"left no message: it {how}"
    return lines[-1].removeprefix("testbed: ")


def _remote(pool: Executor | None, task: Task) -> Future[Ended]:
    assert pool is not None
    return pool.submit(run_task, task)
