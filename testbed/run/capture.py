"""Captures what leaves through links of the lab into pcapng files: `testbed run --capture LINK`.

Runs inside the lab as a program of its own. A packet socket on the link's interface sees each packet after
its queue, at the moment it is sent; the kernel's filter keeps what leaves and cuts it to `snaplen`. Times
are the lab's clock. Reading takes next to no virtual time; still it is one more program in the lab, and the
exact values of a run with a capture are not those of a run without.
"""

from __future__ import annotations

import ctypes
import signal
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from testbed.lab.hosts import namespace
from testbed.lab.system import go_first, network_namespace
from testbed.plan.model import Plan
from testbed.record import layout
from testbed.run.pcapng import PcapngWriter
from traffic.exact_time import exact_timers, sleep_until_ns

SNAPLEN_MAX = 65_535

EVERY_NS = 20_000
"""How often waiting packets are fetched, in lab time."""

_BUFFER_BYTES = 256 << 20
_SO_RCVBUFFORCE = 33
_SO_TIMESTAMPNS = 35
_SO_ATTACH_FILTER = 26
_ETH_P_ALL = 3
_SOL_PACKET = 263
_PACKET_STATISTICS = 6
_PACKET_AUXDATA = 8
_OUTGOING = 4
_TIMESTAMP = struct.Struct("=qq")
_AUXDATA = struct.Struct("=IIIHHHH")

_LOAD_PACKET_TYPE = (0x28, 0, 0, 0xFFFFF004)
"""BPF: load what `skb->pkt_type` says (SKF_AD_OFF + SKF_AD_PKTTYPE)."""


@dataclass(frozen=True)
class Captures:
    """What to capture: names of cables, and how many bytes of each packet are kept."""

    links: tuple[str, ...] = ()
    snaplen: int = SNAPLEN_MAX


def outgoing_filter(snaplen: int) -> bytes:
    """Return the BPF program that keeps `snaplen` bytes of what leaves and nothing of what arrives."""
    program = [_LOAD_PACKET_TYPE, (0x15, 0, 1, _OUTGOING), (0x06, 0, 0, snaplen), (0x06, 0, 0, 0)]
    return b"".join(struct.pack("=HBBI", *step) for step in program)


class Capture:
    """One link's packet socket and file."""

    def __init__(self, link: str, sock: socket.socket, writer: PcapngWriter) -> None:
        self._link, self._socket, self._writer = link, sock, writer

    @classmethod
    def open(cls, plan: Plan, link: str, record: Path, snaplen: int, comment: str) -> Capture:
        """Start capturing `link`, a cable of the plan."""
        nic = plan.topology.nics.get(plan.topology.link(link).src)
        if nic is None:
            sock = _packet_socket(link, snaplen)
        else:
            with network_namespace(namespace(nic.host)):
                sock = _packet_socket(link, snaplen)
        path = record / layout.capture(link)
        return cls(link, sock, PcapngWriter(path, link, snaplen=snaplen, comment=comment))

    def fetch(self) -> None:
        """Write all packets that wait."""
        while True:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(SNAPLEN_MAX, 256)
            except BlockingIOError:
                return
            time_ns, length = time.time_ns(), len(data)
            for level, kind, value in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
                    seconds, rest = _TIMESTAMP.unpack(value)
                    time_ns = seconds * 1_000_000_000 + rest
                elif (level, kind) == (_SOL_PACKET, _PACKET_AUXDATA):
                    length = _AUXDATA.unpack(value)[1]
            self._writer.packet(time_ns, data, length)

    def close(self) -> None:
        """Write what still waits and how many packets the kernel could not keep."""
        self.fetch()
        seen = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        received, dropped = struct.unpack("=II", seen)
        self._socket.close()
        self._writer.close(time.time_ns(), received=received, dropped=dropped)
        if dropped:
            print(f"the capture of {self._link} lost {dropped} packets", flush=True)


def _packet_socket(interface: str, snaplen: int) -> socket.socket:
    # Without a protocol nothing arrives before the filter is in place.
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.setblocking(False)
    program = ctypes.create_string_buffer(code := outgoing_filter(snaplen), len(code))
    filter_ = struct.pack("@HxxxxxxP", len(code) // 8, ctypes.addressof(program))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_)
    sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    sock.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
    sock.bind((interface, _ETH_P_ALL))
    return sock


def capture_main(
    plan: Plan, captures: Captures, record: Path, ready: Callable[[], None], epoch: Callable[[], int]
) -> None:
    """Open all captures, say `ready`, fetch packets from the `epoch` on until SIGTERM."""
    stopped: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        stopped.append(number)

    signal.signal(signal.SIGTERM, stop)
    comment = f"scenario {plan.scenario}, seed {plan.seed}; times are the lab's clock"
    opened = [Capture.open(plan, link, record, captures.snaplen, comment) for link in captures.links]
    ready()
    moment_ns = epoch()
    exact_timers()
    if plan.clock == "virtual":
        go_first()
    step_ns = round(EVERY_NS * plan.dilation)
    while not stopped:
        sleep_until_ns(moment_ns)
        _fetch_all(opened)
        moment_ns += step_ns
        if plan.clock == "real":
            moment_ns = max(moment_ns, time.monotonic_ns())
    for capture in opened:
        capture.close()


def _fetch_all(opened: Sequence[Capture]) -> None:
    for capture in opened:
        capture.fetch()
