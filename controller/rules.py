"""The forwarding rules of a leaf-spine fabric: pure values, no framework, no switch.

`build_rules` turns a checked document into groups and rules for each switch; `controller.messages`
turns those into OpenFlow. Nothing is learnt from packets, and what no rule matches is dropped:

* a leaf sends a packet for one of its own hosts out of that host's port;
* what came up from a host and is for another leaf goes to SELECT group 1 over the uplinks, hashed with
  the leaf's own seed (`polarised`: with one seed for all leaves);
* with `least-loaded` it goes to the controller instead, which answers with a rule for its flow
  (`controller.placement`). TCP's SYN has a rule of its own for that: the datapath remembers for up to
  5 ms that packets like this one go the slow way, and what follows the SYN must not be like it;
* with `pinned`, what a listed source sends to a listed host, or to all, goes out of one uplink before that;
* what came down from a spine and is for no local host is dropped, or a packet for an address that
  does not exist would be sent up again and circle for ever. These are rules of their own, one for
  each uplink, rather than an in_port in the group's rule, which would need one for each host: there
  are fewer of them, and their counters show whether it ever happens;
* a spine sends each leaf's /24 to that leaf's port.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from controller.document import POLICIES, Document, Host, Pin, Switch
from controller.ecmp_hash import leaf_seed
from controller.errors import DocumentError

FABRIC = "10.0.0.0/8"
"""All hosts' addresses."""

UPLINK_GROUP = 1
LOCAL_PRIORITY = 200
FROM_SPINE_PRIORITY = 150
PINNED_PAIR_PRIORITY = 130
PINNED_SOURCE_PRIORITY = 120
PLACED_PRIORITY = 115
PLACED_HOSTS_PRIORITY = 110
SYN_PRIORITY = 105
UPLINK_PRIORITY = 100

TO_CONTROLLER = 0xFFFFFFFD
"""The port number that stands for the controller (OFPP_CONTROLLER)."""


@dataclass(frozen=True)
class Bucket:
    """One choice of a group: out of `port`. The id is what the switch hashes to compare choices."""

    bucket_id: int
    port: int


@dataclass(frozen=True)
class Group:
    """A SELECT group of equal weights; `hash_fields` of the flow, seeded by `hash_seed`, choose."""

    group_id: int
    buckets: tuple[Bucket, ...]
    hash_fields: tuple[str, ...]
    hash_seed: int


@dataclass(frozen=True)
class Rule:
    """IPv4 to `ipv4_dst` (address/prefix), as far as the other fields are given, goes to a port or a group.

    `syn` takes only what opens or answers a TCP connection. With neither `out_port` nor `group_id` the
    packet is dropped.
    """

    priority: int
    ipv4_dst: str
    in_port: int | None = None
    out_port: int | None = None
    group_id: int | None = None
    ipv4_src: str | None = None
    ip_proto: int | None = None
    l4_src: int | None = None
    l4_dst: int | None = None
    syn: bool = False


_ASK = (
    Rule(SYN_PRIORITY, FABRIC, out_port=TO_CONTROLLER, ip_proto=socket.IPPROTO_TCP, syn=True),
    Rule(UPLINK_PRIORITY, FABRIC, out_port=TO_CONTROLLER),
)


@dataclass(frozen=True)
class SwitchRules:
    """All that one switch is given."""

    name: str
    dpid: int
    groups: tuple[Group, ...]
    rules: tuple[Rule, ...]


def build_rules(document: Document) -> dict[int, SwitchRules]:
    """Return each switch's groups and rules by its dpid, in the document's order.

    Raises DocumentError where the fabric cannot be served: a host or leaf without a port, a leaf with
    no way to the other leaves, two leaves with hosts in one /24, an address outside 10.0.0.0/8.
    """
    if document.policy not in POLICIES:
        raise DocumentError(f"policy: {document.policy!r} is not known, expected {', '.join(POLICIES)}")
    prefixes = _leaf_prefixes(document)
    ports: dict[str, dict[str, int]] = {switch.name: {} for switch in document.switches}
    for port in document.ports:
        ports[port.src][port.dst] = port.port
    built = {}
    for switch in document.switches:
        own = ports[switch.name]
        built[switch.dpid] = (
            _leaf(document, switch, own) if switch.tier == "leaf" else _spine(switch, own, prefixes)
        )
    return built


