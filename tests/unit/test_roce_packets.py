"""RoCE packets against scapy's, the CRC's arithmetic, and what arrives that is no packet."""

from __future__ import annotations

import socket
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.roce import AETH as ScapyAeth
from scapy.contrib.roce import BTH as ScapyBth
from scapy.contrib.roce import cnp as scapy_cnp
from scapy.layers.inet import IP, UDP
from scapy.packet import Packet as ScapyPacket
from scapy.packet import Raw

from traffic.roce import icrc, packets
from traffic.roce.packets import BadPacket, Framer, StateCache

SRC, DST, PORT, QP, PSN = "10.0.1.1", "10.0.3.1", 20_001, 0x1FEDCB, 0xFFFFFE
STATES = StateCache(socket.inet_aton(SRC), socket.inet_aton(DST), PORT)
FRAMER = Framer(QP, STATES)
PAYLOAD = bytes(range(256)) * 4
RETH = packets.RETH.pack(0x1234_5678_9ABC, 0x42, 1 << 20)
IMMEDIATE = packets.IMMEDIATE.pack(7)
AETH = packets.AETH.pack(packets.ACK << 24 | 5)


def by_scapy(packet: ScapyPacket) -> bytes:
    """The UDP payload that scapy makes of a packet."""
    return bytes(IP(src=SRC, dst=DST, id=0, flags="DF") / UDP(sport=PORT, dport=4791) / packet)[28:]


def framed(opcode: int, extension: bytes, payload: bytes, *, ask: bool = False, pad: int = 0) -> bytes:
    head, tail = FRAMER.head(
        opcode, PSN, ack_request=ask, extension=extension, pad=pad, payload_crc=crc32(payload),
        padded=len(payload),
    )  # fmt: skip
    return head + payload + tail


DATA = [
    (packets.WRITE_FIRST, RETH),
    (packets.WRITE_MIDDLE, b""),
    (packets.WRITE_LAST, b""),
    (packets.WRITE_LAST_IMMEDIATE, IMMEDIATE),
    (packets.WRITE_ONLY, RETH),
    (packets.WRITE_ONLY_IMMEDIATE, RETH + IMMEDIATE),
    (packets.READ_FIRST, AETH),
    (packets.READ_MIDDLE, b""),
    (packets.READ_LAST, AETH),
    (packets.READ_ONLY, AETH),
]


@pytest.mark.parametrize(("opcode", "extension"), DATA)
@pytest.mark.parametrize("ask", [False, True])
def test_data_packets_are_those_of_scapy(opcode: int, extension: bytes, ask: bool) -> None:
    header = ScapyBth(opcode=opcode, dqpn=QP, psn=PSN, ackreq=ask, padcount=2)
    assert framed(opcode, extension, PAYLOAD, ask=ask, pad=2) == by_scapy(header / Raw(extension + PAYLOAD))


@pytest.mark.parametrize("syndrome", [packets.ACK, packets.NAK_SEQUENCE])
def test_answers_are_those_of_scapy(syndrome: int) -> None:
    wanted = ScapyBth(opcode=packets.ACKNOWLEDGE, dqpn=QP, psn=PSN) / ScapyAeth(syndrome=syndrome, msn=9)
    assert FRAMER.acknowledge(PSN, syndrome, 9) == by_scapy(wanted)


def test_a_read_request_and_a_notification_are_those_of_scapy() -> None:
    request = ScapyBth(opcode=packets.READ_REQUEST, dqpn=QP, psn=PSN) / Raw(RETH)
    assert FRAMER.read_request(PSN, 0x1234_5678_9ABC, 0x42, 1 << 20) == by_scapy(request)
    assert FRAMER.cnp() == by_scapy(scapy_cnp(QP))


@pytest.mark.parametrize(("opcode", "extension"), DATA)
def test_what_was_built_is_parsed_again(opcode: int, extension: bytes) -> None:
    data = framed(opcode, extension, PAYLOAD, ask=True, pad=1)
    packet = packets.parse(memoryview(data), STATES[len(data)])
    assert (packet.opcode, packet.qp, packet.psn, packet.ack_request) == (opcode, QP, PSN, True)
    assert (packet.payload, packet.padded, packet.payload_crc) == (1023, 1024, crc32(PAYLOAD))
    assert data[packet.header : packet.header + packet.padded] == PAYLOAD
    if extension.startswith(RETH):
        assert (packet.address, packet.length) == (0x1234_5678_9ABC, 1 << 20)
    if extension.endswith(IMMEDIATE):
        assert packet.immediate == 7
    if extension == AETH:
        assert (packet.syndrome, packet.msn) == (packets.ACK, 5)


GOOD = framed(packets.WRITE_FIRST, RETH, PAYLOAD)
WRONG = {
    "truncated": [b"", GOOD[:15], GOOD[:20]],
    "opcode": [b"\x99" + GOOD[1:], b"\x04" + GOOD[1:]],
    "malformed": [
        GOOD[:1] + b"\x01" + GOOD[2:],
        GOOD[:-1],
        framed(packets.WRITE_LAST, b"", b"", pad=1),
        FRAMER.acknowledge(0, 0, 0) + bytes(4),
    ],
    "icrc": [GOOD[:-1] + b"\0", GOOD[:40] + b"\0" + GOOD[41:], GOOD[:8] + b"\x80" + GOOD[9:]],
}


@pytest.mark.parametrize(("reason", "data"), [(reason, data) for reason in WRONG for data in WRONG[reason]])
def test_what_is_wrong_is_said_in_a_word(reason: str, data: bytes) -> None:
    with pytest.raises(BadPacket, match=f"^{reason}$"):
        packets.parse(memoryview(data), STATES[len(data)])


def test_another_source_has_another_crc() -> None:
    other = StateCache(socket.inet_aton(SRC), socket.inet_aton(DST), PORT + 1)
    with pytest.raises(BadPacket, match=r"^icrc$"):
        packets.parse(memoryview(GOOD), other[len(GOOD)])


@given(st.one_of(st.binary(max_size=200), st.builds(lambda cut: GOOD[:cut], st.integers(0, len(GOOD) - 1))))
def test_arbitrary_bytes_are_refused_and_nothing_else_happens(data: bytes) -> None:
    with pytest.raises(BadPacket):
        packets.parse(memoryview(data), STATES[len(data)])


@given(st.binary(), st.binary(max_size=64), st.binary(max_size=4096))
def test_crcs_of_parts_are_joined_to_that_of_the_whole(first: bytes, second: bytes, third: bytes) -> None:
    parts = [(crc32(part), len(part)) for part in (first, second, third)]
    assert icrc.join_all(parts) == crc32(first + second + third)
