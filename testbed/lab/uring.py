"""Many socket calls in one system call: the smallest use of io_uring.

Called by the probe. In User-Mode Linux a system call costs some 50 us of real time however little it
does, and a sample is one question to each network namespace: with a call to send and one to receive for
each of them, sampling took two fifths of a run. Here all of it is one `io_uring_enter`, the wait for its
moment included.

Only calls that complete at once belong into a batch (a netlink answer is there when its question has
been sent): after its moment nothing ever waits, an answer that is not there is told, and the completions
stand in the order of the steps; in a timed batch each begins when the one before has ended. Layouts are
those of linux/io_uring.h.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.errors import LabError

_SYS_SETUP, _SYS_ENTER = 425, 426
"""The same on every architecture: later than the tables' merge in Linux 5.1."""

_OFFSET_RINGS, _OFFSET_ENTRIES = 0, 0x10000000
_FEATURE_SINGLE_MMAP = 1
_GETEVENTS = 1
_NOP, _TIMEOUT, _SEND, _RECV = 0, 11, 26, 27
_HARD_LINK = 8
_ABSOLUTE = 1
_ELAPSED = -62
_MOMENT = struct.Struct("=qq")
_MSG_TRUNC, _MSG_DONTWAIT = 0x20, 0x40
_PARAMETERS = struct.Struct("=10I10I10I")
_FEATURES, _SQ_OFFSETS, _CQ_OFFSETS = 5, 10, 20
_TAIL, _ARRAY, _CQ_HEAD, _CQ_ENTRIES = 1, 6, 0, 5
_ENTRY = struct.Struct("=BBHiQQIIQ24x")
_COMPLETION_SIZE = 16
_COMPLETION = "Qi4x"
_U32 = struct.Struct("=I")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class NoUring(Exception):
    """This kernel has no io_uring, or does not let this process use it."""


@dataclass(frozen=True)
class Exchange:
    """A message for the socket `descriptor`, and the lengths in bytes of the datagrams that answer it."""

    descriptor: int
    message: bytes
    lengths: tuple[int, ...]


class Batch:
    """Exchanges that are repeated together, as they are, many times; a `timed` batch waits for its moment.

    `buffer` holds the answers of the last `run`, `places` the offset of each datagram in it: one tuple
    for each exchange. NoUring where the kernel does not offer it; with `timed` one before
    5.5 fails at the first `run`.
    """

    def __init__(self, exchanges: Sequence[Exchange], *, timed: bool = False) -> None:
        self._moment = mmap.mmap(-1, _MOMENT.size)
        self._messages = mmap.mmap(-1, max(1, sum(len(item.message) for item in exchanges)))
        self.buffer = memoryview(mmap.mmap(-1, max(1, sum(sum(item.lengths) for item in exchanges))))
        self.places: list[tuple[int, ...]] = []
        steps, results = self._steps(exchanges)
        if timed:
            wait = (_TIMEOUT, -1, _address(self._moment), 1, _ABSOLUTE)
            steps, results = [wait, *steps], [_ELAPSED, *results]
        # A full ring at every call: then each step stands in the same entry each time.
        self._count = 1 << (len(steps) - 1).bit_length() if steps else 1
        idle = self._count - len(steps)
        self._expected = _flat([*results, *[0] * idle])
        self._completions = struct.Struct("=" + _COMPLETION * self._count)
        self._tail = 0
        self._open()
        for number, (code, descriptor, address, length, flags) in enumerate(
            [*steps, *[(_NOP, 0, 0, 0, 0)] * idle]
        ):
            link = _HARD_LINK if timed and number + 1 < self._count else 0
            entry = _ENTRY.pack(code, link, 0, descriptor, 0, address, length, flags, number)
            self._entries[number * _ENTRY.size : (number + 1) * _ENTRY.size] = entry

    def _steps(self, exchanges: Sequence[Exchange]) -> tuple[list[tuple[int, int, int, int, int]], list[int]]:
        steps, results = [], []
        message, answer = _address(self._messages), _address(self.buffer)
        written = received = 0
        for item in exchanges:
            self._messages[written : written + len(item.message)] = item.message
            steps.append((_SEND, item.descriptor, message + written, len(item.message), 0))
            results.append(len(item.message))
            written += len(item.message)
            places = []
            for length in item.lengths:
                # With MSG_TRUNC the result is the datagram's own length, also when it does not fit.
                steps.append((_RECV, item.descriptor, answer + received, length, _MSG_TRUNC | _MSG_DONTWAIT))
                results.append(length)
                places.append(received)
                received += length
            self.places.append(tuple(places))
        return steps, results

    def _open(self) -> None:
        parameters = ctypes.create_string_buffer(_PARAMETERS.size)
        self._ring = _libc.syscall(_SYS_SETUP, self._count, parameters)
        if self._ring < 0:
            raise NoUring(os.strerror(ctypes.get_errno()))
        values = _PARAMETERS.unpack(parameters.raw)
        if not values[_FEATURES] & _FEATURE_SINGLE_MMAP:
            os.close(self._ring)
            raise NoUring("older than Linux 5.4")
        submission, completion = values[_SQ_OFFSETS:_CQ_OFFSETS], values[_CQ_OFFSETS:]
        self._sq_tail = submission[_TAIL]
        self._cq_head, self._cq_entries = completion[_CQ_HEAD], completion[_CQ_ENTRIES]
        ring_size = self._cq_entries + values[1] * _COMPLETION_SIZE
        size = max(ring_size, submission[_ARRAY] + 4 * self._count)
        self._rings = mmap.mmap(self._ring, size, offset=_OFFSET_RINGS)
        self._entries = mmap.mmap(self._ring, self._count * _ENTRY.size, offset=_OFFSET_ENTRIES)
        # The ring of completions is twice as long: every other batch stands in its second half.
        self._halves = values[1] // self._count
        array = struct.pack(f"={self._count}I", *range(self._count))
        self._rings[submission[_ARRAY] : submission[_ARRAY] + len(array)] = array

    def run(self, at_ns: int = 0) -> bool:
        """Do all exchanges, those of a timed batch when the monotonic clock shows `at_ns`, at once when that
        is past.

        Return whether each answer came and had the length that was expected; a signal before the moment ends
        the wait, and then none has come.
        """
        _MOMENT.pack_into(self._moment, 0, *divmod(at_ns, 1_000_000_000))
        start = self._tail
        self._tail = (start + self._count) & 0xFFFFFFFF
        _U32.pack_into(self._rings, self._sq_tail, self._tail)
        done = _libc.syscall(_SYS_ENTER, self._ring, self._count, self._count, _GETEVENTS, None, 0)
        if done != self._count:
            raise LabError(f"io_uring took {done} of {self._count} calls: {os.strerror(ctypes.get_errno())}")
        half = start // self._count % self._halves
        place = self._cq_entries + half * self._count * _COMPLETION_SIZE
        completed = self._completions.unpack_from(self._rings, place)
        _U32.pack_into(self._rings, self._cq_head, self._tail)
        return completed == self._expected


def _flat(results: list[int]) -> tuple[int, ...]:
    return tuple(value for pair in enumerate(results) for value in pair)


def _address(buffer: mmap.mmap | memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))
