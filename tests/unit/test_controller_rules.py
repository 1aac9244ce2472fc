"""The rules of a fabric, and a model of a switch that walks packets through them."""

from __future__ import annotations

import functools
import ipaddress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.document import Document, Host, LeastLoaded, Pin, Port, Switch, parse_document
from controller.ecmp_hash import choose_bucket
from controller.errors import DocumentError
from controller.rules import TO_CONTROLLER, Bucket, Group, Rule, SwitchRules, build_rules

STEP = 0x9E3779B97F4A7C15
FIELDS = ("ipv4_src", "ipv4_dst", "tcp_src", "tcp_dst")


def fabric(leaves: int, spines: int, hosts_per_leaf: int = 2, seed: int = 1) -> Document:
    """A leaf-spine fabric by the numbering of `topologies.leaf_spine`."""
    switches = [Switch(f"leaf{i}", i, "leaf", i) for i in range(1, leaves + 1)]
    switches += [Switch(f"spine{i}", 0x10000 + i, "spine", i) for i in range(1, spines + 1)]
    hosts, ports = [], []
    for leaf in range(1, leaves + 1):
        for slot in range(1, hosts_per_leaf + 1):
            hosts.append(Host(f"h{leaf}-{slot}", f"10.{leaf >> 8}.{leaf & 255}.{slot}", f"leaf{leaf}"))
            ports.append(Port(f"leaf{leaf}", f"h{leaf}-{slot}", spines + slot))
        for spine in range(1, spines + 1):
            ports.append(Port(f"leaf{leaf}", f"spine{spine}", spine))
            ports.append(Port(f"spine{spine}", f"leaf{leaf}", leaf))
    return Document("ecmp", FIELDS, seed, (), None, tuple(switches), tuple(hosts), tuple(ports))


network = functools.cache(ipaddress.ip_network)
built = functools.lru_cache(maxsize=4)(build_rules)


def output(switch: SwitchRules, in_port: int, packet: dict[str, int | str]) -> int | None:
    """The port a switch sends an IPv4 packet out of, None for a drop: OpenFlow's own semantics."""
    matching = [rule for rule in switch.rules if matches(rule, in_port, packet)]
    if not matching:
        return None
    rule = max(matching, key=lambda rule: rule.priority)
    assert [other.priority for other in matching].count(rule.priority) == 1, "two rules, one priority"
    port = rule.out_port
    if rule.group_id is not None:
        (group,) = (group for group in switch.groups if group.group_id == rule.group_id)
        ids = [bucket.bucket_id for bucket in group.buckets]
        chosen = choose_bucket(packet, group.hash_fields, group.hash_seed, ids)
        port = group.buckets[ids.index(chosen)].port
    return None if port == in_port else port  # a switch never sends a packet back by its own port


def matches(rule: Rule, in_port: int, packet: dict[str, int | str]) -> bool:
    src, dst = (ipaddress.ip_address(str(packet[name])) for name in ("ipv4_src", "ipv4_dst"))
    from_there = rule.ipv4_src is None or src in network(rule.ipv4_src)
    return rule.in_port in (None, in_port) and from_there and dst in network(rule.ipv4_dst)


def walk(document: Document, packet: dict[str, int | str], leaf: str, in_port: int) -> list[str]:
    """The names a packet meets: switches, then the host it is delivered to, or `drop`."""
    by_name = {rules.name: rules for rules in built(document).values()}
    ends = {(port.src, port.port): port.dst for port in document.ports}
    back = {(port.src, port.dst): port.port for port in document.ports}
    path = [leaf]
    while path[-1] in by_name:
        assert len(path) <= len(by_name), f"a loop: {path}"
        port = output(by_name[path[-1]], in_port, packet)
        if port is None:
            return [*path, "drop"]
        path.append(ends[path[-1], port])
        in_port = back.get((path[-1], path[-2]), 0)
    return path


def packet_between(src: str, dst: str, flow: int = 0) -> dict[str, int | str]:
    return {"ipv4_src": src, "ipv4_dst": dst, "ip_proto": 6, "tcp_src": 40000 + flow, "tcp_dst": 5000}


@settings(deadline=None, max_examples=40, derandomize=True)
@given(
    leaves=st.integers(1, 6),
    spines=st.integers(1, 5),
    hosts=st.integers(1, 3),
    seed=st.integers(0, 2**64 - 1),
)
def test_every_pair_is_joined_over_at_most_three_switches(
    leaves: int, spines: int, hosts: int, seed: int
) -> None:
    document = fabric(leaves, spines, hosts, seed)
    ports = {(port.src, port.dst): port.port for port in document.ports}
    for src in document.hosts:
        for dst in document.hosts:
            if src == dst:
                continue
            path = walk(document, packet_between(src.ip, dst.ip), src.leaf, ports[src.leaf, src.name])
            assert path[-1] == dst.name
            if src.leaf == dst.leaf:
                assert path[:-1] == [src.leaf]
            else:
                assert path[0] == src.leaf
                assert path[2] == dst.leaf
                assert path[1].startswith("spine")
                assert len(path) == 4


