"""The forked programs of a run: started together, told the epoch, awaited, asked to finish. Inside the lab.

What a program does is its own; here is how it begins and how its end is told. Called by `inside`.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from testbed.errors import DeadlineError, LabError, TestbedError

READY_TIMEOUT_S = 120
"""How long a program of the run may take to set itself up."""

READY = b"\0"
"""A child's word that it is set up. What else it says is its last word, as text: its log may be lost."""
LAST_WORD_BYTES = 1000


@dataclass(frozen=True)
class Child:
    """A forked program of the run, with the pipes that start it and the one it answers on.

    `serves` names the hosts it works for, if it does for some in particular.
    """

    name: str
    pid: int
    start: int
    answer: int
    serves: str = ""

    def wait_ready(self) -> None:
        """Wait for the child's word that it is set up; DeadlineError, naming whom it serves, without one."""
        if not select.select([self.answer], [], [], READY_TIMEOUT_S)[0]:
            who = f" ({self.serves})" if self.serves else ""
            raise DeadlineError(
                f"{self.name}{who} was not ready after {READY_TIMEOUT_S} s; see logs/{self.name}.log"
            )
        word = os.read(self.answer, 1)
        if word != READY:
            said = _said(word + os.read(self.answer, LAST_WORD_BYTES))
            raise LabError(f"{self.name} did not start{said}; see logs/{self.name}.log")

    def go(self, epoch_ns: int) -> None:
        """Tell the child when the workload begins; that it has died meanwhile, `ended` finds."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self.start, epoch_ns.to_bytes(8, "little"))

    def ended(self) -> bool:
        """Return True once the child has ended well; LabError when it failed."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return False
        if status:
            raise self._failed(status)
        return True

    def stop(self) -> None:
        """Ask the child to finish and wait for it."""
        os.kill(self.pid, signal.SIGTERM)
        _, status = os.waitpid(self.pid, 0)
        if status:
            raise self._failed(status)

    def _failed(self, status: int) -> LabError:
        said = _said(os.read(self.answer, LAST_WORD_BYTES))
        return LabError(f"{self.name} {_how(status)}{said}; see logs/{self.name}.log")


def _said(word: bytes) -> str:
    """Return a child's last word as the end of a sentence; nothing when it had none."""
    return f": {word.decode(errors='replace')}" if word else ""


def _how(status: int) -> str:
    """Say how a child ended that did not end well, by its wait status."""
    if os.WIFSIGNALED(status):
        return f"was killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"failed with status {os.waitstatus_to_exitcode(status)}"


Program = Callable[[Callable[[], None], Callable[[], int]], None]
"""A child's main: gets `ready` to call when set up and `epoch` to wait for the workload's start."""


def spawn(name: str, program: Program, log_dir: Path, serves: str = "", *, files: int | None = None) -> Child:
    """Fork a child that runs `program`, its output going to a log of its name.

    It may have `files` descriptors (None: as many as its parent).
    """
    start_read, start_write = os.pipe()
    answer_read, answer_write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(start_read)
        os.close(answer_write)
        return Child(name, pid, start_write, answer_read, serves)
    status = 1
    try:
        log = os.open(log_dir / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if files is not None:
            # Mininet's start has lowered the limit for everybody (`mininet_net.OPEN_FILES`).
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        program(
            partial(_say_ready, answer_write),
            lambda: int.from_bytes(os.read(start_read, 8), "little"),
        )
        status = 0
    except BaseException as error:  # noqa: BLE001 - whatever ends a child is told
        os.write(answer_write, words_of(error).encode()[:LAST_WORD_BYTES])
        traceback.print_exc()
    finally:
        # Never back into the caller's code, of which this is a copy, though the log's disk may be full.
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(status)


def words_of(error: BaseException) -> str:
    """Return what ended a program, in one line."""
    kind = "" if isinstance(error, TestbedError) else f"{type(error).__name__}: "
    return kind + " ".join(str(error).split())


def _say_ready(answer: int) -> None:
    os.write(answer, READY)
