"""The invariant CRC that ends every RoCEv2 packet, at the cost of one pass over the payload at most.

InfiniBand Architecture Specification, annex A17 (RoCEv2): CRC-32 as Ethernet's over eight bytes of ones (in
the place of a local route header), the IP and UDP headers and everything from the BTH to the payload's
padding. What routers change counts as ones: of IPv4 the type of service, time to live and
checksum, of UDP the checksum, of the BTH the byte with FECN and BECN. It is sent with its least
significant byte first.

A CRC is linear, so that of a whole is put together from those of its parts: of a packet's payload it is
needed once, and a sender that knows its blocks takes it from a table.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from functools import cache
from zlib import crc32

ICRC_BYTES = 4
IP_HEADER = struct.Struct(">BBHHHBBH4s4s")
UDP_HEADER = struct.Struct(">HHHH")
IP_BYTES = IP_HEADER.size
UDP_BYTES = UDP_HEADER.size

_VERSION_AND_LENGTH = 0x45
_DO_NOT_FRAGMENT = 0x4000
_NO_ROUTE_HEADER = b"\xff" * 8

Tables = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def address_state(src_ip: bytes, dst_ip: bytes, src_port: int, dst_port: int, udp_payload: int) -> int:
    """Return the CRC over all that comes before the BTH, for a UDP payload of so many bytes, ICRC included.

    The addresses are four bytes each. The IP identification is 0 and the packet must not be fragmented: what
    Linux sends from a UDP socket that is not connected and discovers the path's MTU.
    """
    length = UDP_BYTES + udp_payload
    ip = IP_HEADER.pack(
        _VERSION_AND_LENGTH, 0xFF, IP_BYTES + length, 0, _DO_NOT_FRAGMENT, 0xFF,
        socket.IPPROTO_UDP, 0xFFFF, src_ip, dst_ip,
    )  # fmt: skip
    return crc32(_NO_ROUTE_HEADER + ip + UDP_HEADER.pack(src_port, dst_port, length, 0xFFFF))


@cache
def shift_tables(length: int) -> Tables:
    """Return tables of what a CRC becomes when `length` more bytes follow, one for each of its bytes."""
    zeros = bytes(length)
    nothing = crc32(zeros)
    bits = [crc32(zeros, 1 << bit) ^ nothing for bit in range(32)]
    return (_table(bits[:8]), _table(bits[8:16]), _table(bits[16:24]), _table(bits[24:]))


def _table(bits: list[int]) -> tuple[int, ...]:
    table = [0]
    for bit in bits:
        table += [value ^ bit for value in table]
    return tuple(table)


def join(first: int, second: int, tables: Tables) -> int:
    """Return the CRC of two parts, one after the other; `tables` are those of the second part's length."""
    low, middle, high, top = tables
    return low[first & 255] ^ middle[first >> 8 & 255] ^ high[first >> 16 & 255] ^ top[first >> 24] ^ second


def join_all(parts: Iterable[tuple[int, int]]) -> int:
    """Return the CRC of all `parts` in order, each given as its CRC and its length in bytes."""
    whole = 0
    for part, length in parts:
        whole = join(whole, part, shift_tables(length))
    return whole
