"""The bucket Open vSwitch will choose. `tests/lab/test_controller_ovs.py` asks a running switch.

The expected buckets are what `ofproto/trace` of Open vSwitch 3.1.0 (Debian 12, x86-64) says for a
group of four buckets with the ids 1 to 4.
"""

from __future__ import annotations

import re

import pytest

from controller.ecmp_hash import choose_bucket, flow_basis, leaf_seed

PORTS = ("ipv4_src", "ipv4_dst", "tcp_src", "tcp_dst")
UDP = ("ip_proto", "udp_src", "ipv4_dst")
TCP_FLOW: dict[str, int | str] = {
    "ipv4_src": "10.0.1.1",
    "ipv4_dst": "10.0.2.1",
    "ip_proto": 6,
    "tcp_src": 40000,
    "tcp_dst": 5000,
}
NEXT_TCP_FLOW: dict[str, int | str] = {**TCP_FLOW, "tcp_src": 40001}
UDP_FLOW: dict[str, int | str] = {
    "ipv4_src": "10.0.1.1",
    "ipv4_dst": "10.0.3.1",
    "ip_proto": 17,
    "udp_src": 49152,
    "udp_dst": 4791,
}


@pytest.mark.parametrize(
    ("seed", "hash_fields", "flow", "bucket"),
    [
        (0, PORTS, TCP_FLOW, 2),
        (0, PORTS, NEXT_TCP_FLOW, 1),
        (0, PORTS, UDP_FLOW, 1),
        (1, PORTS, TCP_FLOW, 3),
        (1, PORTS, NEXT_TCP_FLOW, 2),
        (1, PORTS, UDP_FLOW, 1),
        (2**64 - 1, UDP, TCP_FLOW, 3),
        (2**64 - 1, UDP, NEXT_TCP_FLOW, 3),
        (2**64 - 1, UDP, UDP_FLOW, 1),
    ],
)
def test_the_bucket_is_the_switchs(
    seed: int, hash_fields: tuple[str, ...], flow: dict[str, int | str], bucket: int
) -> None:
    assert choose_bucket(flow, hash_fields, seed, (1, 2, 3, 4)) == bucket


def test_every_leaf_has_its_own_seed() -> None:
    assert leaf_seed(0, 1) == 0x9E3779B97F4A7C15
    assert leaf_seed(2**64 - 1, 2) == 2 * 0x9E3779B97F4A7C15 % 2**64 - 1
    assert len({leaf_seed(5, number) for number in range(1, 1001)}) == 1000


def test_leaves_choose_independently() -> None:
    same = sum(
        choose_bucket({**TCP_FLOW, "tcp_src": port}, PORTS, leaf_seed(1, 1), (1, 2, 3, 4))
        == choose_bucket({**TCP_FLOW, "tcp_src": port}, PORTS, leaf_seed(1, 2), (1, 2, 3, 4))
        for port in range(1000)
    )
    # One in four agrees by chance; five standard deviations (13.7) are never met.
    assert abs(same - 250) < 5 * 13.7


def test_the_order_of_the_hash_fields_does_not_matter() -> None:
    assert flow_basis(TCP_FLOW, PORTS, 5) == flow_basis(TCP_FLOW, PORTS[::-1], 5)


def test_numbers_and_text_are_the_same_address() -> None:
    as_numbers = {**TCP_FLOW, "ipv4_src": 0x0A000101, "ipv4_dst": 0x0A000201}
    assert flow_basis(as_numbers, PORTS, 5) == flow_basis(TCP_FLOW, PORTS, 5)
    mac = {"eth_src": "02:00:0a:00:01:01"}
    assert flow_basis(mac, ["eth_src"], 5) == flow_basis({"eth_src": 0x02000A000101}, ["eth_src"], 5)


def test_ports_of_another_protocol_are_left_out() -> None:
    assert flow_basis(UDP_FLOW, PORTS, 5) == flow_basis(UDP_FLOW, PORTS[:2], 5)
    assert flow_basis(TCP_FLOW, PORTS, 5) != flow_basis(TCP_FLOW, PORTS[:2], 5)


def test_removing_a_bucket_moves_only_its_own_flows() -> None:
    for port in range(200):
        flow = {**TCP_FLOW, "tcp_src": port}
        before = choose_bucket(flow, PORTS, 9, (1, 2, 3, 4))
        after = choose_bucket(flow, PORTS, 9, (1, 2, 4))
        assert after == before or before == 3


def test_equal_scores_go_to_the_later_bucket() -> None:
    # The same id twice has the same score; only the position tells them apart.
    class Same(int):
        pass

    first, second = Same(7), Same(7)
    assert choose_bucket(TCP_FLOW, PORTS, 0, [first, second]) is second


@pytest.mark.parametrize(
    ("flow", "hash_fields", "buckets", "message"),
    [
        (TCP_FLOW, PORTS, (), "a group without buckets forwards nothing"),
        (
            TCP_FLOW,
            ("nw_src",),
            (1,),
            "'nw_src' is no hash field, expected some of eth_src, eth_dst, eth_type, ipv4_src, ipv4_dst, "
            "ip_proto, tcp_src, tcp_dst, udp_src, udp_dst",
        ),
        ({"ip_proto": 6}, ("tcp_src",), (1,), "the flow has no value for the hash field tcp_src"),
        ({"tcp_src": 6}, ("tcp_src",), (1,), "the flow needs ip_proto to know whether it has tcp_src"),
    ],
    ids=["no-buckets", "unknown", "no-value", "no-protocol"],
)
def test_what_cannot_be_hashed_is_refused(
    flow: dict[str, int | str], hash_fields: tuple[str, ...], buckets: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        choose_bucket(flow, hash_fields, 0, buckets)
