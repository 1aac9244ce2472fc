"""A two-tier leaf-spine (folded Clos) fabric: every leaf is cabled to every spine.

Hosts are named by role: p1, p2, ... prefill, d1, d2, ... decode, s1, s2, ... store, and the NICs of one
that has several p1n1, p1n2, ... Addresses are 10.<hi>.<lo>.<n>/8 with the leaf's number in the second and
third byte and the NIC's slot in the last, so that one /24 route on a spine covers a leaf.
"""

from __future__ import annotations

from dataclasses import dataclass

from topologies.model import (
    DEST_LANDING,
    DEST_LEAF,
    FAR,
    INTERFACE_NAME_MAX,
    MEMORY,
    SOURCE_LEAF,
    SOURCE_RAIL,
    SPINE,
    Host,
    Link,
    Nic,
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

    `prefill_leaves`, `decode_leaves` and `store_leaves` hold, for each host of that role in order, the
    number of its leaf (from 1). Rates are bits per second, delays nanoseconds.

    A host's NICs all hang on its leaf, or NIC i on leaf i where `rail_optimised`. `affinity` has the NIC
    (from 1) of each GPU; empty: the GPUs in equal blocks. `rail` and `landing` are the ways between a GPU
    and its own NIC, `far_rail` and `far_landing` those between a GPU and another NIC, which exist where
    `crossings` names host, GPU and NIC.
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
    nics_per_host: int = 1
    rail_optimised: bool = False
    affinity: tuple[int, ...] = ()
    far_rail: Stage | None = None
    far_landing: Stage | None = None
    crossings: tuple[tuple[str, int, int], ...] = ()
    store_leaves: tuple[int, ...] = ()

    @property
    def nic_of_gpu(self) -> tuple[int, ...]:
        """The NIC (from 1) of each GPU."""
        blocks = (gpu * self.nics_per_host // self.gpus_per_host + 1 for gpu in range(self.gpus_per_host))
        return self.affinity or tuple(blocks)


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
    spines = [Switch(f"spine{i}", "spine", i, 0x10000 + i) for i in range(1, spec.spines + 1)]
    hosts = _hosts(spec)
    links: list[Link] = []
    for nic in (nic for host in hosts for nic in host.nics):
        port = spec.spines + _slot(nic)
        ends = (SOURCE_RAIL, DEST_LEAF), (0, port)
        links += _cable(nic.name, nic.leaf, *ends, spec.host_rate_bps, spec.host_delay_ns)
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


def _hosts(spec: LeafSpine) -> list[Host]:
    used = dict.fromkeys(range(1, spec.leaves + 1), 0)
    roles = (
        ("prefill", "p", spec.prefill_leaves),
        ("decode", "d", spec.decode_leaves),
        ("store", "s", spec.store_leaves),
    )
    return [
        _host(f"{letter}{number}", role, leaf, spec, used)
        for role, letter, placed in roles
        for number, leaf in enumerate(placed, start=1)
    ]


def _host(name: str, role: str, leaf: int, spec: LeafSpine, used: dict[int, int]) -> Host:
    """Return a host whose NICs take the next free slots; `used` counts those of each leaf."""
    nics = []
    for number in range(1, spec.nics_per_host + 1):
        own = number if spec.rail_optimised else leaf
        if own not in used:
            raise ValueError(f"there is no leaf {own}: the fabric has leaves 1 to {spec.leaves}")
        used[own] += 1
        node = name if spec.nics_per_host == 1 else f"{name}n{number}"
        if used[own] > spec.hosts_per_leaf:
            raise ValueError(
                f"leaf{own} has no free port for {node}: hosts_per_leaf is {spec.hosts_per_leaf}"
            )
        nics.append(_nic(node, name, role, own, used[own]))
    return Host(name, role, tuple(nics), spec.nic_of_gpu)


def _nic(name: str, host: str, role: str, leaf: int, slot: int) -> Nic:
    high, low = leaf >> 8, leaf & 0xFF
    ip, mac = f"10.{high}.{low}.{slot}", f"02:00:0a:{high:02x}:{low:02x}:{slot:02x}"
    return Nic(name, host, role, f"leaf{leaf}", ip, mac)


def _slot(nic: Nic) -> int:
    return int(nic.ip.rpartition(".")[2])


def _stages(host: Host, spec: LeafSpine) -> list[Link]:
    """Return the stages inside a host: those that its role has, or that are slower for it alone."""
    if host.role == "store":
        return []  # its memory is as fast as its NICs
    near, far = (spec.rail, spec.far_rail) if host.role == "prefill" else (spec.landing, spec.far_landing)
    stages = []
    for number, nic in enumerate(host.nics, start=1):
        own = [gpu for gpu, to in enumerate(host.affinity, start=1) if to == number]
        others = [gpu for name, gpu, to in spec.crossings if (name, to) == (host.name, number)]
        stages += _stages_to(nic, near, MEMORY, own, spec)
        stages += _stages_to(nic, far, FAR, sorted(set(others) - set(own)), spec)
    return stages


def _stages_to(nic: Nic, general: Stage | None, shared: str, gpus: list[int], spec: LeafSpine) -> list[Link]:
    """Return the stages between some GPUs and a NIC: one that they share, or one for each."""
    slower = {item.gpu: item.rate_bps for item in spec.slower if item.host == nic.host}
    ends = {gpu: f"g{gpu}" for gpu in gpus}
    if general and general.shared and gpus:
        ends = {0: shared}
    rates = {end: _rate_bps(general, slower.get(gpu, slower.get(0)), shared) for gpu, end in ends.items()}
    delay_ns = general.delay_ns if general else 0
    return [_stage(nic, end, rate, delay_ns) for end, rate in rates.items() if rate]


def _rate_bps(general: Stage | None, slower_bps: int | None, shared: str) -> int:
    """Return a stage's rate, 0 for none. A far way is no faster than the own one."""
    rates = [rate for rate in (slower_bps, general.rate_bps if general else None) if rate]
    if shared == FAR:
        return min(rates, default=0)
    return rates[0] if rates else 0


def _stage(nic: Nic, end: str, rate_bps: int, delay_ns: int) -> Link:
    inner = f"{nic.host}{end}"
    src, dst, segment = (
        (inner, nic.name, SOURCE_RAIL) if nic.role == "prefill" else (nic.name, inner, DEST_LANDING)
    )
    stage = Link(f"{src}-{dst}", src, dst, segment, rate_bps, delay_ns, 0)
    if nic.name != nic.host:
        _check_name(stage.name)
    return stage


def _check_size(spec: LeafSpine) -> None:
    if spec.hosts_per_leaf > HOSTS_PER_LEAF_MAX:
        raise ValueError(
            f"hosts_per_leaf is {spec.hosts_per_leaf}, but a leaf's /24 has addresses for "
            f"{HOSTS_PER_LEAF_MAX} hosts"
        )
    if spec.leaves > LEAVES_MAX:
        raise ValueError(f"leaves is {spec.leaves}; addresses are reserved for {LEAVES_MAX}")


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
        _check_name(link.name)
    return [there, back]


def _check_name(name: str) -> None:
    if len(name) > INTERFACE_NAME_MAX:
        raise ValueError(
            f"the interface name {name!r} is {len(name)} characters long; "
            f"Linux takes {INTERFACE_NAME_MAX}: use fewer switches or hosts"
        )
