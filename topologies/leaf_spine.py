"""A two-tier leaf-spine (folded Clos) fabric: every leaf is cabled to every spine.

Hosts are named by role: p1, p2, ... prefill, d1, d2, ... decode. Addresses are 10.<hi>.<lo>.<n>/8
with the leaf's number in the second and third byte and the host's slot in the last, so that one
/24 route on a spine covers a leaf.
"""

from __future__ import annotations

from dataclasses import dataclass

from topologies.model import (
    DEST_LANDING,
    DEST_LEAF,
    INTERFACE_NAME_MAX,
    SOURCE_LEAF,
    SOURCE_RAIL,
    SPINE,
    Host,
    Link,
    Switch,
    Topology,
)

HOSTS_PER_LEAF_MAX = 250
"""A leaf's /24 has room for so many hosts."""

LEAVES_MAX = 1000
"""Leaf numbers are spread over two bytes of the address."""


@dataclass(frozen=True)
class LeafSpine:
    """What a leaf-spine fabric is built from.

    `prefill_leaves` and `decode_leaves` hold, for each host of that role in order, the number of
    its leaf (from 1). Rates are bits per second, delays nanoseconds.
    """

    leaves: int
    spines: int
    hosts_per_leaf: int
    host_rate_bps: int
    host_delay_ns: int
    fabric_rate_bps: int
    fabric_delay_ns: int
    prefill_leaves: tuple[int, ...]
    decode_leaves: tuple[int, ...]
    gpus_per_host: int = 1
    rail: Stage | None = None
    landing: Stage | None = None
    slower: tuple[Slower, ...] = ()


@dataclass(frozen=True)
class Stage:
    """The stretch between a GPU and its NIC; `shared` by all GPUs of a host when it goes through memory."""

    rate_bps: int
    delay_ns: int
    shared: bool


@dataclass(frozen=True)
class Slower:
    """One GPU (from 1; 0: every one) of one host whose stage has a rate of its own."""

    host: str
    gpu: int
    rate_bps: int


def build_leaf_spine(spec: LeafSpine) -> Topology:
    """Build the topology of `spec`.

    Ports of a leaf: 1..spines towards the spines, then one for each host slot. Ports of a spine:
    1..leaves. Raises ValueError, with a sentence for the user, when it cannot be built.
    """
    _check_size(spec)
    leaves = [Switch(f"leaf{i}", "leaf", i, i) for i in range(1, spec.leaves + 1)]
    spines = [
        Switch(f"spine{i}", "spine", i, 0x10000 + i) for i in range(1, spec.spines + 1)
    ]
    hosts: list[Host] = []
    links: list[Link] = []
    used = dict.fromkeys(range(1, spec.leaves + 1), 0)
    roles = (("prefill", "p", spec.prefill_leaves), ("decode", "d", spec.decode_leaves))
    for role, letter, placed in roles:
        for number, leaf in enumerate(placed, start=1):
            if leaf not in used:
                raise ValueError(f"there is no leaf {leaf}: the fabric has leaves 1 to {spec.leaves}")
            used[leaf] += 1
            slot = used[leaf]
            if slot > spec.hosts_per_leaf:
                raise ValueError(
                    f"leaf{leaf} has no free port for {letter}{number}: "
                    f"hosts_per_leaf is {spec.hosts_per_leaf}"
                )
            hosts.append(_host(f"{letter}{number}", role, leaf, slot))
            links += _cable(
                hosts[-1].name,
                f"leaf{leaf}",
                (SOURCE_RAIL, DEST_LEAF),
                (0, spec.spines + slot),
                spec.host_rate_bps,
                spec.host_delay_ns,
            )
    for leaf_switch in leaves:
        for spine in spines:
            links += _cable(
                leaf_switch.name,
                spine.name,
                (SOURCE_LEAF, SPINE),
                (spine.index, leaf_switch.index),
                spec.fabric_rate_bps,
                spec.fabric_delay_ns,
            )
    stages = [stage for host in hosts for stage in _stages(host, spec)]
    return Topology(tuple(leaves + spines), tuple(hosts), tuple(links), tuple(stages))


def _stages(host: Host, spec: LeafSpine) -> list[Link]:
    """Return the stages inside a host: those that its role has, or that are slower for it alone."""
    general = spec.rail if host.role == "prefill" else spec.landing
    own = {item.gpu: item.rate_bps for item in spec.slower if item.host == host.name}
    if general and general.shared:
        rate = own.get(0, general.rate_bps)
        return [_stage(host, "mem", rate, general.delay_ns)]
    stages = []
    for gpu in range(1, spec.gpus_per_host + 1):
        rate = own.get(gpu, own.get(0, general.rate_bps if general else 0))
        if rate:
            stages.append(_stage(host, f"g{gpu}", rate, general.delay_ns if general else 0))
    return stages


def _stage(host: Host, end: str, rate_bps: int, delay_ns: int) -> Link:
    inner = f"{host.name}{end}"
    src, dst, segment = (
        (inner, host.name, SOURCE_RAIL) if host.role == "prefill" else (host.name, inner, DEST_LANDING)
    )
    return Link(f"{src}-{dst}", src, dst, segment, rate_bps, delay_ns, 0)


def _check_size(spec: LeafSpine) -> None:
    if spec.hosts_per_leaf > HOSTS_PER_LEAF_MAX:
        raise ValueError(
            f"hosts_per_leaf is {spec.hosts_per_leaf}, but a leaf's /24 has addresses for "
            f"{HOSTS_PER_LEAF_MAX} hosts"
        )
    if spec.leaves > LEAVES_MAX:
        raise ValueError(f"leaves is {spec.leaves}; addresses are reserved for {LEAVES_MAX}")


def _host(name: str, role: str, leaf: int, slot: int) -> Host:
    high, low = leaf >> 8, leaf & 0xFF
    return Host(
        name=name,
        role=role,
        leaf=f"leaf{leaf}",
        ip=f"10.{high}.{low}.{slot}",
        mac=f"02:00:0a:{high:02x}:{low:02x}:{slot:02x}",
    )


def _cable(
    a: str,
    b: str,
    segments: tuple[str, str],
    ports: tuple[int, int],
    rate_bps: int,
    delay_ns: int,
) -> list[Link]:
    there = Link(f"{a}-{b}", a, b, segments[0], rate_bps, delay_ns, ports[0])
    back = Link(f"{b}-{a}", b, a, segments[1], rate_bps, delay_ns, ports[1])
    for link in (there, back):
        if len(link.name) > INTERFACE_NAME_MAX:
            raise ValueError(
                f"the interface name {link.name!r} is {len(link.name)} characters long; "
                f"Linux takes {INTERFACE_NAME_MAX}: use fewer switches or hosts"
            )
    return [there, back]
