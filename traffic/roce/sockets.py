"""UDP sockets as a RoCE NIC's wire: many packets received with one call, ECN marks seen.

Through ctypes where Python has no such call. Nothing here knows what is in a packet.
"""

from __future__ import annotations

import ctypes
import select
import socket
import struct
from collections.abc import Iterator

ECT0 = 0x02
CE = 0x03
CONTROL_TOS = 48 << 2
"""The class that NICs give their CNPs (DSCP 48), not ECN-capable; no queue of the fabric looks at it."""

RECEIVE_BUFFER_BYTES = 64 << 20
"""No packet may be lost between a NIC and its program: that is memory which a real NIC does not need."""

SEND_BUFFER_BYTES = 128 << 10
"""What a queue pair can have in its own NIC's queue: about 30 packets of 4 KiB as the kernel counts them.
Only a NIC that is held (PFC) or slower than planned ever has as much."""

BATCH = 64
"""So many packets are received with one call."""

_BUFFER_BYTES = 4608
"""Room for a payload of 4096 bytes and all headers."""

_SO_NO_CHECK = 11
_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33
_SO_MEMINFO = 55
_MEMINFO_DROPS = 8
_IP_MTU_DISCOVER = 10
_IP_PMTUDISC_DO = 2
_IP_RECVTOS = 13
_MSG_DONTWAIT = 0x40

_libc = ctypes.CDLL(None, use_errno=True)


def _socket(device: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    if device:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
    return sock


def data_socket(ip: str, port: int, device: str, *, tos: int, priority: int = 0) -> socket.socket:
    """Return a socket that only sends, from this address, never fragmented and with IP identification 0.

    `device` is the interface it is bound to, empty for none.
    """
    sock = _socket(device)
    # Nothing arrives at this port, so that both ends of several queue pairs may have the same one.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, SEND_BUFFER_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, 1)
    sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
    if priority:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, priority)
    sock.bind((ip, port))
    return sock


def wire_socket(ip: str, port: int, device: str) -> socket.socket:
    """Return the socket at which everything for an address arrives."""
    sock = _socket(device)
    sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
    sock.setsockopt(socket.IPPROTO_IP, _IP_RECVTOS, 1)
    sock.bind((ip, port))
    return sock


def dropped(sock: socket.socket) -> int:
    """Return how many packets the kernel dropped because the socket's buffer was full."""
    size = 4 * (_MEMINFO_DROPS + 1)
    values = struct.unpack(f"={_MEMINFO_DROPS + 1}I", sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, size))
    return int(values[_MEMINFO_DROPS])


class Receiver:
    """Takes what has arrived at sockets, up to `BATCH` packets with a call. One serves all sockets in
    turn."""

    _HEADER = struct.Struct("=QIxxxxQQQQixxxxIxxxx")
    """struct mmsghdr: address, its length, parts, their number, control, its length, flags, bytes
    received."""
    _CONTROL_BYTES = 64
    _TOS_AT = 16
    _ADDRESS_BYTES = 16

    def __init__(self) -> None:
        self._data = bytearray(BATCH * _BUFFER_BYTES)
        self._names = bytearray(BATCH * self._ADDRESS_BYTES)
        self._controls = bytearray(BATCH * self._CONTROL_BYTES)
        self._parts = bytearray(BATCH * 16)
        self._headers = bytearray(BATCH * self._HEADER.size)
        self._view = memoryview(self._data)
        self._keep = [
            (ctypes.c_char * len(area)).from_buffer(area)
            for area in (self._data, self._names, self._controls, self._parts, self._headers)
        ]
        data, names, controls, parts, headers = (ctypes.addressof(area) for area in self._keep)
        for number in range(BATCH):
            struct.pack_into("=QQ", self._parts, 16 * number, data + number * _BUFFER_BYTES, _BUFFER_BYTES)
            self._HEADER.pack_into(
                self._headers, number * self._HEADER.size,
                names + number * self._ADDRESS_BYTES, self._ADDRESS_BYTES, parts + 16 * number, 1,
                controls + number * self._CONTROL_BYTES, self._CONTROL_BYTES, 0, 0,
            )  # fmt: skip
        self._fresh = bytes(self._headers)
        self._address = headers

    def take(self, sock: socket.socket) -> Iterator[tuple[bytes, int, memoryview]]:
        """Yield (source address and port as in a sockaddr, type of service, packet) of what waits now.

        A packet is to be used before the next one is asked for. One that is too long for the buffer comes
        cut.
        """
        count = BATCH
        while count == BATCH:
            self._headers[:] = self._fresh
            count = _libc.recvmmsg(sock.fileno(), ctypes.c_void_p(self._address), BATCH, _MSG_DONTWAIT, None)
            for number in range(count):
                yield self._packet(number)

    def _packet(self, number: int) -> tuple[bytes, int, memoryview]:
        fields = self._HEADER.unpack_from(self._headers, number * self._HEADER.size)
        name = number * self._ADDRESS_BYTES
        tos = self._controls[number * self._CONTROL_BYTES + self._TOS_AT] if fields[5] > self._TOS_AT else 0
        start = number * _BUFFER_BYTES
        return bytes(self._names[name + 2 : name + 8]), tos, self._view[start : start + fields[7]]


class Poller:
    """Waits for sockets until an exact moment, with one call (epoll_pwait2 has nanoseconds)."""

    _EVENT = struct.Struct("=IQ")
    _EVENTS = 64

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._buffer = bytearray(self._EVENT.size * self._EVENTS)
        self._area = (ctypes.c_char * len(self._buffer)).from_buffer(self._buffer)
        self._timeout = (ctypes.c_long * 2)()
        self.register = self._epoll.register
        self.unregister = self._epoll.unregister

    def wait(self, timeout_ns: int) -> list[int]:
        """Return the descriptors that are ready, at once or within `timeout_ns`."""
        self._timeout[0], self._timeout[1] = divmod(max(timeout_ns, 0), 1_000_000_000)
        count = _libc.epoll_pwait2(self._epoll.fileno(), self._area, self._EVENTS, self._timeout, None)
        return [self._EVENT.unpack_from(self._buffer, 12 * number)[1] & 0xFFFFFFFF for number in range(count)]
