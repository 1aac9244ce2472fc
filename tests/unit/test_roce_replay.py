"""Transfers by RoCE over the loopback interface, in real time, and packets that none of them sent.

No lab, no root: the buffers that only root may enlarge stay as they are, and rates are far below what they
hold.
"""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Iterator
from itertools import count
from typing import Any
from zlib import crc32

import pytest

from testbed.record import shape
from testbed.record.shape import fitted
from traffic.roce import packets, sockets
from traffic.roce.dcqcn import SETS
from traffic.roce.packets import Framer, StateCache
from traffic.roce.pairs import Settings
from traffic.roce.replay import RoceReplay
from traffic.tcp_replay import Endpoint, Flow

SIZE = 300_001
SRC, DST = "127.11.0.1", "127.11.0.2"
FIRST_PORT = count(21_000, 10)
SINK_QP, SOURCE_QP = 1 << 16 | 0x101, 0x101


@pytest.fixture(autouse=True)
def without_root(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sockets, "_SO_RCVBUFFORCE", socket.SO_RCVBUF)
    monkeypatch.setattr(sockets, "_SO_SNDBUFFORCE", socket.SO_SNDBUF)
    return iter(())


def settings(**changes: Any) -> Settings:
    base: dict[str, Any] = {
        "mtu": 1024, "read": False, "recovery": "go-back-n", "message_bytes": 64 << 10,
        "window_bytes": 16 << 10, "ack_timeout_ns": 100_000_000, "tick_ns": 0,
        "dcqcn": SETS["hpcc"].parameters, "name": "dcqcn hpcc",
    }  # fmt: skip
    return Settings(**{**base, **changes})


class Pair:
    """A replay of one transfer from SRC to DST, and its rows of progress."""

    def __init__(
        self, own: Settings, size: int = SIZE, rate_bps: int = 200_000_000, pace_bps: int = 0
    ) -> None:
        self.port = next(FIRST_PORT)
        flow = Flow(0, Endpoint("p1", SRC, self.port), Endpoint("d1", DST, 4791), size, 0, pace_bps)
        self.rows: list[tuple[int, int, int]] = []
        self.replay = RoceReplay(
            [flow], own, lanes={0: [("p1-leaf1", rate_bps)]}, gpus={0: 1},
            namespace=lambda host: contextlib.nullcontext(), progress=self.rows.append, progress_ns=1_000_000,
        )  # fmt: skip
        self.replay.prepare()
        self.states = StateCache(socket.inet_aton(SRC), socket.inet_aton(DST), self.port)

    def run(self, limit_s: float = 8.0) -> dict[str, Any]:
        epoch = time.monotonic_ns() + 3_000_000
        assert self.replay.run(epoch, epoch + int(limit_s * 1e9))
        return self.replay.outcomes()[0]

    def inject(self, *data: bytes, port: int | None = None) -> None:
        """Send packets to the sink's host, from the transfer's own port or another."""
        sock = sockets.data_socket(SRC, self.port if port is None else port, "", tos=0)
        with sock:
            for packet in data:
                sock.sendto(packet, (DST, packets.ROCE_PORT))

    def close(self) -> None:
        for _, wire in self.replay._wires.values():
            wire.close()
        for pair in self.replay._pairs:
            pair.out.close()
            pair.back.close()


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    made: list[Pair] = []
    yield made
    for pair in made:
        pair.close()


def made(pairs: list[Pair], own: Settings, **how: Any) -> Pair:
    pairs.append(Pair(own, **how))
    return pairs[-1]


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("tick_ns", [0, 100_000])
def test_a_transfer_arrives_whole(pairs: list[Pair], read: bool, tick_ns: int) -> None:
    outcome = made(pairs, settings(read=read, tick_ns=tick_ns)).run()
    facts = outcome["roce"]
    assert (outcome["bytes"], outcome["error"], outcome["ecn"]) == (SIZE, None, True)
    assert facts["crc_sent"] == facts["crc_landed"] != 0
    assert facts["packets_sent"] >= 293  # of 1024 B each
    assert outcome["start_ns"] <= outcome["first_byte_ns"] <= outcome["end_ns"]
    assert pairs[0].rows[-1][1:] == (0, SIZE)
    assert [row[2] for row in pairs[0].rows] == sorted({row[2] for row in pairs[0].rows})
    assert pairs[0].replay.counters() == {"bad_packets": {}, "lost_at_sockets": {}}
    # What is written is what the reader takes.
    assert fitted([outcome], shape.OUTCOMES, "")
    assert fitted(pairs[0].replay.counters() | {"lost_at_sockets": {DST: 2}}, shape.ROCE_COUNTERS, "")


@pytest.mark.parametrize("limit", ["rate_bps", "pace_bps"])
def test_a_sender_keeps_its_rate_and_its_nics(pairs: list[Pair], limit: str) -> None:
    outcome = made(pairs, settings(dcqcn=None, window_bytes=0), **{limit: 50_000_000}).run()
    frames = 293 * (42 + 12 + 4) + SIZE
    # Never faster than the rate allows, but for the first packet and one that was sent a little late.
    assert outcome["end_ns"] - outcome["start_ns"] >= (frames - 2 * 1100) * 8 / 50e6 * 1e9


def framed(pair: Pair, qp: int, opcode: int, psn: int, payload: bytes = b"") -> bytes:
    head, tail = Framer(qp, pair.states).head(
        opcode, psn, ack_request=True, payload_crc=crc32(payload) if payload else 0, padded=len(payload)
    )
    return head + payload + tail


