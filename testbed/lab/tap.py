"""Sees every packet that leaves an interface, at the moment it leaves. Runs inside the lab.

A packet socket on an interface is shown each outgoing packet behind the queues, so its time is that of the
departure. The kernel writes packets into a ring of memory shared with the program: no system call is made for
a packet, and nothing that is measured waits for the program that reads.
"""

from __future__ import annotations

import ctypes
import mmap
import socket
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

_ETH_P_ALL = 3
_SOL_PACKET = 263
_PACKET_RX_RING = 5
_PACKET_STATISTICS = 6
_PACKET_VERSION = 10
_TPACKET_V2 = 1
_SO_ATTACH_FILTER = 26

SNAP_BYTES = 62
"""So much of each packet is kept: Ethernet, IPv4 and TCP headers."""

FRAME_BYTES = 128
"""A slot of the ring: 66 B of the kernel's own, and the packet's beginning."""

BLOCK_BYTES = 1 << 16

_HEADER = struct.Struct("=IIIHHII")  # status, length, kept, mac, net, seconds, nanoseconds
_IP_AT = 14
_FIELDS = struct.Struct("!1xB10xI4x4xI")
"""From the IPv4 header on: type of service, source address, TCP's sequence number (no IP options)."""

OUTGOING_ONLY = (
    (0x30, 0, 0, 0xFFFFF004),  # the packet's type
    (0x15, 0, 1, 4),  # PACKET_OUTGOING?
    (0x06, 0, 0, SNAP_BYTES),
    (0x06, 0, 0, 0),
)
"""The socket's filter, in the kernel's packet filter language."""


class Departure(NamedTuple):
    """A packet that left. `time_ns` is on the monotonic clock; `frame_bytes` has the Ethernet header.

    `ecn` are the two ECN bits (3: congestion experienced), `source` the IPv4 address, `sequence` TCP's
    sequence number; all three are 0 for what is no IPv4, and `sequence` means nothing but for TCP.
    """

    time_ns: int
    frame_bytes: int
    ecn: int
    source: int
    sequence: int


class Tap:
    """A tap on `device` in the calling thread's network namespace, with a ring of `slots` packets."""

    def __init__(self, device: str, slots: int) -> None:
        blocks = -(-slots * FRAME_BYTES // BLOCK_BYTES)
        self._slots = blocks * BLOCK_BYTES // FRAME_BYTES
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._attach_filter()
        self._socket.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
        ring = struct.pack("=4I", BLOCK_BYTES, blocks, FRAME_BYTES, self._slots)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_RX_RING, ring)
        self._ring = mmap.mmap(self._socket.fileno(), blocks * BLOCK_BYTES)
        self._socket.bind((device, _ETH_P_ALL))
        self._next = 0
        self._offset_ns = _realtime_offset_ns()

    def _attach_filter(self) -> None:
        code = b"".join(struct.pack("=HBBI", *line) for line in OUTGOING_ONLY)
        buffer = ctypes.create_string_buffer(code)
        program = struct.pack("@HP", len(OUTGOING_ONLY), ctypes.addressof(buffer))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)

    def drain(self) -> Iterator[Departure]:
        """Yield the packets that have left since the last call, in their order."""
        ring = self._ring
        while True:
            at = self._next * FRAME_BYTES
            status, length, _, mac, _, seconds, nanoseconds = _HEADER.unpack_from(ring, at)
            if not status & 1:
                return
            yield departure(
                memoryview(ring)[at + mac : at + FRAME_BYTES],
                length,
                seconds * 1_000_000_000 + nanoseconds - self._offset_ns,
            )
            ring[at : at + 4] = b"\0\0\0\0"
            self._next = (self._next + 1) % self._slots

    def lost(self) -> int:
        """Return how many packets found the ring full since the last call."""
        statistics = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        return int(struct.unpack("=II", statistics)[1])


def departure(packet: memoryview, length: int, time_ns: int) -> Departure:
    """Return what is kept of a packet of `length` bytes whose beginning is `packet`."""
    if bytes(packet[12:14]) != b"\x08\x00":
        return Departure(time_ns, length, 0, 0, 0)
    service, source, sequence = _FIELDS.unpack_from(packet, _IP_AT)
    return Departure(time_ns, length, service & 3, source, sequence)


def _realtime_offset_ns() -> int:
    """Return what the kernel's packet times, on the wall clock, are ahead of the monotonic clock."""
    before = time.monotonic_ns()
    wall = time.time_ns()
    return wall - (before + time.monotonic_ns()) // 2
