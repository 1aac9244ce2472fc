"""Placing flows by load: counters and time are arguments, so that every choice is exact."""

from __future__ import annotations

import socket
import struct

import pytest

from controller.document import Document, Host, LeastLoaded, Port, Switch
from controller.errors import DocumentError
from controller.placement import Header, Placement, parse_header
from controller.rules import Rule

SPINES = 3
LEAVES = 3
GBIT = 10**9
MS = 1_000_000
HOLD_NS = 4 * MS
LOCAL = 0xFFFFFFFE


def document(balancing: LeastLoaded | None) -> Document:
    """Leaf i has host hi at 10.0.i.1; a leaf's port s leads to spine s, a spine's port l to leaf l."""
    leaves = [Switch(f"leaf{i}", i, "leaf", i) for i in range(1, LEAVES + 1)]
    spines = [Switch(f"spine{i}", 0x10000 + i, "spine", i) for i in range(1, SPINES + 1)]
    hosts = [Host(f"h{i}", f"10.0.{i}.1", f"leaf{i}") for i in range(1, LEAVES + 1)]
    ports = [Port(f"leaf{i}", f"h{i}", SPINES + 1) for i in range(1, LEAVES + 1)]
    for leaf in leaves:
        for spine in spines:
            ports += [Port(leaf.name, spine.name, spine.index), Port(spine.name, leaf.name, leaf.index)]
    policy = "least-loaded" if balancing else "ecmp"
    return Document(policy, ("ipv4_dst",), 1, (), balancing, (*leaves, *spines), tuple(hosts), tuple(ports))


@pytest.fixture
def placement() -> Placement:
    return Placement(document(LeastLoaded(poll_ns=MS, hold_ns=HOLD_NS, flow_bps=100 * GBIT)))


def flow(src: int, dst: int, number: int = 0, *, answer: bool = False) -> Header:
    return Header(f"10.0.{src}.1", f"10.0.{dst}.1", 6, 20_000 + number, 5_000, answer)


def place(placement: Placement, header: Header, now_ns: int = 0) -> int:
    """The spine of a flow that comes to its source's leaf."""
    placed = placement.place(int(header.ipv4_src.split(".")[2]), header, now_ns)
    assert placed is not None
    return placed[0]


def test_flows_at_once_are_spread_over_the_spines(placement: Placement) -> None:
    assert [place(placement, flow(1, 2, number)) for number in range(6)] == [1, 2, 3, 1, 2, 3]


def test_leaves_do_not_meet_on_the_way_down(placement: Placement) -> None:
    # Each leaf's own uplinks are idle: what differs is the spines' links to leaf 3.
    assert [place(placement, flow(1, 3)), place(placement, flow(2, 3))] == [1, 2]


def test_a_measured_load_is_avoided(placement: Placement) -> None:
    for now_ns, megabytes in ((0, 5), (MS, 6)):
        placement.counted(1, {1: megabytes * 10**6, 2: 5 * 10**6, LOCAL: 7}, now_ns)
    # 1 MB within 1 ms are 8 Gbit/s.
    assert placement.load_bps(("leaf1", "spine1"), MS) == 8 * GBIT
    assert placement.load_bps(("leaf1", "spine2"), MS) == 0
    assert place(placement, flow(1, 2), MS) == 2


def test_a_measured_load_of_the_downlink_is_avoided(placement: Placement) -> None:
    for now_ns, total in ((0, 0), (MS, 1000)):
        placement.counted(0x10001, {2: total, 3: 0}, now_ns)
    assert place(placement, flow(1, 2), MS) == 2
    assert place(placement, flow(1, 3, 1), MS) == 1


def test_the_worse_of_a_paths_links_decides(placement: Placement) -> None:
    # Megabytes within a millisecond, up and down: 3 and 3 by spine 1, 5 and 0 by spine 2, 4 and 4 by spine 3.
    for now_ns, factor in ((0, 0), (MS, 10**6)):
        placement.counted(1, {1: 3 * factor, 2: 5 * factor, 3: 4 * factor}, now_ns)
        placement.counted(0x10001, {2: 3 * factor}, now_ns)
        placement.counted(0x10003, {2: 4 * factor}, now_ns)
    assert place(placement, flow(1, 2), MS) == 1


def test_only_the_last_interval_counts(placement: Placement) -> None:
    for now_ns, total in ((0, 0), (MS, 10**6), (3 * MS, 10**6 + 1000)):
        placement.counted(1, {1: total}, now_ns)
    assert placement.load_bps(("leaf1", "spine1"), 3 * MS) == 4_000_000


def test_the_first_reading_is_no_load(placement: Placement) -> None:
    placement.counted(1, {1: 10**9}, MS)
    assert placement.load_bps(("leaf1", "spine1"), MS) == 0


