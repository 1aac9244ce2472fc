"""A person at a terminal: a pseudo-terminal, a command on it, keys typed and the screen read."""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIMIT_S = 60


class Terminal:
    """A command that runs on a terminal of its own; `screen` is all that it has printed."""

    def __init__(self, words: list[str], cwd: Path) -> None:
        self._master, slave = os.openpty()
        self.screen = ""
        self.process = subprocess.Popen(
            ["setsid", "-c", *words], cwd=cwd, stdin=slave, stdout=slave, stderr=slave,
        )  # fmt: skip
        os.close(slave)

    def type(self, keys: str) -> None:
        """Type."""
        os.write(self._master, keys.encode())

    def close(self) -> None:
        """Close the terminal's window: whoever runs on it is told by SIGHUP."""
        os.close(self._master)
        self._master = -1

    def until(self, pattern: str, limit_s: float = LIMIT_S) -> str:
        """Return what came since the last call once `pattern` is in it; AssertionError if it never is."""
        end, begun = time.monotonic() + limit_s, len(self.screen)
        while not re.search(pattern, self.screen[begun:]):
            assert time.monotonic() < end, f"no {pattern!r} in {self.screen!r}"
            self._read(0.1)
        return self.screen[begun:]

    def ended(self, limit_s: float = LIMIT_S) -> int:
        """Read on until the command has ended and return its status."""
        end = time.monotonic() + limit_s
        while self.process.poll() is None:
            assert time.monotonic() < end, self.screen
            if self._master < 0:
                time.sleep(0.05)
            else:
                self._read(0.1)
        return self.process.returncode

    def _read(self, wait_s: float) -> None:
        if select.select([self._master], [], [], wait_s)[0]:
            try:
                self.screen += os.read(self._master, 65536).decode(errors="replace")
            except OSError:
                time.sleep(wait_s)  # nobody has the other end open any more

    def end(self) -> None:
        """Kill what is left and close."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self._master >= 0:
            self.close()


@contextmanager
def terminal(words: list[str], cwd: Path) -> Iterator[Terminal]:
    """Run a command on a terminal of its own; it is gone afterwards."""
    made = Terminal(words, cwd)
    try:
        yield made
    finally:
        made.end()
