"""The gate of a port that pauses (PFC) can hold: closed, nothing leaves, and what waits keeps its order.

A gate is a `tbf` between a link's rate class and its queue. Open, it is ten times as fast as the fastest
link. Closed, it counts every packet as MPU_BYTES and has fewer tokens than that for ever: tbf asks its queue
for nothing, drops nothing and lets no packet more through. What still arrives is queued, counted and marked
as in any queue, because RED is not asked either. (A `plug` as RED's child holds as well, but then RED is
asked in vain at each arrival, takes that for an idle queue and stops marking.)

Nothing in tbf says that it is open again, so each gated port has a class that carries nothing, over a `plug`:
releasing that runs the port's queues. Messages are built once; a pause is one system call.

Layouts are those of linux/pkt_sched.h.
"""

from __future__ import annotations

import struct

from testbed.lab.netlink import (
    NLM_F_REQUEST,
    RTM_NEWQDISC,
    TC_LINKLAYER_ETHERNET,
    TCA_KIND,
    TCA_OPTIONS,
    TCMSG,
    TICK_NS,
    HtbClass,
    Netlink,
    attribute,
    message,
)
from testbed.lab.qdiscs import CLASS_ID, ROOT_HANDLE

GATE_HANDLE = 0x00300000
KICK_CLASS_ID = ROOT_HANDLE | 2
KICK_HANDLE = 0x00310000
GATED_PARENT = GATE_HANDLE | 1
"""Where the queue of a gated port hangs."""

KICK_CLASS = HtbClass(1000, 1000, TICK_NS, TICK_NS, 1500)
"""The class that carries nothing."""

TCA_TBF_PARMS = 1
TCA_TBF_RATE64 = 4
_RATE = struct.Struct("=BBHhHI")
_LIMITS = struct.Struct("=III")
_NO_PEAK = bytes(_RATE.size)

OPEN_BYTES_PER_S = 1_250_000_000_000
"""10 Tbit/s, ten times the fastest link of a scenario."""
OPEN_BUCKET_NS = 1_000_000

MPU_BYTES = 0xFFFF
"""The largest that fits: what a closed gate takes each packet for."""
CLOSED_BYTES_PER_S = 5_000_000_000
"""Above 2^32, so that the kernel describes open and closed gates in messages of one length, as the probe
takes for granted. MPU_BYTES are 13 us of it: so often a closed gate looks in vain."""
CLOSED_BUCKET_NS = 64 * TICK_NS
"""Holds 20 kB, more than any packet (tbf drops what is longer) and less than MPU_BYTES."""

TCQ_PLUG_RELEASE_INDEFINITE = 2
_PLUG_LIMIT = 1


def tbf_options(*, closed: bool, limit_bytes: int) -> bytes:
    """Return tbf's TCA_OPTIONS payload for a closed or an open gate.

    `limit_bytes` must be that of the port's queue: tbf hands it on to a queue that is a plain fifo.
    """
    rate = CLOSED_BYTES_PER_S if closed else OPEN_BYTES_PER_S
    mpu = MPU_BYTES if closed else 0
    bucket_ns = CLOSED_BUCKET_NS if closed else OPEN_BUCKET_NS
    spec = _RATE.pack(0, TC_LINKLAYER_ETHERNET, 0, 0, mpu, 0xFFFFFFFF)
    limits = _LIMITS.pack(limit_bytes, bucket_ns // TICK_NS, 0)
    return attribute(TCA_TBF_PARMS, spec + _NO_PEAK + limits) + attribute(
        TCA_TBF_RATE64, struct.pack("=Q", rate)
    )


def add_gate(netlink: Netlink, index: int, limit_bytes: int) -> int:
    """Put an open gate under the rate class of an interface; return the parent of the queue to come."""
    netlink.add_qdisc(index, GATE_HANDLE, CLASS_ID, "tbf", tbf_options(closed=False, limit_bytes=limit_bytes))
    netlink.add_class(index, KICK_CLASS_ID, ROOT_HANDLE, "htb", KICK_CLASS.options())
    netlink.add_qdisc(index, KICK_HANDLE, KICK_CLASS_ID, "plug", _plug(_PLUG_LIMIT, 1))
    return GATED_PARENT


def gate_message(index: int, limit_bytes: int, *, closed: bool) -> bytes:
    """Return the netlink messages that close or open the gate of an interface; only errors are answered."""
    gate = _change(index, GATE_HANDLE, CLASS_ID, "tbf", tbf_options(closed=closed, limit_bytes=limit_bytes))
    if closed:
        return gate
    return gate + _change(index, KICK_HANDLE, KICK_CLASS_ID, "plug", _plug(TCQ_PLUG_RELEASE_INDEFINITE, 0))


def _plug(action: int, limit: int) -> bytes:
    return struct.pack("=iI", action, limit)


def _change(index: int, handle: int, parent: int, kind: str, options: bytes) -> bytes:
    body = (
        TCMSG.pack(0, index, handle, parent, 0)
        + attribute(TCA_KIND, kind.encode() + b"\0")
        + attribute(TCA_OPTIONS, options)
    )
    return message(RTM_NEWQDISC, NLM_F_REQUEST, body)
