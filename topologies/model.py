"""The vocabulary of every topology: hosts, switches and directed links.

A cable is two `Link`s, one for each direction, because each direction has a queue of its own. A
link is named `<from>-<to>`, and so is the network interface it leaves through: the queue of link
`leaf3-d1` is the qdisc of interface `leaf3-d1` on `leaf3`.
"""

from __future__ import annotations

from dataclasses import dataclass

INTERFACE_NAME_MAX = 15
"""Longest interface name Linux takes (IFNAMSIZ - 1)."""

SOURCE_RAIL = "source-rail"
SOURCE_LEAF = "source-leaf"
SPINE = "spine"
DEST_LEAF = "dest-leaf"
DEST_LANDING = "dest-landing"
SEGMENTS = (SOURCE_RAIL, SOURCE_LEAF, SPINE, DEST_LEAF, DEST_LANDING)
"""The five stretches of a transfer's path, in its order."""


Path = tuple[str, ...]
"""Names of links in the order in which a packet takes them."""


@dataclass(frozen=True)
class Switch:
    """A switch: `tier` is `leaf` or `spine`, `index` counts from 1 within the tier."""

    name: str
    tier: str
    index: int
    dpid: int


@dataclass(frozen=True)
class Host:
    """A server: `role` is `prefill` or `decode`; `leaf` names its switch."""

    name: str
    role: str
    leaf: str
    ip: str
    mac: str


@dataclass(frozen=True)
class Link:
    """One direction of a cable.

    `rate_bps` is in bits per second as the queue counts them (Ethernet header included, preamble,
    gap and FCS not), `delay_ns` the one-way propagation delay. `port` is the OpenFlow port number
    at `src`, 0 where `src` is a host.
    """

    name: str
    src: str
    dst: str
    segment: str
    rate_bps: int
    delay_ns: int
    port: int


@dataclass(frozen=True)
class Topology:
    """A fabric with its hosts.

    `links` holds both directions of every cable, in a fixed order. `stages` are the stretches inside
    hosts that are slower than the NIC: `p1g2-p1` from GPU 2 of p1 to its NIC, `d1-d1g1` from d1's NIC
    to its GPU 1, and `p1mem-p1` where all GPUs of a host go through its memory.
    """

    switches: tuple[Switch, ...]
    hosts: tuple[Host, ...]
    links: tuple[Link, ...]
    stages: tuple[Link, ...] = ()

    @property
    def all_links(self) -> tuple[Link, ...]:
        """Cables and stages: everything with a queue of its own."""
        return self.links + self.stages

    def link(self, name: str) -> Link:
        """Return the link or stage called `name`; KeyError when there is none."""
        for link in self.all_links:
            if link.name == name:
                return link
        raise KeyError(name)

    def host(self, name: str) -> Host:
        """Return the host called `name`; KeyError when there is none."""
        for host in self.hosts:
            if host.name == name:
                return host
        raise KeyError(name)

    def rail(self, host: str, gpu: int) -> Link | None:
        """Return the stage from a GPU (from 1) to the host's NIC, None where the NIC is the slower one."""
        return self._stage((f"{host}g{gpu}-{host}", f"{host}mem-{host}"))

    def landing(self, host: str, gpu: int) -> Link | None:
        """Return the stage from the host's NIC to a GPU (from 1), None where the NIC is the slower one."""
        return self._stage((f"{host}-{host}g{gpu}", f"{host}-{host}mem"))

    def _stage(self, names: tuple[str, str]) -> Link | None:
        return next((stage for stage in self.stages if stage.name in names), None)

    def through_hosts(self, src: str, src_gpu: int, dst: str, dst_gpu: int, path: Path) -> Path:
        """Return a path of cables from `src` to `dst` with the stages inside both hosts around it."""
        rail, landing = self.rail(src, src_gpu), self.landing(dst, dst_gpu)
        return (*((rail.name,) if rail else ()), *path, *((landing.name,) if landing else ()))

    def switches_of(self, tier: str) -> tuple[Switch, ...]:
        """Return the switches of one tier, in order of their index."""
        return tuple(switch for switch in self.switches if switch.tier == tier)

    def candidate_paths(self, src: str, dst: str) -> tuple[tuple[str, ...], ...]:
        """Return every shortest path of cables from host `src` to host `dst` as tuples of link names.

        One path where both hang on the same leaf, otherwise one for each spine.
        """
        first, last = self.host(src), self.host(dst)
        if first.leaf == last.leaf:
            return ((f"{src}-{first.leaf}", f"{last.leaf}-{dst}"),)
        return tuple(
            (
                f"{src}-{first.leaf}",
                f"{first.leaf}-{spine.name}",
                f"{spine.name}-{last.leaf}",
                f"{last.leaf}-{dst}",
            )
            for spine in self.switches_of("spine")
        )
