"""Counters found in captured dumps, against what `tc` printed of the same queues."""

from __future__ import annotations

import struct

import pytest

from testbed.lab.counters import Received, locate_qdiscs, tcp_dump_request
from testbed.lab.netlink import TCMSG, attribute
from tests.support.lab import DATA, captured, datagrams

WIDTHS = {"backlog": "=I", "bytes": "=Q", "packets": "=I", "drops": "=I", "marked": "=I"}


def counters(datagram: bytes, kind: str) -> dict[int, dict[str, int]]:
    """Every counter of each qdisc of `kind`, by interface index."""
    places = [place for place in locate_qdiscs(memoryview(datagram), len(datagram)) if place.kind == kind]
    return {
        place.ifindex: {
            name: struct.unpack_from(width, datagram, getattr(place, name))[0]
            for name, width in WIDTHS.items()
        }
        for place in places
    }


def test_counters_of_marking_queues_are_those_of_tc() -> None:
    index = captured("interfaces.json")
    shown = {
        index[queue["dev"]]: {name: queue[name] for name in WIDTHS}
        for queue in captured("tc-qdisc-later.json")
        if queue["kind"] == "red"
    }
    assert counters(datagrams("later-dump")[0], "red") == shown
    assert shown[index["leaf1-spine2"]]["marked"] > 0
    assert shown[index["leaf2-d1"]]["bytes"] > 8 << 20


def test_where_a_qdisc_stands_is_told_by_interface_handle_and_parent() -> None:
    index = captured("interfaces.json")["leaf2-d1"]
    datagram = datagrams("later-dump")[0]
    own = [place for place in locate_qdiscs(memoryview(datagram), len(datagram)) if place.ifindex == index]
    assert [(place.kind, place.handle, place.parent) for place in own] == [
        ("htb", 0x00010000, 0xFFFFFFFF),
        ("red", 0x00100000, 0x00010001),
    ]


def test_a_qdisc_that_cannot_mark_has_no_place_for_marks() -> None:
    datagram = datagrams("first-dump")[0]
    kinds = {place.kind: place.marked for place in locate_qdiscs(memoryview(datagram), len(datagram))}
    assert kinds["noqueue"] == kinds["netem"] == kinds["htb"] == -1
    assert kinds["red"] > 0


def test_each_counter_has_its_own_place() -> None:
    # struct gnet_stats_basic: u64 bytes, u32 packets; gnet_stats_queue: qlen, backlog, drops, requeues,
    # overlimits; tc_red_xstats: early, pdrop, other, marked.
    basic, queue, red = (
        struct.pack("=QI", 1, 2),
        struct.pack("=5I", 3, 4, 5, 6, 7),
        struct.pack("=4I", *range(8, 12)),
    )
    statistics = attribute(1, basic) + attribute(3, queue) + attribute(4, red)
    body = TCMSG.pack(0, 9, 0, 0, 0) + attribute(1, b"red\0") + attribute(7, statistics)
    message = struct.pack("=IHHII", 16 + len(body), 36, 2, 1, 0) + body
    found = {"backlog": 4, "bytes": 1, "packets": 2, "drops": 5, "marked": 11}
    assert counters(message, "red") == {9: found}


def test_the_end_of_a_dump_has_no_qdisc() -> None:
    assert locate_qdiscs(memoryview(datagrams("first-dump")[-1]), 20) == []


def test_the_request_for_tcp_sockets() -> None:
    # SOCK_DIAG_BY_FAMILY, REQUEST | DUMP; family, protocol, INET_DIAG_INFO, ESTABLISHED and CLOSE_WAIT.
    header = "48000000140001030100000000000000"
    assert tcp_dump_request().hex() == header + "0206020002010000" + "00" * 48


DONE = struct.pack("=IHHIIi", 20, 3, 2, 1, 0, 0)
ONE, TWO = (bytes([10, 0, 1, 1]), 20_000, 3_227_144), (bytes([10, 0, 1, 2]), 20_001, 1 << 40)
TOS, INFO = 5, 2


def received(found: Received, *messages: bytes) -> list[tuple[bytes, int, int]]:
    data = b"".join(messages)
    return found.read(memoryview(data), len(data))


def described(socket: tuple[bytes, int, int], before: bytes = b"", info: int = INFO) -> bytes:
    """A message about a socket, with attributes before that of its numbers."""
    address, port, count = socket
    body = struct.pack("=4B", 2, 1, 0, 0) + struct.pack(">HH4s12x4s12x32x", 5000, port, bytes(4), address)
    body += before + attribute(info, bytes(128) + struct.pack("=Q", count) + bytes(96))
    return struct.pack("=IHHII", 16 + len(body), 20, 2, 1, 0) + body


def test_bytes_received_by_each_socket() -> None:
    dump = (DATA / "tcp-dump.bin").read_bytes()
    seen = [(bytes([10, 0, 1, 1]), 20_000, 3_227_144), (bytes([10, 0, 1, 2]), 20_000, 3_845_196)]
    assert sorted(received(Received(), dump)) == seen
    again = Received()
    assert [sorted(received(again, dump)) for _ in range(2)] == [seen, seen]


def test_where_the_numbers_stand_is_learned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Received()
    assert received(found, described(ONE)) == [ONE]
    monkeypatch.setattr("testbed.lab.counters.attributes", lambda *_: pytest.fail("read by attributes"))
    assert received(found, described(TWO), described(ONE)) == [TWO, ONE]
    assert received(found, described(ONE), DONE) == [ONE]
    assert received(found, DONE) == []


def test_sockets_that_are_described_otherwise_are_read_too() -> None:
    longer = attribute(TOS, b"\0")
    same_size = attribute(TOS, bytes(128) + struct.pack("=Q", 7) + bytes(96))
    for known in (described(ONE), described(ONE, longer), described(ONE, same_size)):
        for other in (
            described(TWO),
            described(TWO, longer),
            described(TWO, same_size),
            described(TWO, longer + longer),
        ):
            found = Received()
            assert received(found, known) == [ONE]
            assert received(found, other) == [TWO]
            assert received(found, known, other, DONE) == [ONE, TWO]
    two_attributes = attribute(INFO, bytes(128) + struct.pack("=Q", TWO[2]) + bytes(96)) + same_size
    swapped = described(TWO, same_size)[:88] + two_attributes  # of the same size, in another order
    found = Received()
    received(found, described(ONE, same_size))
    assert received(found, swapped) == [TWO]


def test_other_messages_among_the_sockets_are_left_out() -> None:
    assert received(Received(), DONE) == []
    route = struct.pack("=IHHII", 16, 24, 2, 1, 0)
    assert received(Received(), described(ONE), route, described(TWO)) == [ONE, TWO]
