"""The vocabulary of every topology: hosts, switches and directed links.

A cable is two `Link`s, one for each direction, because each direction has a queue of its own. A
link is named `<from>-<to>`, and so is the network interface it leaves through: the queue of link
`leaf3-d1` is the qdisc of interface `leaf3-d1` on `leaf3`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

INTERFACE_NAME_MAX = 15
"""Longest interface name Linux takes (IFNAMSIZ - 1)."""

SOURCE_RAIL = "source-rail"
SOURCE_LEAF = "source-leaf"
SPINE = "spine"
DEST_LEAF = "dest-leaf"
DEST_LANDING = "dest-landing"
SEGMENTS = (SOURCE_RAIL, SOURCE_LEAF, SPINE, DEST_LEAF, DEST_LANDING)
"""The five stretches of a transfer's path, in its order."""

MEMORY = "mem"
FAR = "far"
"""Ends of stages that GPUs of a host share: its memory, and the way to a NIC that is another GPU's."""


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
class Nic:
    """A network card of `host`, on a port of `leaf`, with an address of its own.

    `name` is what its cables call it: the host's own name where that has one NIC, `p1n2` for the second of
    several. `role` is the host's.
    """

    name: str
    host: str
    role: str
    leaf: str
    ip: str
    mac: str

    @property
    def up(self) -> str:
        """The link that leaves through it, and its interface in the host."""
        return f"{self.name}-{self.leaf}"

    @property
    def down(self) -> str:
        """The link that leads to it, and the leaf's interface."""
        return f"{self.leaf}-{self.name}"


@dataclass(frozen=True)
class Host:
    """A server; `role` is `prefill`, `decode` or `store`. GPU g uses NIC `affinity[g - 1]`, both from 1."""

    name: str
    role: str
    nics: tuple[Nic, ...]
    affinity: tuple[int, ...] = (1,)

    def nic(self, number: int = 1) -> Nic:
        """Return a NIC by its number from 1."""
        return self.nics[number - 1]

    def owns(self, gpu: int, nic: int) -> bool:
        """Return whether the NIC is that of the GPU, both from 1."""
        return nic in self.affinity[gpu - 1 : gpu]

    @property
    def leaf(self) -> str:
        """The leaf of its first NIC."""
        return self.nics[0].leaf

    @property
    def ip(self) -> str:
        """The address of its first NIC."""
        return self.nics[0].ip

    @property
    def mac(self) -> str:
        """The hardware address of its first NIC."""
        return self.nics[0].mac


@dataclass(frozen=True)
class Link:
    """One direction of a cable. At a host its end is the host's NIC.

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
    to its GPU 1, and `p1mem-p1` where all GPUs of a host go through its memory. Where a host has several
    NICs their names stand in the place of the host's, and `p1far-p1n2` is the way that GPUs of other
    NICs share to the second.
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
        return self._links[name]

    @cached_property
    def _links(self) -> dict[str, Link]:
        return {link.name: link for link in self.all_links}

    def host(self, name: str) -> Host:
        """Return the host called `name`; KeyError when there is none."""
        return self._hosts[name]

    @cached_property
    def cables(self) -> dict[str, Link]:
        """The links between NICs and switches by name, without the stages inside hosts."""
        return {link.name: link for link in self.links}

    @cached_property
    def _hosts(self) -> dict[str, Host]:
        return {host.name: host for host in self.hosts}

    @cached_property
    def nics(self) -> dict[str, Nic]:
        """All NICs by name, in the order of their hosts."""
        return {nic.name: nic for host in self.hosts for nic in host.nics}

    def rail(self, host: str, gpu: int, nic: int = 1) -> Link | None:
        """Return the stage from a GPU (from 1) to a NIC (from 1), None where the NIC is the slower one."""
        to = self.host(host).nic(nic).name
        return self._stage([f"{inner}-{to}" for inner in self._inner(host, gpu, nic)])

    def landing(self, host: str, gpu: int, nic: int = 1) -> Link | None:
        """Return the stage from a NIC (from 1) to a GPU (from 1), None where the NIC is the slower one."""
        at = self.host(host).nic(nic).name
        return self._stage([f"{at}-{inner}" for inner in self._inner(host, gpu, nic)])

    def _inner(self, host: str, gpu: int, nic: int) -> tuple[str, str]:
        own = self.host(host).owns(gpu, nic)
        return f"{host}g{gpu}", f"{host}{MEMORY if own else FAR}"

    def _stage(self, names: Sequence[str]) -> Link | None:
        return next((self._stages[name] for name in names if name in self._stages), None)

    @cached_property
    def _stages(self) -> dict[str, Link]:
        return {stage.name: stage for stage in self.stages}

    @cached_property
    def stages_at(self) -> dict[str, list[Link]]:
        """The stages that lead to or from each NIC that has any, in their order."""
        found: dict[str, list[Link]] = {}
        for stage in self.stages:
            found.setdefault(stage.dst if stage.dst in self.nics else stage.src, []).append(stage)
        return found

    @cached_property
    def inside_ns(self) -> tuple[int, ...]:
        """What the stages inside a sending and a receiving host can add to a packet's way, without 0."""
        rails, landings = (
            {0, *(stage.delay_ns for stage in self.stages if stage.segment == segment)}
            for segment in (SOURCE_RAIL, DEST_LANDING)
        )
        return tuple(sorted({rail + landing for rail in rails for landing in landings} - {0}))

    def through_hosts(self, src: str, src_gpu: int, dst: str, dst_gpu: int, path: Path) -> Path:
        """Return a path of cables from `src` to `dst` with the stages inside both hosts around it."""
        first, last = self._number(src, path[0]), self._number(dst, path[-1])
        rail, landing = self.rail(src, src_gpu, first), self.landing(dst, dst_gpu, last)
        return (*((rail.name,) if rail else ()), *path, *((landing.name,) if landing else ()))

    def _number(self, host: str, cable: str) -> int:
        """Return the number of the NIC at a host's cable."""
        nics = self.host(host).nics
        return next(number for number, nic in enumerate(nics, 1) if cable in (nic.up, nic.down))

    def switches_of(self, tier: str) -> tuple[Switch, ...]:
        """Return the switches of one tier, in order of their index."""
        return tuple(switch for switch in self.switches if switch.tier == tier)

    def candidate_paths(self, src: str, dst: str, src_nic: int = 1, dst_nic: int = 1) -> tuple[Path, ...]:
        """Return every shortest path of cables from NIC to NIC of two hosts as tuples of link names.

        One path where both NICs hang on the same leaf, otherwise one for each spine.
        """
        first, last = self.host(src).nic(src_nic), self.host(dst).nic(dst_nic)
        if first.leaf == last.leaf:
            return ((first.up, last.down),)
        return tuple(
            (first.up, f"{first.leaf}-{spine.name}", f"{spine.name}-{last.leaf}", last.down)
            for spine in self.switches_of("spine")
        )
