"""Many socket calls in one system call: the smallest use of io_uring.

Called by the probe. In User-Mode Linux a system call costs some 50 us of real time however little it
does, and a sample is one question to each network namespace: with a call to send and one to receive for
each of them, sampling took two fifths of a run. Here several samples are one `io_uring_enter`, the wait for
the moment of each and the reading of the clock included.

Only calls that complete at once belong into a batch (a netlink answer is there when its question has
been sent): after its moment nothing ever waits, an answer that is not there is told, and the completions
stand in the order of the steps; in a timed batch each begins when the one before has ended. Layouts are
those of linux/io_uring.h, of a message those of linux/socket.h.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from testbed.errors import LabError
from traffic.exact_time import Timer

_SYS_SETUP, _SYS_ENTER = 425, 426
"""The same on every architecture: later than the tables' merge in Linux 5.1."""

_OFFSET_RINGS, _OFFSET_ENTRIES = 0, 0x10000000
_FEATURE_SINGLE_MMAP = 1
_GETEVENTS = 1
_NOP, _RECVMSG, _TIMEOUT, _READ, _SEND, _RECV = 0, 10, 11, 22, 26, 27
_HARD_LINK = 8
_ABSOLUTE = 1
_ELAPSED = -62
_MOMENT = struct.Struct("qq")
_MSG_TRUNC, _MSG_DONTWAIT = 0x20, 0x40
_PARAMETERS = struct.Struct("=10I10I10I")
_FEATURES, _SQ_OFFSETS, _CQ_OFFSETS = 5, 10, 20
_TAIL, _ARRAY, _CQ_HEAD, _CQ_TAIL, _CQ_ENTRIES = 1, 6, 0, 1, 5
_ENTRY = struct.Struct("=BBHiQQIIQ24x")
_COMPLETION = struct.Struct("=Qi4x")
_U32 = struct.Struct("=I")
_MESSAGE = struct.Struct("@PI4xPNPNi4x")
_VECTOR = struct.Struct("@PN")
_SO_TIMESTAMPNS = 35
_STAMP = struct.Struct("NiiNN")
"""A control message, its seconds and its nanoseconds."""

DATAGRAMS = 2
"""Of an answer of unknown length: what there is to say, and that this was all."""

DATAGRAM_BYTES = 1 << 15
"""No answer to a dump is longer: the kernel fills at most 32 KiB at once."""

_Step = tuple[int, int, int, int, int]

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


