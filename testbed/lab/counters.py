"""Where counters stand in the kernel's answers: of all queues of a namespace, and of its TCP sockets.

Pure: the answers are bytes that `testbed.lab.netlink` received. Called by the probe, many thousand
times in a run. Layouts are those of linux/rtnetlink.h, linux/gen_stats.h, linux/pkt_sched.h,
linux/inet_diag.h and linux/tcp.h.
"""

from __future__ import annotations

import socket
import struct

from testbed.lab.netlink import (
    ATTRIBUTE_SIZE,
    DONE_SIZE,
    HEADER_SIZE,
    RTM_NEWQDISC,
    TCA_KIND,
    TCMSG,
    attributes,
    dump_request,
    messages,
)

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
TCA_STATS2 = 7
TCA_STATS_BASIC = 1
TCA_STATS_QUEUE = 3
TCA_STATS_APP = 4

# Where a message carries each counter, relative to its attribute's payload.
_BASIC_BYTES = 0
_BASIC_PACKETS = 8
_QUEUE_BACKLOG = 4
_QUEUE_DROPS = 8
_RED_MARKED = 12


class QdiscPlace:
    """Where one qdisc's counters stand in a dump: offsets into its datagram, by field.

    A dump of the same qdiscs has the same layout every time, so offsets found once serve for a run.
    """

    def __init__(self, ifindex: int, kind: str, handle: int, parent: int) -> None:
        self.ifindex = ifindex
        self.kind = kind
        self.handle = handle
        self.parent = parent
        self.backlog = self.bytes = self.packets = self.drops = self.marked = -1


def locate_qdiscs(view: memoryview, length: int) -> list[QdiscPlace]:
    """Return the places of all qdiscs described in one datagram of a dump."""
    found = []
    for kind, start, end in messages(view, length):
        if kind == RTM_NEWQDISC:
            found.append(_locate(view, start, end))
    return found


def _locate(view: memoryview, start: int, end: int) -> QdiscPlace:
    _, ifindex, handle, parent, _ = TCMSG.unpack_from(view, start)
    place = QdiscPlace(ifindex, "", handle, parent)
    for kind, first, last in attributes(view, start + TCMSG.size, end):
        if kind == TCA_KIND:
            place.kind = bytes(view[first : last - 1]).decode()
        elif kind == TCA_STATS2:
            _locate_statistics(view, first, last, place)
    return place


def _locate_statistics(view: memoryview, start: int, end: int, place: QdiscPlace) -> None:
    for kind, first, _ in attributes(view, start, end):
        if kind == TCA_STATS_BASIC:  # u64 bytes, u32 packets
            place.bytes = first + _BASIC_BYTES
            place.packets = first + _BASIC_PACKETS
        elif kind == TCA_STATS_QUEUE:  # u32 qlen, backlog, drops, requeues, overlimits
            place.backlog = first + _QUEUE_BACKLOG
            place.drops = first + _QUEUE_DROPS
        elif kind == TCA_STATS_APP:  # struct tc_red_xstats: early, pdrop, other, marked
            place.marked = first + _RED_MARKED


# ---- TCP sockets ---------------------------------------------------------------------

_TCPDIAG_REQUEST = struct.Struct("=BBBxI48s")
_INET_DIAG_INFO = 2
_TCP_ESTABLISHED = 1
_TCP_CLOSE_WAIT = 8
_DIAG_REMOTE = struct.Struct(">2s16x4s")
_REMOTE = 6
"""Where the remote port stands in struct inet_diag_msg; the remote address 18 B later."""

_KIND = struct.Struct("=IH")
_DIAG_SIZE = 72
_BYTES_RECEIVED = 128
"""Offset of tcpi_bytes_received in struct tcp_info."""


def tcp_dump_request() -> bytes:
    """Return the request for all TCP sockets of a namespace that may still receive."""
    states = 1 << _TCP_ESTABLISHED | 1 << _TCP_CLOSE_WAIT
    body = _TCPDIAG_REQUEST.pack(
        socket.AF_INET, socket.IPPROTO_TCP, 1 << (_INET_DIAG_INFO - 1), states, bytes(48)
    )
    return dump_request(SOCK_DIAG_BY_FAMILY, body)


class Received:
    """Takes out of dumps of TCP sockets how much each has received, many thousand times in a run.

    All sockets are described alike: where the number stands in one message, there it stands in each of the
    same size with the same attribute before it. A datagram of others is read attribute by attribute.
    """

    def __init__(self) -> None:
        self._message: struct.Struct | None = None
        self._marks: tuple[int, ...] = ()

    def read(self, view: memoryview, length: int) -> list[tuple[bytes, int, int]]:
        """Return (remote address, remote port, bytes received in order) of each socket of a datagram."""
        if self._message is not None:
            behind = length % self._message.size
            rows = list(self._message.iter_unpack(view[: length - behind]))
            # Behind them may stand what ends an answer.
            if behind in (0, DONE_SIZE) and all((*row[:2], *row[4:6]) == self._marks for row in rows):
                return [
                    (address, int.from_bytes(port, "big"), received)
                    for _, _, port, address, _, _, received in rows
                ]
        return self._read_slowly(view, length)

    def _read_slowly(self, view: memoryview, length: int) -> list[tuple[bytes, int, int]]:
        found = []
        for kind, start, end in messages(view, length):
            if kind != SOCK_DIAG_BY_FAMILY:
                continue
            port, address = _DIAG_REMOTE.unpack_from(view, start + _REMOTE)
            for name, first, last in attributes(view, start + _DIAG_SIZE, end):
                if name == _INET_DIAG_INFO:
                    (received,) = struct.unpack_from("=Q", view, first + _BYTES_RECEIVED)
                    found.append((address, int.from_bytes(port, "big"), received))
                    self._learn(start, first, last, end)
        return found

    def _learn(self, start: int, first: int, last: int, end: int) -> None:
        """Note how a message is laid out from the places of its payload and of its TCP information."""
        size, info = end - start + HEADER_SIZE, first - start - ATTRIBUTE_SIZE
        before, between = _REMOTE + HEADER_SIZE - _KIND.size, info - _REMOTE - _DIAG_REMOTE.size
        after = last - first - _BYTES_RECEIVED - 8 + end - last
        self._message = struct.Struct(f"=IH{before}x2s16x4s{between}xHH{_BYTES_RECEIVED}xQ{after}x")
        assert self._message.size == size
        self._marks = (size, SOCK_DIAG_BY_FAMILY, last - first + ATTRIBUTE_SIZE, _INET_DIAG_INFO)
