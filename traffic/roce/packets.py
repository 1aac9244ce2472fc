"""RoCEv2 packets of a reliable connection, from the BTH to the ICRC, as the payload of a UDP datagram.

InfiniBand Architecture Specification, volume 1, chapter 9: base transport header (BTH), then, as the
operation code says, RDMA extended header (RETH), acknowledge extended header (AETH) or immediate data;
payload padded to four bytes; ICRC. The congestion notification packet (CNP) is of annex A17. Pure functions
of bytes.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from zlib import crc32

from traffic.roce.icrc import ICRC_BYTES, Tables, address_state, join, shift_tables

ROCE_PORT = 4791

FRAME_HEADER = 14 + 20 + 8
"""Ethernet, IP and UDP headers, which queues count and which stand before the BTH."""

WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_LAST_IMMEDIATE = 0x06, 0x07, 0x08, 0x09
WRITE_ONLY, WRITE_ONLY_IMMEDIATE = 0x0A, 0x0B
READ_REQUEST = 0x0C
READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY = 0x0D, 0x0E, 0x0F, 0x10
ACKNOWLEDGE = 0x11
CNP = 0x81

BTH = struct.Struct(">BBHII")
RETH = struct.Struct(">QII")
AETH = struct.Struct(">I")
IMMEDIATE = struct.Struct(">I")
CNP_RESERVED = bytes(16)

BTH_BYTES, RETH_BYTES, AETH_BYTES, IMMEDIATE_BYTES = BTH.size, RETH.size, AETH.size, IMMEDIATE.size
DEFAULT_PKEY = 0xFFFF
PSN_MASK = QP_MASK = 0xFFFFFF
_ACK_REQUEST = 1 << 31
_BECN = 0x40000000
_RESERVED = 0xFF000000
_PAD_SHIFT = 4
_VERSION_MASK = 0x0F
_ICRC = struct.Struct("<I")

ACK, NAK_SEQUENCE = 0x1F, 0x60
"""AETH syndromes: an acknowledgement without flow-control credits, and "PSN sequence error"."""

_RETH_CODES = frozenset((WRITE_FIRST, WRITE_ONLY, WRITE_ONLY_IMMEDIATE, READ_REQUEST))
_AETH_CODES = frozenset((READ_FIRST, READ_LAST, READ_ONLY, ACKNOWLEDGE))
_IMMEDIATE_CODES = frozenset((WRITE_LAST_IMMEDIATE, WRITE_ONLY_IMMEDIATE))
WRITES = frozenset(range(WRITE_FIRST, WRITE_ONLY_IMMEDIATE + 1))
READ_RESPONSES = frozenset((READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY))
_NO_PAYLOAD = frozenset((READ_REQUEST, ACKNOWLEDGE))


def header_bytes(opcode: int) -> int:
    """Return how many bytes stand before the payload."""
    size = BTH_BYTES
    if opcode in _RETH_CODES:
        size += RETH_BYTES
    if opcode in _AETH_CODES:
        size += AETH_BYTES
    if opcode in _IMMEDIATE_CODES:
        size += IMMEDIATE_BYTES
    return size + (len(CNP_RESERVED) if opcode == CNP else 0)


_HEADERS = {code: header_bytes(code) for code in (*WRITES, *READ_RESPONSES, READ_REQUEST, ACKNOWLEDGE, CNP)}


class BadPacket(Exception):
    """What arrived is no packet of ours; the text is one word for a counter."""


class Packet(NamedTuple):
    """A parsed packet. `payload` and `padded` are lengths, without and with padding; extension fields that
    the opcode does not have are 0."""

    opcode: int
    qp: int
    psn: int
    ack_request: bool
    address: int
    length: int
    syndrome: int
    msn: int
    immediate: int
    header: int
    payload: int
    padded: int
    payload_crc: int


def parse(data: memoryview, state: int) -> Packet:
    """Return the packet in `data`; `state` is its `icrc.address_state`.

    Raises BadPacket: `truncated`, `opcode`, `malformed` (a transport version that does not exist, padding
    longer than the payload, bytes where none belong) or `icrc`.
    """
    size = len(data)
    if size < BTH_BYTES + ICRC_BYTES:
        raise BadPacket("truncated")
    opcode, flags, _, low, high = BTH.unpack_from(data)
    header = _HEADERS.get(opcode)
    if header is None:
        raise BadPacket("opcode")
    padded, pad = size - header - ICRC_BYTES, flags >> _PAD_SHIFT & 3
    if padded < 0:
        raise BadPacket("truncated")
    if flags & _VERSION_MASK or pad > padded or padded & 3 or (padded and opcode in _NO_PAYLOAD):
        raise BadPacket("malformed")
    payload_crc = crc32(data[header : header + padded]) if padded else 0
    if _ICRC.unpack_from(data, size - ICRC_BYTES)[0] != _whole(data, state, header, payload_crc, padded):
        raise BadPacket("icrc")
    address = length = syndrome = msn = immediate = 0
    at = BTH_BYTES
    if opcode in _RETH_CODES:
        address, _, length = RETH.unpack_from(data, at)
        at += RETH_BYTES
    if opcode in _AETH_CODES:
        word = AETH.unpack_from(data, at)[0]
        syndrome, msn = word >> 24, word & 0xFFFFFF
    if opcode in _IMMEDIATE_CODES:
        immediate = IMMEDIATE.unpack_from(data, at)[0]
    return Packet(
        opcode, low & QP_MASK, high & PSN_MASK, bool(high & _ACK_REQUEST), address, length, syndrome, msn,
        immediate, header, padded - pad, padded, payload_crc,
    )  # fmt: skip


def _whole(data: memoryview, state: int, header: int, payload_crc: int, padded: int) -> int:
    masked = bytearray(data[:header])
    masked[4] = 0xFF
    crc = crc32(masked, state)
    return join(crc, payload_crc, shift_tables(padded)) if padded else crc


class Framer:
    """Builds the packets of one queue pair towards another: everything but the payload itself.

    `states` gives the `icrc.address_state` of a UDP payload's length; the queue pair `qp` is the receiver's.
    """

    def __init__(self, qp: int, states: StateCache) -> None:
        self._qp = qp
        self._states = states

    def head(
        self,
        opcode: int,
        psn: int,
        *,
        ack_request: bool = False,
        extension: bytes = b"",
        pad: int = 0,
        payload_crc: int = 0,
        padded: int = 0,
        tables: Tables | None = None,
    ) -> tuple[bytes, bytes]:
        """Return what stands before the payload (with `pad` of its `padded` bytes as padding), and the
        ICRC."""
        flags = pad << _PAD_SHIFT
        high = psn | _ACK_REQUEST if ack_request else psn
        masked = BTH.pack(opcode, flags, DEFAULT_PKEY, _RESERVED | self._qp, high) + extension
        low = self._qp | _BECN if opcode == CNP else self._qp
        head = BTH.pack(opcode, flags, DEFAULT_PKEY, low, high) + extension
        crc = crc32(masked, self._states[len(head) + padded + ICRC_BYTES])
        if padded:
            crc = join(crc, payload_crc, tables or shift_tables(padded))
        return head, _ICRC.pack(crc)

    def acknowledge(self, psn: int, syndrome: int, msn: int) -> bytes:
        """Return an ACK or NAK."""
        head, tail = self.head(ACKNOWLEDGE, psn, extension=AETH.pack(syndrome << 24 | msn))
        return head + tail

    def read_request(self, psn: int, address: int, key: int, length: int) -> bytes:
        """Return a request for `length` bytes."""
        head, tail = self.head(READ_REQUEST, psn, extension=RETH.pack(address, key, length))
        return head + tail

    def cnp(self) -> bytes:
        """Return a congestion notification."""
        head, tail = self.head(CNP, 0, extension=CNP_RESERVED)
        return head + tail


class StateCache(dict[int, int]):
    """The `icrc.address_state` of one pair of addresses and ports, by the UDP payload's length."""

    def __init__(self, src_ip: bytes, dst_ip: bytes, src_port: int, dst_port: int = ROCE_PORT) -> None:
        super().__init__()
        self._ends = (src_ip, dst_ip, src_port, dst_port)

    def __missing__(self, length: int) -> int:
        state = address_state(*self._ends, length)
        self[length] = state
        return state
