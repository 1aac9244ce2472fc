"""The line on standard error that says what is being done. Called by the commands."""

from __future__ import annotations

import contextlib
import sys

from testbed.screen import printable


def write(text: str) -> None:
    """Write to standard error, which may be a terminal that was closed."""
    with contextlib.suppress(OSError):
        print(text, end="", file=sys.stderr, flush=True)


class Progress:
    """Shows the current step on standard error, on one line where that is a terminal."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live = sys.stderr.isatty()
        self._shown = False

    def step(self, name: str, elapsed_s: float) -> None:
        """Show a step and the seconds since the start."""
        self.line(f"{elapsed_s:6.1f} s  {name}")

    def line(self, text: str) -> None:
        """Show a text."""
        if self._quiet:
            return
        self._shown = True
        text = printable(text)
        if self._live:
            write(f"\r\033[K{text}")
        else:
            write(f"{text}\n")

    def end(self) -> None:
        """Leave the line."""
        if self._live and self._shown:
            write("\r\033[K")
