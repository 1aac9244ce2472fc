"""Runs a program and says what it took. Called by the sections of the bench."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import LabError

TESTBED = (sys.executable, "-m", "testbed.cli")
"""The testbed as a program: the code that is running now."""


@dataclass(frozen=True)
class Spent:
    """What a program took: seconds of the clock and of processors, and the peak memory of the largest of
    its processes; `output` is what it printed."""

    seconds: float
    processor_s: float
    peak_mb: float
    output: str


def timed(command: Sequence[str], *, cwd: Path | None = None, extra: Mapping[str, str] | None = None,
          allowed: Sequence[int] = (0,)) -> Spent:  # fmt: skip
    """Run a program to its end; LabError, with its last words, when its exit status is none of
    `allowed`.

    `extra` goes into its environment.
    """
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        started = time.monotonic()
        process = subprocess.Popen(
            list(command), cwd=cwd, env={**os.environ, **(extra or {})}, stdin=subprocess.DEVNULL,
            stdout=output, stderr=errors,
        )  # fmt: skip
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.terminate()
            process.wait()
            raise
        seconds = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        for stream in (output, errors):
            stream.seek(0)
        if process.returncode not in allowed:
            words = errors.read().strip().splitlines()[-1:]
            raise LabError(f"{' '.join(command)} ended with status {process.returncode}: {' '.join(words)}")
        processor_s = usage.ru_utime + usage.ru_stime
        return Spent(seconds, processor_s, usage.ru_maxrss * 1024 / 1e6, output.read())
