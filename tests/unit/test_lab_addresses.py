"""What hosts are told over rtnetlink, against bytes worked out by hand from the kernel's structs."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from testbed.lab.addresses import address, gso_max_segs, link_up, neighbour, route
from testbed.lab.netlink import Netlink, attribute

CREATE_EXCL = 0x600


def test_a_link_is_started_with_one_segment_per_packet() -> None:
    command = link_up("p1-leaf1", 7, gso_max_segs=1)
    # ifinfomsg: family, type, index, flags IFF_UP, change IFF_UP; IFLA_GSO_MAX_SEGS (40) = 1.
    assert command.body.hex() == "00000000" + "07000000" + "01000000" + "01000000" + "0800280001000000"
    assert (command.kind, command.flags, command.what) == (16, 0, "starting p1-leaf1")
    assert link_up("lo", 1).body.hex() == "00000000" + "01000000" + "01000000" + "01000000"


def test_an_address_is_one_hosts() -> None:
    command = address("p1-leaf1", 7, "10.0.1.2")
    # ifaddrmsg: AF_INET, /32, flags, scope, index; IFA_LOCAL (2), IFA_ADDRESS (1).
    assert command.body.hex() == "02200000" + "07000000" + "080002000a000102" + "080001000a000102"
    assert (command.kind, command.flags, command.what) == (20, CREATE_EXCL, "address 10.0.1.2 of p1-leaf1")


@pytest.mark.parametrize(("metric", "tail"), [(0, ""), (1, "0800060001000000")])
def test_a_route_has_the_shortest_timeout(metric: int, tail: str) -> None:
    command = route("p1-leaf1", 7, "10.0.0.0/8", source="10.0.1.2", rto_min_ms=5, metric=metric)
    # rtmsg: AF_INET, /8, 0, 0, main, boot, link, unicast, flags; RTA_DST (1), RTA_OIF (4), RTA_PREFSRC (7),
    # RTA_METRICS (8) with RTAX_LOCK (1) of bit 13 and RTAX_RTO_MIN (13), RTA_PRIORITY (6).
    assert command.body.hex() == (
        "02080000fe03fd01" + "00000000" + "080001000a000000" + "0800040007000000" + "080007000a000102"
        "14000800" + "0800010000200000" + "08000d0005000000" + tail
    )
    assert (command.kind, command.flags) == (24, CREATE_EXCL)
    assert command.what == "route to 10.0.0.0/8 over p1-leaf1"


def test_a_neighbour_stays() -> None:
    command = neighbour("p1-leaf1", 7, "10.0.3.1", "02:00:0a:00:03:01")
    # ndmsg: AF_INET, index, NUD_PERMANENT, flags, type; NDA_DST (1), NDA_LLADDR (2), padded.
    assert command.body.hex() == (
        "02000000" + "07000000" + "80000000" + "080001000a000301" + "0a00020002000a0003010000"
    )
    assert (command.kind, command.flags) == (28, CREATE_EXCL)
    assert command.what == "neighbour 10.0.3.1 of p1-leaf1"


class Answering(Netlink):
    """Answers every request with one link's description."""

    def __init__(self, *parts: bytes) -> None:
        body = struct.pack("=BxHiII", 0, 1, 7, 1, 0) + b"".join(parts)
        self.answer = struct.pack("=IHHII", 16 + len(body), 16, 0, 1, 0) + body
        self.asked = b""

    def request(self, message: bytes) -> Iterator[tuple[memoryview, int]]:
        self.asked = message
        yield memoryview(self.answer), len(self.answer)


def test_how_many_segments_a_link_takes() -> None:
    name = attribute(3, b"p1-leaf1\0")
    netlink = Answering(name, attribute(40, struct.pack("=I", 65_535)))
    assert gso_max_segs(netlink, 7) == 65_535
    # RTM_GETLINK, REQUEST | ECHO; ifinfomsg of interface 7.
    assert netlink.asked.hex() == "20000000120009000100000000000000" + "00000000" + "07000000" + "00" * 8
    assert gso_max_segs(Answering(name), 7) is None
