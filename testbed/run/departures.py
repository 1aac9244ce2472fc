"""Records every packet that leaves some links of the lab: `measure.departures`.

A process of its own inside the lab. It is idle but for a look at the taps' rings, often enough that they
never fill; each packet has its time from the kernel.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from testbed.lab.hosts import namespace
from testbed.lab.system import network_namespace
from testbed.lab.tap import Tap
from testbed.plan.model import Plan
from testbed.record import layout
from testbed.run.rows import RowFile
from topologies.model import Link
from traffic.exact_time import exact_timers, sleep_until_ns

SLOTS = 1 << 16
"""Packets that a ring holds (8 MB)."""

LEAST_FRAME_BYTES = 64
LOOK_MAX_NS = 100_000_000
"""No link is looked at less often."""


class Departures:
    """The taps of a run and the files their packets go to."""

    def __init__(self, plan: Plan, record: Path) -> None:
        self._record = record
        self._links = [plan.topology.link(name) for name in plan.measure.departures]
        self._taps = [_tap(link, plan) for link in self._links]
        self._files = [RowFile(record / layout.departure_rows(link.name)) for link in self._links]
        self._lost = [0] * len(self._links)
        self._stop = False
        for link in self._links:
            self._write_header(link, rows=None, lost=0)  # for a run that is killed

    def run(self, epoch_ns: int) -> None:
        """Record until SIGTERM, with times counted from `epoch_ns`."""
        signal.signal(signal.SIGTERM, self._on_signal)
        exact_timers()
        step = min(look_ns(link.rate_bps) for link in self._links)
        moment = time.monotonic_ns()
        while not self._stop:
            moment += step
            sleep_until_ns(moment)
            self._look(epoch_ns)
            moment = max(moment, time.monotonic_ns() - step)
        self._look(epoch_ns)
        self._finish()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._stop = True

    def _look(self, epoch_ns: int) -> None:
        for number, (tap, file) in enumerate(zip(self._taps, self._files, strict=True)):
            for time_ns, *rest in tap.drain():
                file.add((time_ns - epoch_ns, *rest))
            self._lost[number] += tap.lost()

    def _finish(self) -> None:
        for link, file, lost in zip(self._links, self._files, self._lost, strict=True):
            file.close()
            self._write_header(link, file.rows, lost)

    def _write_header(self, link: Link, rows: int | None, lost: int) -> None:
        header = {
            "format_version": layout.FORMAT_VERSION,
            "link": link.name,
            "fields": list(layout.DEPARTURE_FIELDS),
            "rows": rows,
            "lost": lost,
        }
        path = self._record / layout.departure_header(link.name)
        path.write_text(json.dumps(header, indent=1) + "\n")


def look_ns(rate_bps: int) -> int:
    """Return how often a ring must be looked at: before a link at `rate_bps` can fill half of it."""
    return min(LOOK_MAX_NS, SLOTS // 2 * LEAST_FRAME_BYTES * 8 * 1_000_000_000 // rate_bps)


def _tap(link: Link, plan: Plan) -> Tap:
    nic = plan.topology.nics.get(link.src)
    if nic is None:
        return Tap(link.name, SLOTS)
    with network_namespace(namespace(nic.host)):
        return Tap(link.name, SLOTS)


def departures_main(plan: Plan, record: Path, ready: Callable[[], None], epoch: Callable[[], int]) -> None:
    """Open the taps, say `ready`, wait for the `epoch`, record until SIGTERM."""
    departures = Departures(plan, record)
    ready()
    with contextlib.suppress(KeyboardInterrupt):
        departures.run(epoch())
