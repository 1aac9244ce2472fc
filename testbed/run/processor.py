"""How idle the processors were in each second: on a real clock, a lab without idle time falls behind.

A program of its own beside the probe, inside the lab, for the real clock only; it looks once a second.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from testbed.record import layout
from traffic.exact_time import sleep_until_ns

SECOND_NS = 1_000_000_000
IDLE = (3, 4)
"""Columns of the first line of /proc/stat behind its name: idle, and waiting for a disk."""


def processor_main(record: Path, ready: Callable[[], None], epoch: Callable[[], int]) -> None:
    """Say `ready`, wait for the `epoch`, note each second's idle share until SIGTERM, write them."""
    stop = False

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        nonlocal stop
        stop = True

    signal.signal(signal.SIGTERM, on_signal)
    ready()
    epoch_ns = epoch()
    rows: list[tuple[int, float]] = []
    moment, before = epoch_ns, ticks(Path("/proc/stat").read_text())
    sleep_until_ns(moment)
    while not stop:
        moment += SECOND_NS
        sleep_until_ns(moment)
        now = ticks(Path("/proc/stat").read_text())
        rows.append((time.monotonic_ns() - epoch_ns, idle_share(before, now)))
        before = now
    (record / layout.PROCESSORS).write_text(json.dumps(rows) + "\n")


def ticks(text: str) -> tuple[int, int]:
    """Return the idle and all ticks of all processors so far, from /proc/stat."""
    values = [int(value) for value in text.partition("\n")[0].split()[1:9]]
    return sum(values[column] for column in IDLE), sum(values)


def idle_share(before: tuple[int, int], now: tuple[int, int]) -> float:
    """Return the share of the ticks between two readings that were idle; 1 when there were none."""
    passed = now[1] - before[1]
    return round((now[0] - before[0]) / passed, 4) if passed else 1.0
