"""How a transfer is cut into messages and packets, and how packets are numbered on the wire.

A packet has an index within its transfer, from 0; on the wire it has a packet sequence number (PSN) of 24
bits that starts anywhere and wraps. All payloads but the last have the length of the path's MTU.
"""

from __future__ import annotations

from dataclasses import dataclass

from traffic.roce import packets
from traffic.roce.icrc import ICRC_BYTES

PSN_MASK = packets.PSN_MASK
_HALF = 1 << 23

_WRITE = {
    (True, False): packets.WRITE_FIRST,
    (False, False): packets.WRITE_MIDDLE,
    (False, True): packets.WRITE_LAST,
    (True, True): packets.WRITE_ONLY,
}
_WITH_IMMEDIATE = {
    packets.WRITE_LAST: packets.WRITE_LAST_IMMEDIATE,
    packets.WRITE_ONLY: packets.WRITE_ONLY_IMMEDIATE,
}
_READ = {
    (True, False): packets.READ_FIRST,
    (False, False): packets.READ_MIDDLE,
    (False, True): packets.READ_LAST,
    (True, True): packets.READ_ONLY,
}


@dataclass(frozen=True)
class Geometry:
    """A transfer of `size` bytes in payloads of `mtu`, a message for each `message_bytes`.

    `message_bytes` is a multiple of `mtu`. The first packet has the sequence number `first_psn`.
    """

    size: int
    mtu: int
    message_bytes: int
    first_psn: int = 0

    @property
    def packets(self) -> int:
        """How many packets the transfer has."""
        return -(-self.size // self.mtu)

    @property
    def per_message(self) -> int:
        """How many packets a whole message has."""
        return self.message_bytes // self.mtu

    def psn(self, index: int) -> int:
        """Return the sequence number of a packet."""
        return (self.first_psn + index) & PSN_MASK

    def index(self, psn: int, near: int) -> int:
        """Return the index of a sequence number: the one within half of all numbers around index `near`.

        It can be below 0, or beyond the last packet: what arrives can have any number.
        """
        ahead = (psn - self.first_psn - near) & PSN_MASK
        return near + (ahead - PSN_MASK - 1 if ahead >= _HALF else ahead)

    def payload(self, index: int) -> int:
        """Return the length of a packet's payload, without padding."""
        return min(self.mtu, self.size - index * self.mtu)

    def message_end(self, index: int) -> int:
        """Return the index behind the last packet of the message that `index` is in."""
        return min(self.packets, (index // self.per_message + 1) * self.per_message)

    def write_opcode(self, index: int) -> int:
        """Return the opcode of a packet of RDMA WRITEs; the last one of the transfer has immediate data."""
        end = self.message_end(index)
        code = _WRITE[index % self.per_message == 0, index + 1 == end]
        return _WITH_IMMEDIATE[code] if index + 1 == self.packets else code

    @staticmethod
    def read_opcode(index: int, start: int, end: int) -> int:
        """Return the opcode of response `index` to a READ request for the packets from `start` to before
        `end`."""
        return _READ[index == start, index + 1 == end]


def wire_bytes(size: int, mtu: int, message_bytes: int, *, read: bool) -> int:
    """Return the bytes that queues count for a transfer's data: every packet with its headers and ICRC.

    Acknowledgements, requests and retransmissions are not counted.
    """
    geometry = Geometry(size, mtu, message_bytes)
    count, messages = geometry.packets, -(-geometry.packets // geometry.per_message)
    padding = -size % 4
    fixed = packets.FRAME_HEADER + packets.BTH_BYTES + ICRC_BYTES
    if read:
        extensions = (2 * messages - _lone(geometry)) * packets.AETH_BYTES
    else:
        extensions = messages * packets.RETH_BYTES + packets.IMMEDIATE_BYTES
    return size + padding + count * fixed + extensions


def _lone(geometry: Geometry) -> int:
    """Return how many messages have one packet only, which is their first and last at once."""
    if geometry.per_message == 1:
        return geometry.packets
    return int(geometry.packets % geometry.per_message == 1)