def _leaf_prefixes(document: Document) -> dict[str, str]:
    """Return the leaf of each /24 that has hosts."""
    prefixes: dict[str, str] = {}
    for host in document.hosts:
        prefix = _prefix24(host)
        if prefixes.setdefault(prefix, host.leaf) != host.leaf:
            raise DocumentError(
                f"{prefix} has hosts on {prefixes[prefix]} and on {host.leaf}: a /24 is one leaf's"
            )
    return prefixes


def _prefix24(host: Host) -> str:
    if not host.ip.startswith("10."):
        raise DocumentError(f"{host.name} has the address {host.ip}, expected one of {FABRIC}")
    return host.ip.rpartition(".")[0] + ".0/24"


def _leaf(document: Document, leaf: Switch, ports: Mapping[str, int]) -> SwitchRules:
    local = [
        Rule(LOCAL_PRIORITY, f"{host.ip}/32", out_port=_port(leaf, ports, host.name))
        for host in document.hosts
        if host.leaf == leaf.name
    ]
    if sum(switch.tier == "leaf" for switch in document.switches) == 1:
        return SwitchRules(leaf.name, leaf.dpid, (), tuple(local))
    uplinks = _uplinks(document, leaf, ports)
    guard = [Rule(FROM_SPINE_PRIORITY, FABRIC, in_port=port) for port in uplinks]
    if document.policy == "least-loaded":
        return SwitchRules(leaf.name, leaf.dpid, (), (*local, *guard, *_ASK))
    up = Rule(UPLINK_PRIORITY, FABRIC, group_id=UPLINK_GROUP)
    # A bucket has its port's number, so that the chosen bucket reads as the uplink it is.
    buckets = tuple(Bucket(port, port) for port in uplinks)
    group = Group(UPLINK_GROUP, buckets, document.hash_fields, _seed(document, leaf))
    return SwitchRules(leaf.name, leaf.dpid, (group,), (*local, *guard, *_pinned(document, leaf, ports), up))


def _seed(document: Document, leaf: Switch) -> int:
    polarised = document.policy == "polarised"
    return document.hash_seed if polarised else leaf_seed(document.hash_seed, leaf.index)


def _pinned(document: Document, leaf: Switch, ports: Mapping[str, int]) -> list[Rule]:
    hosts = {host.name: host for host in document.hosts}
    pins = [pin for pin in document.pinned if hosts[pin.src].leaf == leaf.name]
    return [_pin_rule(pin, hosts, _port(leaf, ports, pin.spine)) for pin in pins]


def _pin_rule(pin: Pin, hosts: Mapping[str, Host], port: int) -> Rule:
    source = f"{hosts[pin.src].ip}/32"
    if pin.dst is None:
        return Rule(PINNED_SOURCE_PRIORITY, FABRIC, ipv4_src=source, out_port=port)
    return Rule(PINNED_PAIR_PRIORITY, f"{hosts[pin.dst].ip}/32", ipv4_src=source, out_port=port)


def _uplinks(document: Document, leaf: Switch, ports: Mapping[str, int]) -> list[int]:
    spines = [switch.name for switch in document.switches if switch.tier == "spine"]
    uplinks = sorted(ports[spine] for spine in spines if spine in ports)
    if not uplinks:
        raise DocumentError(f"{leaf.name} has no link to a spine and cannot reach the other leaves")
    return uplinks


def _spine(spine: Switch, ports: Mapping[str, int], prefixes: Mapping[str, str]) -> SwitchRules:
    rules = tuple(
        Rule(LOCAL_PRIORITY, prefix, out_port=_port(spine, ports, leaf)) for prefix, leaf in prefixes.items()
    )
    return SwitchRules(spine.name, spine.dpid, (), rules)


def _port(switch: Switch, ports: Mapping[str, int], to: str) -> int:
    if to not in ports:
        raise DocumentError(f"links: {switch.name} has no port to {to}")
    return ports[to]