@pytest.mark.parametrize("leaf_number", [255, 256, 300, 1000])
def test_leaf_numbers_over_a_byte_have_their_own_prefix(leaf_number: int) -> None:
    document = fabric(leaf_number, 1, 1)
    spine = build_rules(document)[0x10001]
    prefix = f"10.{leaf_number >> 8}.{leaf_number & 255}.0/24"
    assert [rule for rule in spine.rules if rule.ipv4_dst == prefix] == [
        Rule(200, prefix, out_port=leaf_number)
    ]


def test_the_rules_of_a_leaf_and_a_spine() -> None:
    rules = build_rules(fabric(2, 2, seed=7))
    assert list(rules) == [1, 2, 0x10001, 0x10002]
    assert rules[1] == SwitchRules(
        "leaf1",
        1,
        (Group(1, (Bucket(1, 1), Bucket(2, 2)), FIELDS, 7 + STEP),),
        (
            Rule(200, "10.0.1.1/32", out_port=3),
            Rule(200, "10.0.1.2/32", out_port=4),
            Rule(150, "10.0.0.0/8", in_port=1),
            Rule(150, "10.0.0.0/8", in_port=2),
            Rule(100, "10.0.0.0/8", group_id=1),
        ),
    )
    assert rules[0x10002] == SwitchRules(
        "spine2",
        0x10002,
        (),
        (Rule(200, "10.0.1.0/24", out_port=1), Rule(200, "10.0.2.0/24", out_port=2)),
    )


def test_a_single_leaf_has_no_group() -> None:
    for spines in (0, 2):
        leaf = build_rules(fabric(1, spines, 1))[1]
        assert leaf.groups == ()
        assert leaf.rules == (Rule(200, "10.0.1.1/32", out_port=spines + 1),)


@pytest.mark.parametrize(
    ("dst", "leaf", "in_port", "expected"),
    [
        ("10.0.2.99", "leaf1", 3, ["leaf1", "spine", "leaf2", "drop"]),
        ("10.0.1.99", "leaf1", 3, ["leaf1", "spine", "drop"]),
        ("10.0.77.1", "leaf1", 3, ["leaf1", "spine", "drop"]),
        ("10.0.2.1", "leaf1", 1, ["leaf1", "drop"]),
        ("192.0.2.1", "leaf1", 3, ["leaf1", "drop"]),
    ],
    ids=["no-such-host", "no-such-local-host", "no-such-leaf", "down-from-a-spine", "outside"],
)
def test_what_is_for_no_host_is_dropped(dst: str, leaf: str, in_port: int, expected: list[str]) -> None:
    path = walk(fabric(2, 2), packet_between("10.0.1.1", dst), leaf, in_port)
    assert [name.rstrip("12") if name.startswith("spine") else name for name in path] == expected


def test_flows_of_one_pair_use_every_spine() -> None:
    document = fabric(2, 4)
    paths = {walk(document, packet_between("10.0.1.1", "10.0.2.1", i), "leaf1", 5)[1] for i in range(100)}
    assert paths == {"spine1", "spine2", "spine3", "spine4"}


def pinned(*pins: Pin) -> Document:
    return replace(fabric(3, 4), policy="pinned", pinned=pins)


def test_pinned_flows_take_their_spine_and_the_others_the_hashs() -> None:
    document = pinned(Pin("h1-1", "h2-1", "spine3"), Pin("h1-1", None, "spine4"))
    hashed = replace(document, pinned=())
    for flow in range(50):
        for src, dst, spine in (
            ("10.0.1.1", "10.0.2.1", "spine3"),
            ("10.0.1.1", "10.0.2.2", "spine4"),
            ("10.0.1.1", "10.0.3.1", "spine4"),
        ):
            assert walk(document, packet_between(src, dst, flow), "leaf1", 5)[1] == spine
        for dst in ("10.0.2.1", "10.0.3.2"):
            packet = packet_between("10.0.1.2", dst, flow)
            assert walk(document, packet, "leaf1", 6) == walk(hashed, packet, "leaf1", 6)


def test_a_pinned_source_still_reaches_its_own_leaf() -> None:
    packet = packet_between("10.0.1.1", "10.0.1.2")
    assert walk(pinned(Pin("h1-1", None, "spine4")), packet, "leaf1", 5) == ["leaf1", "h1-2"]


