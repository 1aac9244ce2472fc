"""Kills one part of a running lab at a moment: `killer.py LOG STEP SECONDS PART [COMMAND...]`.

Waits until the lab's progress, the file LOG, has come to STEP, then SECONDS by the lab's own clock, and ends
PART by SIGKILL. With a COMMAND, this process becomes that command and a child of it is the killer: so it
starts in a lab in the place of the controller. It comes first whenever it has something to do: a step of the
lab may last no time at all.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from pathlib import Path

IN_MODIFY = 2
LIMIT_S = 60
PROGRAMS = ("ovs-vswitchd", "ovsdb-server")
MODULES = {"controller": b"controller.main", "testbed": b"testbed.cli"}

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Do as the arguments say."""
    log, step, seconds, part, *command = sys.argv[1:]
    if command and os.fork():
        os.execv(command[0], command)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
    await_step(Path(log), step)
    time.sleep(float(seconds))
    os.kill(find(part), signal.SIGKILL)


def await_step(log: Path, step: str) -> None:
    """Return as soon as the progress has come to `step`; TimeoutError when it does not come."""
    # Held open: a hostfs forgets a file that nobody has open, and its watch with it (Linux 6.1).
    with log.open() as held:
        watch = _libc.inotify_init1(0)
        if watch < 0 or _libc.inotify_add_watch(watch, str(log).encode(), IN_MODIFY) < 0:
            raise OSError(ctypes.get_errno(), f"inotify: {log}")
        lines = held.readlines()
        while f"{step}\n" not in lines:
            if not select.select([watch], [], [], LIMIT_S)[0]:
                raise TimeoutError(f"no {step!r} after {LIMIT_S} s")
            os.read(watch, 4096)
            lines += held.readlines()


def find(part: str) -> int:
    """Return the process id of a part, once it is there."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        for entry in Path("/proc").iterdir():
            # What ends meanwhile, and the kernel's own, have nothing to be read.
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and entry.name != str(os.getpid()) and _is(entry, part):
                    return int(entry.name)
        time.sleep(0.001)
    raise TimeoutError(f"no {part} after {LIMIT_S} s")


def _is(process: Path, part: str) -> bool:
    if part in PROGRAMS:
        return (process / "comm").read_text().strip() == part
    if part in MODULES:
        return MODULES[part] in (process / "cmdline").read_bytes().split(b"\0")
    # A program of the run is known by its log.
    return os.readlink(process / "fd/1").endswith(f"/{part}.log")


if __name__ == "__main__":
    main()