class Stamp:
    """Reads the clock in each round of a batch: a byte sent to oneself, which the kernel marks with the time.

    The kernel's stamps are of the clock of the day. How far the monotonic clock is from it is read once, so
    that this is for clocks that nobody sets meanwhile, as in virtual time.
    """

    results = (1, 1)

    def __init__(self, rounds: int = 1) -> None:
        self._sockets = ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        theirs.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        each = _MESSAGE.size + _VECTOR.size
        self._places = rounds * each + 8
        self._memory = mmap.mmap(-1, self._places + rounds * _STAMP.size)
        self._rounds = struct.Struct(rounds * _STAMP.format)
        start = _address(self._memory)
        data = start + rounds * each
        self.steps: list[tuple[_Step, ...]] = []
        for number in range(rounds):
            message, stamp = number * each, self._places + number * _STAMP.size
            vector = message + _MESSAGE.size
            _MESSAGE.pack_into(self._memory, message, 0, 0, start + vector, 1, start + stamp, _STAMP.size, 0)
            _VECTOR.pack_into(self._memory, vector, data, 1)
            take = (_RECVMSG, theirs.fileno(), start + message, 1, _MSG_DONTWAIT)
            self.steps.append(((_SEND, ours.fileno(), data, 1, 0), take))
        readings = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(16)]
        before, day, after = min(readings, key=lambda reading: reading[2] - reading[0])
        self._ahead_ns = day - (before + after) // 2

    def moments_ns(self) -> list[int]:
        """Return when each round last came to this, by the monotonic clock. NoUring without a stamp."""
        values = self._rounds.unpack_from(self._memory, self._places)
        if values[:3] != (_STAMP.size, socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            raise NoUring("this kernel does not stamp a datagram to oneself")
        moments = zip(values[3::5], values[4::5], strict=True)
        return [seconds * 1_000_000_000 + rest_ns - self._ahead_ns for seconds, rest_ns in moments]

    def close(self) -> None:
        """Close both sockets."""
        for each in self._sockets:
            each.close()


class _Ring:
    """Exchanges, and steps before and after them, in rounds that are repeated as they are, all in one system
    call. NoUring where there is none.

    `buffer` holds the answers, those of each round in `size` bytes, `places` the offset of each datagram in
    it: one tuple for each exchange. A step is an operation, its descriptor, address, length and flags.
    `linked` ones begin each when the one before has ended, however it ended. `before` and `after` have the
    steps of each round.
    """

    def __init__(
        self,
        exchanges: Sequence[Exchange],
        *,
        before: Sequence[Sequence[_Step]] = ((),),
        after: Sequence[Sequence[_Step]] = ((),),
        linked: bool,
    ) -> None:
        self._messages = mmap.mmap(-1, max(1, sum(len(item.message) for item in exchanges)))
        self.size = sum(sum(item.lengths) for item in exchanges)
        self.buffer = memoryview(mmap.mmap(-1, max(1, len(before) * self.size)))
        self.places: list[tuple[int, ...]] = []
        steps: list[_Step] = []
        for number, (first, last) in enumerate(zip(before, after, strict=True)):
            steps += [*first, *self._steps(exchanges, number * self.size), *last]
        # A full ring at every call: then each step stands in the same entry each time.
        self._count = 1 << (len(steps) - 1).bit_length() if steps else 1
        self._tail = 0
        self._open()
        idle = [(_NOP, 0, 0, 0, 0)] * (self._count - len(steps))
        for number, (code, descriptor, address, length, flags) in enumerate([*steps, *idle]):
            link = _HARD_LINK if linked and number + 1 < self._count else 0
            entry = _ENTRY.pack(code, link, 0, descriptor, 0, address, length, flags, number)
            self._entries[number * _ENTRY.size : (number + 1) * _ENTRY.size] = entry

    def _steps(self, exchanges: Sequence[Exchange], received: int) -> list[_Step]:
        """Return the steps of one round, whose answers stand from `received` on."""
        steps: list[_Step] = []
        message, answer = _address(self._messages), _address(self.buffer)
        written = 0
        for item in exchanges:
            self._messages[written : written + len(item.message)] = item.message
            steps.append((_SEND, item.descriptor, message + written, len(item.message), 0))
            written += len(item.message)
            places = []
            for length in item.lengths:
                # With MSG_TRUNC the result is the datagram's own length, also when it does not fit.
                steps.append((_RECV, item.descriptor, answer + received, length, _MSG_TRUNC | _MSG_DONTWAIT))
                places.append(received)
                received += length
            self.places.append(tuple(places))
        return steps

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
        self._cq_head, self._cq_tail = completion[_CQ_HEAD], completion[_CQ_TAIL]
        self._cq_entries = completion[_CQ_ENTRIES]
        ring_size = self._cq_entries + values[1] * _COMPLETION.size
        size = max(ring_size, submission[_ARRAY] + 4 * self._count)
        self._rings = mmap.mmap(self._ring, size, offset=_OFFSET_RINGS)
        self._entries = mmap.mmap(self._ring, self._count * _ENTRY.size, offset=_OFFSET_ENTRIES)
        # The ring of completions is twice as long: every other batch stands in its second half.
        self._halves = values[1] // self._count
        array = struct.pack(f"={self._count}I", *range(self._count))
        self._rings[submission[_ARRAY] : submission[_ARRAY] + len(array)] = array

    def _enter(self) -> bytes:
        """Do all steps; return the completions in their order, only of those that did when a signal ended a
        wait."""
        start = self._tail
        self._tail = (start + self._count) & 0xFFFFFFFF
        _U32.pack_into(self._rings, self._sq_tail, self._tail)
        done = _libc.syscall(_SYS_ENTER, self._ring, self._count, self._count, _GETEVENTS, None, 0)
        if done != self._count:
            raise LabError(f"io_uring took {done} of {self._count} calls: {os.strerror(ctypes.get_errno())}")
        (ended,) = _U32.unpack_from(self._rings, self._cq_tail)
        half = start // self._count % self._halves
        place = self._cq_entries + half * self._count * _COMPLETION.size
        # Behind what has completed stand those of an earlier call.
        end = place + ((ended - start) & 0xFFFFFFFF) * _COMPLETION.size
        completed = self._rings[place:end]
        _U32.pack_into(self._rings, self._cq_head, ended)
        return completed


class Ticks:
    """Moments at which the rounds of batches begin, one after the other: a timer that the kernel repeats.

    A wait in a batch (`timed`) would end the system call, whatever follows it.
    """

    def __init__(self) -> None:
        self._timer = Timer(wait=True)
        self._passed = mmap.mmap(-1, 8)
        self.step = (_READ, self._timer.descriptor, _address(self._passed), 8, 0)
        self.start = self._timer.start


class Batch(_Ring):
    """Exchanges that are repeated together, as they are, many times.

    A `timed` batch waits for its moment; with it a kernel before 5.5 fails at the first `run`. With `ticks`
    the exchanges are made `rounds` times in each call, each time when the timer comes to its next moment. A
    `stamp` takes the time at the end of each round.
    """

    def __init__(
        self,
        exchanges: Sequence[Exchange],
        *,
        timed: bool = False,
        ticks: Ticks | None = None,
        rounds: int = 1,
        stamp: Stamp | None = None,
    ) -> None:
        self._moment = mmap.mmap(-1, _MOMENT.size)
        wait = [(_TIMEOUT, -1, _address(self._moment), 1, _ABSOLUTE)] if timed else []
        wait += [ticks.step] if ticks else []
        after = stamp.steps if stamp else [()] * rounds
        super().__init__(exchanges, before=[wait] * rounds, after=after, linked=bool(wait))
        results = [size for item in exchanges for size in (len(item.message), *item.lengths)]
        waited = [*[_ELAPSED] * timed, *[8] * bool(ticks)]
        results = [*waited, *results, *(stamp.results if stamp else ())]
        self._known: bytes | None = None
        self._each = len(results)
        results *= rounds
        self._expected = list(enumerate([*results, *[0] * (self._count - len(results))]))
        self.rounds = rounds

    def run(self, at_ns: int = 0) -> int:
        """Do all exchanges, those of a timed batch when the monotonic clock shows `at_ns`, at once when that
        is past.

        Return in how many rounds each answer came and had the length that was expected, up to the first in
        which it was not so; a signal ends a wait, and then no more have come.
        """
        _MOMENT.pack_into(self._moment, 0, *divmod(at_ns, 1_000_000_000))
        seen = self._enter()
        if seen == self._known:
            return self.rounds
        completed = list(_COMPLETION.iter_unpack(seen))
        if completed == self._expected:
            self._known = seen
            return self.rounds
        whole = 0
        for number in range(self.rounds):
            end = (number + 1) * self._each
            whole += whole == number and completed[:end] == self._expected[:end]
        return whole


class Questions(_Ring):
    """Messages to sockets whose answers are of any length: all are sent, and the first `DATAGRAMS` of each
    answer received. NoUring where the kernel does not offer it."""

    def __init__(self, questions: Sequence[tuple[int, bytes]]) -> None:
        room = (DATAGRAM_BYTES,) * DATAGRAMS
        super().__init__([Exchange(*question, room) for question in questions], linked=True)
        self._sizes = [len(message) for _, message in questions]

    def run(self) -> Iterator[list[tuple[memoryview, int]]]:
        """Ask all; yield, for each question in turn, the datagrams that are there as (buffer, length).

        The buffers hold until the next `run`. LabError for a question that could not be sent, or an answer
        that is longer than its buffer.
        """
        # An older kernel tells what failed (nothing more was there) before what did not.
        results = [result for _, result in sorted(_COMPLETION.iter_unpack(self._enter()))]
        if len(results) < self._count:
            raise LabError(f"io_uring did {len(results)} of {self._count} calls")
        each = DATAGRAMS + 1
        for number, (size, places) in enumerate(zip(self._sizes, self.places, strict=True)):
            sent, *lengths = results[number * each : (number + 1) * each]
            if sent != size or max(lengths) > DATAGRAM_BYTES:
                raise LabError(f"a question of {size} B was answered with {sent}, {lengths}")
            yield [
                (self.buffer[place : place + DATAGRAM_BYTES], length)
                for place, length in zip(places, lengths, strict=True)
                if length > 0
            ]


def _address(buffer: mmap.mmap | memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))