def test_only_the_sources_leaf_has_the_pinned_rules() -> None:
    rules = build_rules(pinned(Pin("h1-1", "h2-1", "spine3"), Pin("h1-1", None, "spine4")))
    added = {s.name: [r for r in s.rules if r.ipv4_src is not None] for s in rules.values()}
    assert added.pop("leaf1") == [
        Rule(130, "10.0.2.1/32", ipv4_src="10.0.1.1/32", out_port=3),
        Rule(120, "10.0.0.0/8", ipv4_src="10.0.1.1/32", out_port=4),
    ]
    assert not any(added.values())


def seeds(policy: str) -> list[int]:
    rules = build_rules(replace(fabric(4, 2, seed=2**64 - 1), policy=policy)).values()
    return [group.hash_seed for switch in rules for group in switch.groups]


def test_every_leaf_has_a_seed_of_its_own_unless_polarised() -> None:
    assert seeds("ecmp") == [number * STEP % 2**64 - 1 for number in range(1, 5)]
    assert seeds("pinned") == seeds("ecmp")
    assert seeds("polarised") == 4 * [2**64 - 1]


def test_least_loaded_asks_the_controller_instead_of_a_group() -> None:
    balanced = replace(fabric(2, 2, 1), policy="least-loaded", least_loaded=LeastLoaded(1, 1, 1))
    rules = build_rules(balanced)
    assert rules[1].groups == ()
    assert rules[1].rules == (
        Rule(200, "10.0.1.1/32", out_port=3),
        Rule(150, "10.0.0.0/8", in_port=1),
        Rule(150, "10.0.0.0/8", in_port=2),
        Rule(105, "10.0.0.0/8", out_port=TO_CONTROLLER, ip_proto=6, syn=True),
        Rule(100, "10.0.0.0/8", out_port=TO_CONTROLLER),
    )
    assert rules[0x10001] == build_rules(fabric(2, 2, 1))[0x10001]


def spines_to_one_host(policy: str, fields: tuple[str, ...]) -> set[str]:
    document = replace(fabric(9, 4), policy=policy, hash_fields=fields)
    packets = [(leaf, packet_between(f"10.0.{leaf}.1", "10.0.9.1", leaf)) for leaf in range(1, 9)]
    return {walk(document, packet, f"leaf{leaf}", 5)[1] for leaf, packet in packets}


def test_polarised_flows_to_one_host_meet_on_one_spine() -> None:
    # The same fields with a seed for each leaf spread; one seed with the sender's fields does so as well.
    assert len(spines_to_one_host("polarised", ("ipv4_dst", "tcp_dst"))) == 1
    assert len(spines_to_one_host("ecmp", ("ipv4_dst", "tcp_dst"))) > 1
    assert len(spines_to_one_host("polarised", FIELDS)) > 1


def broken(**changes: Any) -> Document:
    return replace(fabric(2, 1), **changes)


FABRIC = fabric(2, 1)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            broken(policy="spray"),
            "policy: 'spray' is not known, expected ecmp, pinned, polarised, least-loaded",
        ),
        (
            broken(ports=tuple(port for port in FABRIC.ports if port.dst != "h1-1")),
            "links: leaf1 has no port to h1-1",
        ),
        (
            broken(ports=tuple(p for p in FABRIC.ports if (p.src, p.dst) != ("spine1", "leaf2"))),
            "links: spine1 has no port to leaf2",
        ),
        (
            broken(ports=tuple(port for port in FABRIC.ports if port.dst != "spine1")),
            "leaf1 has no link to a spine and cannot reach the other leaves",
        ),
        (
            broken(hosts=(Host("a", "10.0.1.1", "leaf1"), Host("b", "10.0.1.2", "leaf2"))),
            "10.0.1.0/24 has hosts on leaf1 and on leaf2: a /24 is one leaf's",
        ),
        (
            broken(hosts=(Host("a", "192.0.2.1", "leaf1"),)),
            "a has the address 192.0.2.1, expected one of 10.0.0.0/8",
        ),
    ],
    ids=["policy", "host-port", "spine-port", "no-uplink", "shared-24", "outside"],
)
def test_a_fabric_that_cannot_be_served_is_refused(document: Document, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        build_rules(document)
    assert str(caught.value) == message


def test_the_document_of_a_policy_that_is_not_known_is_refused() -> None:
    with pytest.raises(DocumentError) as caught:
        parse_document(
            {
                "format_version": 2,
                "policy": "spray",
                "hash_fields": [],
                "hash_seed": 0,
                "pinned": [],
                "least_loaded": None,
                "switches": [],
                "hosts": [],
                "links": [],
            }
        )
    assert str(caught.value) == "policy: 'spray' is not known, expected ecmp, pinned, polarised, least-loaded"
