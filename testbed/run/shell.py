"""`testbed shell` from outside: a lab that stays up for whoever types, then goes without a trace.

With a terminal, that is connected to one of the lab's own: keys and output pass through here. While the
prompt waits for a key in virtual time, the guest is stopped: a clock that jumps from event to event
would otherwise run through days of timers at full load between two keys. Without a terminal, the
commands come from standard input, all at once.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from testbed.errors import InputError, TestbedError
from testbed.lab import native, uml
from testbed.lab.job import Job
from testbed.lab.prompt_words import COMMANDS, HERE, LOG, STEP
from testbed.plan.model import Plan
from testbed.record import layout
from testbed.run.launch import run_plan

MARK = HERE.encode()
END_AT_ONCE = b"\x1d"  # Ctrl-], as in telnet
LEAVES_THE_PROMPT = b"\r\n\x03\x04\x1a\x1c"
"""Return, Ctrl-C, Ctrl-D, Ctrl-Z, Ctrl-\\: after these keys something may run."""
QUIET_S = 0.05
"""So long after the last output or key, a waiting prompt has drawn what it had to."""
PIECE = 65536

ENTRY = "testbed.run.prompt"
NOBODY = (
    "shell needs a terminal, or commands on standard input, as in: "
    "echo 'p1 ping -c 1 d1' | testbed shell incast"
)


def read_commands(stream: TextIO, screen: TextIO) -> list[str] | None:
    """Return the commands on `stream`, None when a person types them there.

    Raises InputError when there is neither a terminal nor a command.
    """
    if stream.isatty() and screen.isatty():
        return None
    commands = [] if stream.isatty() else stream.read().splitlines()
    if not any(line.strip() for line in commands):
        raise InputError(NOBODY)
    return commands


def run_shell(
    plan: Plan,
    scenario_text: str,
    out: Path,
    tell: Callable[[str, float], None],
    commands: list[str] | None,
) -> None:
    """Bring `plan` up and let the terminal, or `commands`, have it; then remove `out`.

    Raises as `run_plan` does; after an error of the lab its logs stay in `out`.
    """
    session = _typed(plan, out, tell) if commands is None else _piped(out, tell, commands)
    try:
        with session as (adapt, told):
            run_plan(plan, scenario_text, out, told, adapt)
    except TestbedError:
        raise
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise
    shutil.rmtree(out)


Session = tuple[Callable[[Job], Job], Callable[[str, float], None]]


@contextmanager
def _piped(out: Path, tell: Callable[[str, float], None], commands: list[str]) -> Iterator[Session]:
    follower = Follower(out / layout.log(LOG))

    def adapt(job: Job) -> Job:
        job.folder.mkdir(parents=True)
        (job.folder / COMMANDS).write_text("\n".join(commands) + "\n")
        return replace(job, entry=ENTRY, settings={"terminal": None}, pause=follower.pause)

    try:
        yield adapt, tell
    finally:
        follower.copy()


class Follower:
    """Copies a growing file to standard output."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._copied = 0

    def copy(self) -> None:
        """Print what has come since the last time."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._copied)
                text = file.read()
            self._copied += len(text)
            sys.stdout.write(text.decode(errors="replace").replace("\r\n", "\n"))
            sys.stdout.flush()

    def pause(self, _process: subprocess.Popen[bytes], seconds: float) -> None:
        """Print what has come, then wait."""
        self.copy()
        time.sleep(seconds)


@contextmanager
def _typed(plan: Plan, out: Path, tell: Callable[[str, float], None]) -> Iterator[Session]:
    del out
    inside = uml.TERMINAL_INSIDE if plan.backend == "uml" else native.TERMINAL_INSIDE
    master, slave = os.openpty()
    relay = Relay(sys.stdin.fileno(), sys.stdout.fileno(), master, freeze=plan.clock == "virtual")
    size = os.get_terminal_size(sys.stdout.fileno())
    settings = {
        "terminal": inside,
        "size": [size.lines or 24, size.columns or 80],
        "term": os.environ.get("TERM", "dumb"),
    }

    def adapt(job: Job) -> Job:
        return replace(
            job, entry=ENTRY, settings=settings, terminal=slave, pause=relay.pause, real_deadline_s=math.inf
        )

    def told(step: str, seconds: float) -> None:
        tell(step, seconds)
        if step == STEP:
            relay.begin()

    try:
        yield adapt, told
    finally:
        relay.end()
        os.close(slave)
        os.close(master)


class Relay:
    """Connects the person's terminal with the lab's: keys one way, output the other.

    With `freeze`, the lab's process is stopped while its prompt waits for a key.
    """

    def __init__(self, keys: int, screen: int, lab: int, *, freeze: bool) -> None:
        self._keys, self._screen, self._lab = keys, screen, lab
        self._freeze = freeze
        self._before: list[object] | None = None
        self._tail = b""
        self._waiting = False
        self._stopped = False
        self._active = 0.0

    def begin(self) -> None:
        """Take the terminal: every key is passed on as it is."""
        self._before = termios.tcgetattr(self._keys)
        tty.setraw(self._keys)

    def end(self) -> None:
        """Pass on what is left and give the terminal back as it was."""
        if self._before is None:
            return
        with contextlib.suppress(OSError, termios.error):
            while select.select([self._lab], [], [], 0)[0]:
                self._show(os.read(self._lab, PIECE))
        with contextlib.suppress(OSError, termios.error):  # the terminal may be closed
            termios.tcsetattr(self._keys, termios.TCSADRAIN, self._before)  # type: ignore[arg-type]
        self._before = None

    def pause(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        """Pass on what comes within `seconds`."""
        if self._before is None:
            time.sleep(seconds)
            return
        ready, _, _ = select.select([self._keys, self._lab], [], [], seconds)
        if self._lab in ready:
            self._show(os.read(self._lab, PIECE))
        if self._keys in ready:
            self._type(process, os.read(self._keys, PIECE))
        self._hold(process)

    def _show(self, data: bytes) -> None:
        data = self._tail + data
        if MARK in data:
            self._waiting = True
            data = data.replace(MARK, b"")
        keep = next((n for n in range(len(MARK) - 1, 0, -1) if data.endswith(MARK[:n])), 0)
        self._tail = data[len(data) - keep :]
        os.write(self._screen, data[: len(data) - keep])
        self._active = time.monotonic()

    def _type(self, process: subprocess.Popen[bytes], keys: bytes) -> None:
        if not keys or END_AT_ONCE in keys:  # no keys: the terminal is closed
            raise KeyboardInterrupt
        if any(key in LEAVES_THE_PROMPT for key in keys):
            self._waiting = False
        self._go_on(process)
        os.write(self._lab, keys)
        self._active = time.monotonic()

    def _hold(self, process: subprocess.Popen[bytes]) -> None:
        quiet = time.monotonic() - self._active > QUIET_S
        if self._freeze and self._waiting and quiet and not self._stopped:
            process.send_signal(signal.SIGSTOP)
            self._stopped = True

    def _go_on(self, process: subprocess.Popen[bytes]) -> None:
        if self._stopped:
            process.send_signal(signal.SIGCONT)
            self._stopped = False
