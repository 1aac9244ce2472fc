"""Where counters stand in the kernel's answers: of all queues of a namespace, and of its TCP sockets.

Pure: the answers are bytes that `testbed.lab.netlink` received. Called by the probe, many thousand
times in a run. Layouts are those of linux/rtnetlink.h, linux/gen_stats.h, linux/pkt_sched.h,
linux/inet_diag.h and linux/tcp.h.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from testbed.lab.netlink import RTM_NEWQDISC, TCA_KIND, TCMSG, attributes, dump_request, messages

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
_DIAG_PORTS = struct.Struct(">HH4s12x4s")
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


def received_bytes(view: memoryview, length: int) -> Iterator[tuple[int, bytes, int, int]]:
    """Yield (local port, remote address, remote port, bytes received in order) of each socket."""
    for kind, start, end in messages(view, length):
        if kind != SOCK_DIAG_BY_FAMILY:
            continue
        local, remote, _, address = _DIAG_PORTS.unpack_from(view, start + 4)
        for name, first, _ in attributes(view, start + _DIAG_SIZE, end):
            if name == _INET_DIAG_INFO:
                (received,) = struct.unpack_from("=Q", view, first + _BYTES_RECEIVED)
                yield local, address, remote, received
