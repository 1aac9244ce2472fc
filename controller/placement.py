"""Which spine a new flow is given by policy least-loaded, after Hedera (Al-Fares et al., NSDI 2010).

Every switch's port counters are polled; a flow is placed once, when its first packet comes, on the
spine whose two links towards its destination are the least loaded, and stays there. A link's load is
what it sent per second between the last two polls, and a host's whole rate for each flow placed on it
of late, which no counter shows yet. The answer to a TCP connection (its SYN-ACK) is placed likewise but
not counted: what follows it is acknowledgements, and if it is more the counters will show it.

Pure bookkeeping: no socket, no framework, the time is an argument. `controller.app` calls it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.document import Document
from controller.errors import DocumentError
from controller.rules import PLACED_HOSTS_PRIORITY, PLACED_PRIORITY, Rule

Link = tuple[str, str]

ETH_TYPE_IPV4 = 0x0800
ETHERNET_BYTES = 14
IPV4_BYTES = 20
FRAGMENT_OFFSET = 0x1FFF
SYN_ACK = 0x12


@dataclass(frozen=True)
class Header:
    """What tells one flow from another. Ports are None but for TCP and UDP, and for a later fragment."""

    ipv4_src: str
    ipv4_dst: str
    ip_proto: int
    l4_src: int | None = None
    l4_dst: int | None = None
    answer: bool = field(default=False, compare=False)
    """Whether the packet answers a new TCP connection."""


def parse_header(frame: bytes) -> Header | None:
    """Return the header of an Ethernet frame, None for what is not IPv4 or is cut short."""
    if len(frame) < ETHERNET_BYTES + IPV4_BYTES or frame[12:14] != ETH_TYPE_IPV4.to_bytes(2, "big"):
        return None
    packet = frame[ETHERNET_BYTES:]
    src, dst = (socket.inet_ntoa(packet[start : start + 4]) for start in (12, 16))
    protocol, payload = packet[9], packet[(packet[0] & 0xF) * 4 :]
    later = int.from_bytes(packet[6:8], "big") & FRAGMENT_OFFSET
    if later or protocol not in (socket.IPPROTO_TCP, socket.IPPROTO_UDP) or len(payload) < 8:
        return Header(src, dst, protocol)
    flags = payload[13] if protocol == socket.IPPROTO_TCP and len(payload) > 13 else 0
    answer = flags & SYN_ACK == SYN_ACK
    l4_src, l4_dst = struct.unpack_from("!HH", payload)
    return Header(src, dst, protocol, l4_src, l4_dst, answer)


class Placement:
    """The loads of one fabric's links and the uplink each flow was given."""

    def __init__(self, document: Document) -> None:
        if document.least_loaded is None:
            raise DocumentError(f"policy {document.policy} places no flows")
        self.poll_ns = document.least_loaded.poll_ns
        self._hold_ns = document.least_loaded.hold_ns
        self._flow_bps = document.least_loaded.flow_bps
        self._names = {switch.dpid: switch.name for switch in document.switches}
        self._spines = [switch.name for switch in document.switches if switch.tier == "spine"]
        self._leaf_of = {host.ip: host.leaf for host in document.hosts}
        self._ports = {(port.src, port.dst): port.port for port in document.ports}
        self._links = {(port.src, port.port): (port.src, port.dst) for port in document.ports}
        self._counters: dict[Link, tuple[int, int]] = {}
        self._sent_bps: dict[Link, float] = {}
        self._recent: list[tuple[int, Link]] = []
        self._given: dict[tuple[int, Header], int] = {}

    def counted(self, dpid: int, sent_bytes: Mapping[int, int], now_ns: int) -> None:
        """Take in a switch's counters: the bytes each of its ports has sent since it exists."""
        for port, total in sent_bytes.items():
            link = self._links.get((self._names[dpid], port))
            if link is None:
                continue  # the bridge's own port
            before_ns, before = self._counters.get(link, (now_ns, total))
            if now_ns > before_ns:
                self._sent_bps[link] = (total - before) * 8e9 / (now_ns - before_ns)
            self._counters[link] = (now_ns, total)

    def load_bps(self, link: Link, now_ns: int) -> float:
        """Return a link's estimated load: as last measured, and the flows placed on it of late."""
        recent = sum(other == link and until_ns > now_ns for until_ns, other in self._recent)
        return self._sent_bps.get(link, 0.0) + recent * self._flow_bps

    def place(self, dpid: int, header: Header, now_ns: int) -> tuple[int, Rule | None] | None:
        """Return the uplink of a flow that came to a leaf, and the rule for it if it is new.

        None where it is for no host of the fabric: its packet is dropped.
        """
        if header.ipv4_dst not in self._leaf_of:
            return None
        if (dpid, header) in self._given:
            return self._given[dpid, header], None
        port = self._new(self._names[dpid], header, now_ns)
        self._given[dpid, header] = port
        return port, _rule(header, port)

    def _new(self, leaf: str, header: Header, now_ns: int) -> int:
        last = self._leaf_of[header.ipv4_dst]
        self._recent = [(until_ns, link) for until_ns, link in self._recent if until_ns > now_ns]
        spine = min(self._spines, key=lambda spine: self._cost((leaf, spine), (spine, last), now_ns))
        if not header.answer:
            self._recent += [(now_ns + self._hold_ns, link) for link in ((leaf, spine), (spine, last))]
        return self._ports[leaf, spine]

    def _cost(self, up: Link, down: Link, now_ns: int) -> tuple[float, float]:
        loads = self.load_bps(up, now_ns), self.load_bps(down, now_ns)
        return max(loads), sum(loads)

    def forget(self, dpid: int) -> None:
        """A switch has connected anew and lost its rules: its flows will be new again."""
        self._given = {key: port for key, port in self._given.items() if key[0] != dpid}


def _rule(header: Header, port: int) -> Rule:
    return Rule(
        PLACED_HOSTS_PRIORITY if header.l4_src is None else PLACED_PRIORITY,
        f"{header.ipv4_dst}/32",
        out_port=port,
        ipv4_src=f"{header.ipv4_src}/32",
        ip_proto=header.ip_proto,
        l4_src=header.l4_src,
        l4_dst=header.l4_dst,
    )
