"""Waits for the moments of samples, reads all queues at each and says when that was.

In virtual time several samples are one system call: their moments are known, and none comes late. With the
real clock a sample may come so late that the next moments are past, which only the program can leave out.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from testbed.errors import LabError
from testbed.lab.uring import NoUring, Stamp, Ticks
from testbed.run.queues import BatchReader, QueueReader, reading
from testbed.run.rows import Place
from traffic.exact_time import sleep_until_ns

MOST_ROUNDS = 8
_MOST_STEPS = 2048
"""Of one system call."""
_STEPS_AROUND = 3
"""A wait, and two that read the clock."""


@dataclass(frozen=True)
class Taken:
    """Samples: their moments by the monotonic clock, and the counters of one after those of the other. They
    are not `whole` when fewer came than were asked for: the end of the run cut a wait, or a queue changed."""

    times_ns: Sequence[int]
    counters: bytes
    whole: bool = True


class Sampler(Protocol):
    """Takes samples, up to `most` at once.

    `columns` says where each link's counters stand among the `size` bytes of a sample, in the order of the
    readers' names and of SAMPLE_FIELDS: None for one that it does not have.
    """

    columns: Sequence[Place | None]
    size: int
    most: int

    def take(self, moments: Sequence[int]) -> Taken:
        """Take samples at the first or more of some moments (ns of the monotonic clock), one interval apart.

        LabError when a queue came or went.
        """


def sampler(readers: Sequence[QueueReader], clock: str, interval_ns: int, rounds: int) -> Sampler:
    """Return what takes samples of all queues every `interval_ns`, in virtual time up to `rounds` at once.

    Only a machine's kernel may be without io_uring. LabError when the lab's own is: sampling one by one would
    be as good, but unnoticed double the time of a run.
    """
    try:
        return _Stamped(readers, interval_ns, rounds) if clock == "virtual" else _Timed(readers)
    except NoUring as refused:
        if clock == "virtual":
            raise LabError(
                f"the lab's kernel cannot sample several times in one call: {refused}"
            ) from refused
        return _Slept(readers)


class _Stamped:
    """Several samples in one system call, each at the tick of a timer and with its time."""

    def __init__(self, readers: Sequence[QueueReader], interval_ns: int, rounds: int) -> None:
        steps = sum(1 + len(reader.lengths) for reader in readers) + _STEPS_AROUND
        self.most = max(1, min(rounds, MOST_ROUNDS, _MOST_STEPS // steps))
        self._interval_ns = interval_ns
        self._ticks = Ticks()
        self._readers = [self._reader(readers, each) for each in dict.fromkeys((1, self.most))]
        self.columns: Sequence[Place | None] = self._readers[0][0].columns
        self.size = self._readers[0][0].size
        self._started = False

    def _reader(self, readers: Sequence[QueueReader], rounds: int) -> tuple[BatchReader, Stamp]:
        stamp = Stamp(rounds)
        reader = BatchReader(readers, ticks=self._ticks, rounds=rounds, stamp=stamp)
        stamp.moments_ns()  # it has been run once
        return reader, stamp

    def take(self, moments: Sequence[int]) -> Taken:
        if not self._started:
            self._ticks.start(moments[0], self._interval_ns)
            self._started = True
        reader, stamp = self._readers[0 if len(moments) < self.most else -1]
        whole, counters = reader.take()
        return Taken(stamp.moments_ns()[:whole], counters, whole == reader.rounds)


class _Timed:
    """One sample in one system call, and the clock read after it."""

    most = 1

    def __init__(self, readers: Sequence[QueueReader]) -> None:
        self._reader = BatchReader(readers, timed=True)
        self.columns: Sequence[Place | None] = self._reader.columns
        self.size = self._reader.size

    def take(self, moments: Sequence[int]) -> Taken:
        whole, counters = self._reader.take(moments[0])
        return Taken([time.monotonic_ns()] * whole, counters, whole == 1)


class _Slept:
    """One sample in several system calls, where the kernel has no io_uring."""

    most = 1

    def __init__(self, readers: Sequence[QueueReader]) -> None:
        self._read = reading(readers)
        count = sum(len(reader.order) for reader in readers)
        self._pack = struct.Struct(f"={count}Q").pack
        self.size = 8 * count
        self.columns: Sequence[Place | None] = [(start, "Q") for start in range(0, self.size, 8)]

    def take(self, moments: Sequence[int]) -> Taken:
        sleep_until_ns(moments[0])
        values = self._read()
        return Taken([time.monotonic_ns()], self._pack(*values))
