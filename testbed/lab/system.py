"""Running programs and waiting for conditions inside the lab.

All commands go through `run`: a list, no shell, output and status in the error. Nothing here knows
what the commands mean.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import DeadlineError, LabError

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
_RB_POWER_OFF = 0x4321FEDC


def run(command: Sequence[str], *, stdin: str | None = None) -> str:
    """Run `command` and return its standard output.

    Raises LabError with the command, its status and its error output when it fails.
    """
    try:
        done = subprocess.run(
            list(command), input=stdin, capture_output=True, text=True, check=False, close_fds=False
        )
    except OSError as error:
        raise LabError(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().replace("\n", "; ")
        raise LabError(f"'{' '.join(command)}' ended with status {done.returncode}: {said}")
    return done.stdout


def wait_until(predicate: Callable[[], bool], timeout_s: float, what: str, *, step_s: float = 0.01) -> None:
    """Wait until `predicate()` is true; DeadlineError, naming `what`, after `timeout_s` seconds."""
    end = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() >= end:
            raise DeadlineError(f"waited {timeout_s:g} s for {what}")
        time.sleep(step_s)


def go_first() -> None:
    """Run this process before every ordinary one, whenever it has something to do.

    In virtual time computing takes no time, so the scheduler sees no reason to take the processor from a
    program that never sleeps (iperf3 with room in its socket) before its slice of 0.75 ms is over. Not
    for a real clock: on a machine that cannot keep up, a probe that is always late would starve all else.
    """
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def power_off() -> None:
    """Switch the guest kernel off; only for a lab that has a kernel of its own."""
    sys.stdout.flush()
    sys.stderr.flush()
    _libc.reboot(_RB_POWER_OFF)


@contextmanager
def network_namespace(path: Path | str) -> Iterator[None]:
    """Let the calling thread live in the network namespace at `path`, e.g. /run/netns/p1.

    Sockets opened inside stay in that namespace for good. Raises LabError when it cannot be entered.
    """
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _enter(path)
        yield
    finally:
        _libc.setns(home, _CLONE_NEWNET)
        os.close(home)


def _enter(path: Path | str) -> None:
    try:
        target = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise LabError(f"network namespace {path}: {error.strerror}") from error
    try:
        if _libc.setns(target, _CLONE_NEWNET):
            raise LabError(f"network namespace {path}: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(target)
