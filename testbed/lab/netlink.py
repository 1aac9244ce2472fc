"""As much netlink as the lab needs: queues, rates and delays that `tc` cannot ask for, and dumps.

`bringup` installs RED on the instantaneous queue (EWMA weight 1, which tc's command line cannot
express), `readback` asks for rates and delays as the kernel has them, and `counters` says what stands
in the dumps that the probe takes. Layouts are those of linux/netlink.h, linux/rtnetlink.h and
linux/pkt_sched.h.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from testbed.errors import LabError

NETLINK_ROUTE = 0
RTM_NEWQDISC = 36
RTM_NEWTCLASS = 40
RTM_GETTCLASS = 42
RTM_GETQDISC = 38
NLMSG_ERROR = 2
NLMSG_DONE = 3
NLM_F_REQUEST = 0x1
NLM_F_MULTI = 0x2
NLM_F_ACK = 0x4
NLM_F_ECHO = 0x8
NLM_F_DUMP = 0x300
NLM_F_CREATE = 0x400
NLM_F_EXCL = 0x200

TC_H_ROOT = 0xFFFFFFFF
TCA_KIND = 1
TCA_OPTIONS = 2

TCA_RED_PARMS = 1
TCA_RED_STAB = 2
TCA_RED_MAX_P = 3
TCA_RED_FLAGS = 4
TC_RED_ECN = 1
TC_RED_NODROP = 8
RED_STAB_SIZE = 256
TCA_NETEM_LATENCY64 = 10
_NETEM_SIZE = 24
_NETEM_LOSS_AT = 8
_NETEM_CERTAIN = 2**32 - 1
TCA_HTB_PARMS = 1
TCA_HTB_INIT = 2
TCA_HTB_RATE64 = 6
TCA_HTB_CEIL64 = 7
TC_LINKLAYER_ETHERNET = 1
TICK_NS = 64
"""The kernel's unit of a token bucket's depth (PSCHED_SHIFT 6)."""

_HEADER = struct.Struct("=IHHII")
HEADER_SIZE = _HEADER.size
DONE_SIZE = 20
"""NLMSG_DONE: a header and the dump's status."""
TCMSG = struct.Struct("=BxxxiIII")
_ATTRIBUTE = struct.Struct("=HH")
ATTRIBUTE_SIZE = _ATTRIBUTE.size
_BUFFER = 1 << 18
_COMMANDS_AT_ONCE = 256


def attribute(kind: int, payload: bytes) -> bytes:
    """Return one netlink attribute, padded to four bytes."""
    length = _ATTRIBUTE.size + len(payload)
    return _ATTRIBUTE.pack(length, kind) + payload + bytes(-length % 4)