def test_a_flow_placed_of_late_counts_a_host_links_rate(placement: Placement) -> None:
    place(placement, flow(1, 2), MS)
    for link in (("leaf1", "spine1"), ("spine1", "leaf2")):
        assert placement.load_bps(link, MS + HOLD_NS - 1) == 100 * GBIT
        assert placement.load_bps(link, MS + HOLD_NS) == 0
    assert place(placement, flow(1, 2, 1), MS + HOLD_NS) == 1


def test_an_answer_is_placed_but_not_counted(placement: Placement) -> None:
    assert place(placement, flow(2, 1, answer=True)) == 1
    assert placement.load_bps(("leaf2", "spine1"), 0) == 0
    assert place(placement, flow(2, 1, 1)) == 1


def test_a_flow_stays_where_it_is_and_has_one_rule(placement: Placement) -> None:
    header = flow(1, 2)
    rule = Rule(
        115, "10.0.2.1/32", out_port=1, ipv4_src="10.0.1.1/32", ip_proto=6, l4_src=20_000, l4_dst=5_000
    )
    assert placement.place(1, header, 0) == (1, rule)
    for now_ns, total in ((0, 0), (MS, 10**9)):
        placement.counted(1, {1: total}, now_ns)
    assert placement.place(1, header, MS) == (1, None)


def test_flows_without_ports_have_a_rule_of_lower_priority(placement: Placement) -> None:
    rule = Rule(110, "10.0.2.1/32", out_port=1, ipv4_src="10.0.1.1/32", ip_proto=1)
    assert placement.place(1, Header("10.0.1.1", "10.0.2.1", 1), 0) == (1, rule)


def test_a_switch_that_lost_its_rules_gets_them_again(placement: Placement) -> None:
    placement.place(1, flow(1, 2), 0)
    placement.place(2, flow(2, 1), 0)
    placement.forget(1)
    again, other = placement.place(1, flow(1, 2), 0), placement.place(2, flow(2, 1), 0)
    assert again is not None
    assert again[1] is not None
    assert other == (1, None)


def test_what_is_for_no_host_is_dropped(placement: Placement) -> None:
    assert placement.place(1, Header("10.0.1.1", "10.0.9.9", 6, 1, 2), 0) is None


def test_another_policy_places_nothing() -> None:
    with pytest.raises(DocumentError, match="^policy ecmp places no flows$"):
        Placement(document(None))


def frame(
    protocol: int, payload: bytes, *, offset: int = 0, ether_type: int = 0x0800, options: bytes = b""
) -> bytes:
    length = 5 + len(options) // 4
    src, dst = socket.inet_aton("10.0.1.1"), socket.inet_aton("10.0.2.1")
    ipv4 = struct.pack("!BBHHHBBH4s4s", 0x40 | length, 0, 0, 0, offset, 64, protocol, 0, src, dst)
    return bytes(12) + struct.pack("!H", ether_type) + ipv4 + options + payload


def tcp(flags: int) -> bytes:
    return struct.pack("!HHIIBBHHH", 20_000, 5_000, 1, 2, 0x50, flags, 0, 0, 0)


UDP = struct.pack("!HHHH", 7, 9, 8, 0)


@pytest.mark.parametrize(
    ("data", "header", "answer"),
    [
        (frame(6, tcp(0x02)), Header("10.0.1.1", "10.0.2.1", 6, 20_000, 5_000), False),
        (frame(6, tcp(0x12)), Header("10.0.1.1", "10.0.2.1", 6, 20_000, 5_000), True),
        (frame(6, tcp(0x52)), Header("10.0.1.1", "10.0.2.1", 6, 20_000, 5_000), True),
        (frame(6, tcp(0x10)), Header("10.0.1.1", "10.0.2.1", 6, 20_000, 5_000), False),
        (frame(6, tcp(0x02), options=bytes(8)), Header("10.0.1.1", "10.0.2.1", 6, 20_000, 5_000), False),
        (frame(17, UDP), Header("10.0.1.1", "10.0.2.1", 17, 7, 9), False),
        (frame(17, UDP, offset=0x2000), Header("10.0.1.1", "10.0.2.1", 17, 7, 9), False),
        (frame(17, UDP, offset=0x00B9), Header("10.0.1.1", "10.0.2.1", 17), False),
        (frame(17, UDP[:7]), Header("10.0.1.1", "10.0.2.1", 17), False),
        (frame(1, bytes(8)), Header("10.0.1.1", "10.0.2.1", 1), False),
    ],
    ids=[
        "syn", "syn-ack", "syn-ack-ece", "ack", "options",
        "udp", "first-fragment", "later-fragment", "cut", "icmp",
    ],
)  # fmt: skip
def test_the_header_of_a_frame(data: bytes, header: Header, answer: bool) -> None:
    found = parse_header(data)
    assert found == header
    assert found is not None
    assert found.answer is answer


@pytest.mark.parametrize("data", [b"", frame(6, b"")[:33], frame(6, tcp(2), ether_type=0x86DD)])
def test_what_is_no_ipv4_has_no_header(data: bytes) -> None:
    assert parse_header(data) is None