def test_bad_packets_are_counted_and_nothing_else_comes_of_them(pairs: list[Pair]) -> None:
    pair = made(pairs, settings())
    old = framed(pair, SINK_QP, packets.WRITE_MIDDLE, 5, bytes(1024))
    pair.inject(
        b"", b"RoCE?", old[:-1] + bytes([old[-1] ^ 1]),
        framed(pair, 0xABCDEF, packets.WRITE_MIDDLE, 0, bytes(8)),
        b"\x55" + old[1:], old, framed(pair, SINK_QP, packets.ACKNOWLEDGE, 7)[:12] + bytes(8),
    )  # fmt: skip
    pair.inject(old, port=next(FIRST_PORT))
    outcome = pair.run()
    assert outcome["roce"]["crc_sent"] == outcome["roce"]["crc_landed"]
    assert outcome["bytes"] == SIZE
    bad = pair.replay.counters()["bad_packets"]
    assert bad == {"icrc": 2, "opcode": 1, "peer": 1, "queue pair": 1, "truncated": 2}


def test_random_bytes_end_nothing(pairs: list[Pair]) -> None:
    pair, draw = made(pairs, settings()), random.Random(1)
    start = framed(pair, SINK_QP, packets.WRITE_FIRST, 1, bytes(64))
    junk = [draw.randbytes(draw.randrange(120)) for _ in range(100)]
    for _ in range(100):
        broken = bytearray(start[: draw.randrange(1, len(start))])
        broken[draw.randrange(len(broken))] ^= 1 << draw.randrange(8)
        junk.append(bytes(broken))
    for number in range(0, len(junk), 50):
        pair.inject(*junk[number : number + 50])
    assert pair.run()["bytes"] == SIZE
    assert sum(pair.replay.counters()["bad_packets"].values()) == len(junk)


def test_a_valid_packet_that_lies_outside_of_the_transfer_is_ignored(pairs: list[Pair]) -> None:
    pair = made(pairs, settings())
    own = framed(pair, SINK_QP, packets.WRITE_MIDDLE, 0x123456, bytes(1024))
    short = framed(pair, SINK_QP, packets.WRITE_MIDDLE, (1 * 0x9E3779) & packets.PSN_MASK, bytes(8))
    pair.inject(own, short, framed(pair, SINK_QP, packets.READ_REQUEST, 3))
    outcome = pair.run()
    assert outcome["roce"]["crc_sent"] == outcome["roce"]["crc_landed"]


def test_packets_that_are_old_or_of_another_length_are_counted(pairs: list[Pair]) -> None:
    pair = made(pairs, settings(), size=3 * 1024)
    first = (1 * 0x9E3779) & packets.PSN_MASK
    old = framed(pair, SINK_QP, packets.WRITE_MIDDLE, first - 1, bytes(1024))
    short = framed(pair, SINK_QP, packets.WRITE_MIDDLE, first, bytes(8))
    pair.inject(old, old, short)
    facts = pair.run()["roce"]
    assert facts["not_landed"] == 3
    assert facts["crc_sent"] == facts["crc_landed"]


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("recovery", ["go-back-n", "selective-repeat"])
def test_sound_packets_of_any_kind_and_number_end_nothing(
    pairs: list[Pair], read: bool, recovery: str
) -> None:
    pair, draw = made(pairs, settings(read=read, recovery=recovery)), random.Random(2)
    held = pair.replay._pairs[0]
    codes = sorted(packets._HEADERS)
    first = (1 * 0x9E3779) & packets.PSN_MASK
    for _ in range(5_000):
        code = draw.choice(codes)
        near = draw.randrange(-20, 400) if draw.random() < 0.8 else draw.getrandbits(24)
        body = draw.randbytes(packets.header_bytes(code) - packets.BTH_BYTES)
        body += b"" if code in packets._NO_PAYLOAD else bytes(draw.choice((0, 4, 8, 1024)))
        extension = body[: packets.header_bytes(code) - packets.BTH_BYTES]
        payload = body[len(extension) :]
        head, tail = Framer(SINK_QP, pair.states).head(
            code, (first + near) & packets.PSN_MASK, ack_request=draw.random() < 0.5, extension=extension,
            payload_crc=crc32(payload), padded=len(payload),
        )  # fmt: skip
        data = memoryview(head + payload + tail)
        packet = packets.parse(data, pair.states[len(data)])
        pair.replay._deliver(held, draw.random() < 0.5, packet, draw.choice((0, 2, 3)), time.monotonic_ns())
        pair.replay._serve(held, time.monotonic_ns())


def test_without_an_answer_a_transfer_fails_after_all_retries(pairs: list[Pair]) -> None:
    pair = made(pairs, settings(ack_timeout_ns=1_000_000), size=5000)
    pair.replay._maker.targets.pop((DST, SINK_QP))  # the sink is gone
    outcome = pair.run()
    assert outcome["error"] == "no answer after all retries"
    assert (outcome["roce"]["timeouts"], outcome["end_ns"]) == (8, None)


def test_without_congestion_control_nothing_is_notified_of(pairs: list[Pair]) -> None:
    pair = made(pairs, settings(dcqcn=None))
    pair.replay._pairs[0].out.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, sockets.CE)
    facts = pair.run()["roce"]
    assert facts["ce_packets"] >= 293
    assert (facts["cnps_sent"], facts["cnps_received"], facts["first_cnp_ns"]) == (0, 0, None)


def test_marked_packets_are_notified_of(pairs: list[Pair]) -> None:
    pair = made(pairs, settings())
    out = pair.replay._pairs[0].out
    out.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, sockets.CE)
    facts = pair.run()["roce"]
    assert facts["ce_packets"] >= 293
    assert facts["cnps_sent"] == facts["cnps_received"] >= 2
    assert facts["shortest_cnp_gap_ns"] >= SETS["hpcc"].parameters.cnp_interval_ns
    assert facts["first_ce_ns"] <= facts["first_cnp_ns"]