def attributes(data: bytes | memoryview, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (kind, payload start, payload end) of each attribute in `data[start:end]`."""
    while start + _ATTRIBUTE.size <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, start)
        if length < _ATTRIBUTE.size:
            return
        yield kind & 0x3FFF, start + _ATTRIBUTE.size, start + length
        start += length + (-length % 4)


def red_options(*, kmin_bytes: int, kmax_bytes: int, max_p: float, limit_bytes: int) -> bytes:
    """Return RED's TCA_OPTIONS payload: ECN marking on the instantaneous queue.

    Wlog 0 makes RED's average the backlog itself. The idle table is all 31, so that what RED
    believes of the queue after an idle period is zero and not half of an old burst. NODROP lets
    packets that cannot be marked (a SYN, an ACK of a flow without ECN) queue instead of being
    dropped early: the queue drops at `limit_bytes` only.
    """
    parameters = struct.pack("=IIIBBBB", limit_bytes, kmin_bytes, kmax_bytes, 0, 32, 0, 0)
    flags = struct.pack("=II", TC_RED_ECN | TC_RED_NODROP, TC_RED_ECN | TC_RED_NODROP)
    return (
        attribute(TCA_RED_PARMS, parameters)
        + attribute(TCA_RED_STAB, bytes([31]) * RED_STAB_SIZE)
        + attribute(TCA_RED_MAX_P, struct.pack("=I", round(max_p * 0xFFFFFFFF)))
        + attribute(TCA_RED_FLAGS, flags)
    )


def htb_options(*, default_class: int) -> bytes:
    """Return HTB's TCA_OPTIONS payload: version 3, and the class of what no filter places."""
    return attribute(TCA_HTB_INIT, struct.pack("=IIIII", 3, 10, default_class, 0, 0))


def fifo_options(limit_bytes: int) -> bytes:
    """Return bfifo's TCA_OPTIONS payload."""
    return struct.pack("=I", limit_bytes)


def netem_options(*, delay_ns: int, limit_packets: int, loss: float = 0.0) -> bytes:
    """Return netem's TCA_OPTIONS payload for a constant delay; `tc` rounds delays to microseconds.

    `loss` is the share of packets dropped, each independently.
    """
    parameters = struct.pack("=IIIIII", 0, limit_packets, round(loss * _NETEM_CERTAIN), 0, 0, 0)
    return parameters + attribute(TCA_NETEM_LATENCY64, struct.pack("=q", delay_ns))


_HTB_RATE = struct.Struct("=BBHhHI")
_HTB_DEPTHS = struct.Struct("=IIIII")


@dataclass(frozen=True)
class HtbClass:
    """A rate class: rate and ceiling in bytes per second, depth of both buckets in nanoseconds of it."""

    rate_bytes_per_s: int
    ceil_bytes_per_s: int
    burst_ns: int
    cburst_ns: int
    quantum_bytes: int

    def options(self) -> bytes:
        """Return the TCA_OPTIONS payload.

        `tc` keeps depths in whole microseconds, which is too coarse above 10 Gbit/s.
        """
        rates = b"".join(
            _HTB_RATE.pack(0, TC_LINKLAYER_ETHERNET, 0, 0, 0, min(rate, 0xFFFFFFFF))
            for rate in (self.rate_bytes_per_s, self.ceil_bytes_per_s)
        )
        depths = _HTB_DEPTHS.pack(
            self.burst_ns // TICK_NS, self.cburst_ns // TICK_NS, self.quantum_bytes, 0, 0
        )
        return (
            attribute(TCA_HTB_PARMS, rates + depths)
            + attribute(TCA_HTB_RATE64, struct.pack("=Q", self.rate_bytes_per_s))
            + attribute(TCA_HTB_CEIL64, struct.pack("=Q", self.ceil_bytes_per_s))
        )

    @staticmethod
    def parse(view: memoryview, start: int, end: int) -> HtbClass:
        """Read a class from its TCA_OPTIONS payload."""
        rates = [0, 0]
        depths = (0, 0, 0, 0, 0)
        for kind, first, _ in attributes(view, start, end):
            if kind == TCA_HTB_PARMS:
                low = [_HTB_RATE.unpack_from(view, first + i * _HTB_RATE.size)[-1] for i in (0, 1)]
                rates = [rates[i] or low[i] for i in (0, 1)]
                depths = _HTB_DEPTHS.unpack_from(view, first + 2 * _HTB_RATE.size)
            elif kind in (TCA_HTB_RATE64, TCA_HTB_CEIL64):
                (rates[kind - TCA_HTB_RATE64],) = struct.unpack_from("=Q", view, first)
        return HtbClass(rates[0], rates[1], depths[0] * TICK_NS, depths[1] * TICK_NS, depths[2])


@dataclass(frozen=True)
class Command:
    """A message that changes something: its type, its flags beside NLM_F_REQUEST, its body, and in words."""

    kind: int
    flags: int
    body: bytes
    what: str


class Netlink:
    """A netlink socket. It belongs to the network namespace it was opened in."""

    def __init__(self, protocol: int) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._socket.bind((0, 0))
        self._buffer = bytearray(_BUFFER)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def add_qdisc(self, ifindex: int, handle: int, parent: int, kind: str, options: bytes) -> None:
        """Create a qdisc. Raises LabError with the kernel's errno text when it refuses."""
        self._create(RTM_NEWQDISC, ifindex, handle, parent, kind, options)

    def add_class(self, ifindex: int, handle: int, parent: int, kind: str, options: bytes) -> None:
        """Create a class. Raises LabError with the kernel's errno text when it refuses."""
        self._create(RTM_NEWTCLASS, ifindex, handle, parent, kind, options)

    def _create(
        self, message: int, ifindex: int, handle: int, parent: int, kind: str, options: bytes
    ) -> None:
        body = (
            TCMSG.pack(0, ifindex, handle, parent, 0)
            + attribute(TCA_KIND, kind.encode() + b"\0")
            + attribute(TCA_OPTIONS, options)
        )
        self.apply([Command(message, NLM_F_CREATE | NLM_F_EXCL, body, f"{kind} on interface {ifindex}")])

    def apply(self, commands: Sequence[Command]) -> None:
        """Carry commands out in order. LabError with the kernel's errno text at the first that it refuses.

        They go in few messages: the kernel answers what fails, and of the rest only what asks for it.
        """
        for start in range(0, len(commands), _COMMANDS_AT_ONCE):
            self._apply(commands[start : start + _COMMANDS_AT_ONCE])

    def _apply(self, commands: Sequence[Command]) -> None:
        data = b""
        for number, command in enumerate(commands, start=1):
            flags = NLM_F_REQUEST | command.flags | (NLM_F_ACK if number == len(commands) else 0)
            data += _HEADER.pack(_HEADER.size + len(command.body), command.kind, flags, number, 0)
            data += command.body + bytes(-len(command.body) % 4)
        self._socket.send(data)
        while True:
            answer = self._socket.recv(4096)
            number = _HEADER.unpack_from(answer)[3]
            (code,) = struct.unpack_from("=i", answer, _HEADER.size)
            if code:
                raise LabError(f"{commands[number - 1].what}: {os.strerror(-code)}")
            if number == len(commands):
                return

    def fifo_limits(self, ifindex: int) -> dict[int, int]:
        """Return the limit in bytes of every bfifo of an interface, by its handle."""
        found: dict[int, int] = {}
        for view, length in self.request(qdisc_dump_request()):
            for kind, start, end in messages(view, length):
                _, index, handle, _, _ = TCMSG.unpack_from(view, start) if kind == RTM_NEWQDISC else [0] * 5
                if index == ifindex:
                    limit = _fifo_limit(view, start + TCMSG.size, end)
                    found |= {} if limit is None else {handle: limit}
        return found

    def tell(self, messages: bytes) -> None:
        """Send messages that are answered only when they fail: `require_no_answer` looks for that."""
        self._socket.send(messages)

    def require_no_answer(self) -> None:
        """Raise LabError with the kernel's errno text when a message of `tell` failed."""
        try:
            answer = self._socket.recv(4096, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        (code,) = struct.unpack_from("=i", answer, _HEADER.size)
        raise LabError(f"a queue could not be changed: {os.strerror(-code)}")

    def htb_classes(self, ifindex: int) -> list[HtbClass]:
        """Return the rate classes of an interface."""
        message = dump_request(RTM_GETTCLASS, TCMSG.pack(0, ifindex, 0, 0, 0))
        found = []
        for view, length in self.request(message):
            for kind, start, end in messages(view, length):
                if kind == RTM_NEWTCLASS:
                    found += [
                        HtbClass.parse(view, first, last)
                        for name, first, last in attributes(view, start + TCMSG.size, end)
                        if name == TCA_OPTIONS
                    ]
        return found

    def netem_delays_ns(self) -> dict[int, int]:
        """Return the constant delay of every netem of the namespace, by interface index."""
        found = {}
        for view, length in self.request(qdisc_dump_request()):
            for kind, start, end in messages(view, length):
                delay = _netem_delay(view, start + TCMSG.size, end) if kind == RTM_NEWQDISC else None
                if delay is not None:
                    found[TCMSG.unpack_from(view, start)[1]] = delay
        return found

    def netem_losses(self) -> dict[int, float]:
        """Return the share of packets that every netem of the namespace drops, by interface index."""
        found = {}
        for view, length in self.request(qdisc_dump_request()):
            for kind, start, end in messages(view, length):
                if kind == RTM_NEWQDISC and _netem_delay(view, start + TCMSG.size, end) is not None:
                    found[TCMSG.unpack_from(view, start)[1]] = _netem_loss(view, start + TCMSG.size, end)
        return found

    def request(self, message: bytes) -> Iterator[tuple[memoryview, int]]:
        """Send a request; yield each datagram of the answer as (buffer, length).

        The buffer is reused: copy what must outlive the next step. Take all of the answer, or its
        rest is mistaken for the next one's.
        """
        self._socket.send(message)
        yield from self.answer()

    def answer(self) -> Iterator[tuple[memoryview, int]]:
        """Yield each datagram, or each that is left, of the answer to a request that was sent."""
        view = memoryview(self._buffer)
        while True:
            length = self._socket.recv_into(view)
            yield view, length
            if ends_answer(view, length):
                return


def _fifo_limit(view: memoryview, start: int, end: int) -> int | None:
    """Return the limit of a qdisc that is a bfifo, None of any other."""
    parts = {kind: (first, last) for kind, first, last in attributes(view, start, end)}
    first, last = parts[TCA_KIND]
    if bytes(view[first:last]) != b"bfifo\0":
        return None
    return int(struct.unpack_from("=I", view, parts[TCA_OPTIONS][0])[0])


def _netem_delay(view: memoryview, start: int, end: int) -> int | None:
    for kind, first, last in attributes(view, start, end):
        if kind == TCA_OPTIONS:
            for name, value, _ in attributes(view, first + _NETEM_SIZE, last):
                if name == TCA_NETEM_LATENCY64:
                    return int(struct.unpack_from("=q", view, value)[0])
    return None


def _netem_loss(view: memoryview, start: int, end: int) -> float:
    options = next(first for kind, first, _ in attributes(view, start, end) if kind == TCA_OPTIONS)
    return float(struct.unpack_from("=I", view, options + _NETEM_LOSS_AT)[0]) / _NETEM_CERTAIN


def ends_answer(view: memoryview, length: int) -> bool:
    """Tell whether a datagram is the last of an answer, looking only at both its ends: a probe asks
    some thousand times in a run. A single answer is one message without NLM_F_MULTI; a dump ends with
    NLMSG_DONE, in a datagram of its own or behind the last messages."""
    _, kind, flags, _, _ = _HEADER.unpack_from(view, 0)
    if kind in (NLMSG_DONE, NLMSG_ERROR) or not flags & NLM_F_MULTI:
        return True
    size, kind, _, _, _ = _HEADER.unpack_from(view, length - DONE_SIZE)
    return bool(size == DONE_SIZE and kind == NLMSG_DONE)


def messages(view: memoryview, length: int) -> Iterator[tuple[int, int, int]]:
    """Yield (type, payload start, payload end) of each message in a datagram."""
    position = 0
    while position + _HEADER.size <= length:
        size, kind, _, _, _ = _HEADER.unpack_from(view, position)
        yield kind, position + _HEADER.size, position + size
        position += size + (-size % 4)


def message(kind: int, flags: int, body: bytes) -> bytes:
    """Return one netlink message."""
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, 1, 0) + body


def get_request(kind: int, body: bytes) -> bytes:
    """Return a message of type `kind` that asks for one thing. Without ECHO only listeners are answered."""
    return message(kind, NLM_F_REQUEST | NLM_F_ECHO, body)


def dump_request(kind: int, body: bytes) -> bytes:
    """Return a message of type `kind` that asks for all there is of something."""
    return _HEADER.pack(_HEADER.size + len(body), kind, NLM_F_REQUEST | NLM_F_DUMP, 1, 0) + body


def qdisc_request(ifindex: int, handle: int) -> bytes:
    """Return the request for one qdisc: a system call less than a dump, whose end is an answer of its own."""
    return get_request(RTM_GETQDISC, TCMSG.pack(0, ifindex, handle, 0, 0))


def qdisc_dump_request() -> bytes:
    """Return the request for all qdiscs of a namespace."""
    return dump_request(RTM_GETQDISC, TCMSG.pack(0, 0, 0, 0, 0))
