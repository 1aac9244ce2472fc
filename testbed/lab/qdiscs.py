"""Which qdiscs make a link of the plan, and with which parameters. Pure.

Every link is `htb` (its rate) over a leaf queue: `red` marking on the instantaneous backlog at a
switch port, `bfifo` at a host's own egress. The propagation delay stands elsewhere, so that packets
on the wire are never counted as queue: each packet is delayed once, where it enters the fabric, by
the sum of the delays of its whole path. An `ifb` with `netem` serves the paths within a leaf, a
second one those that cross a spine. What a GPU sends is delayed by its way to the NIC, and by that
from the NIC to the other GPU, in stages of its own: its packets' DSCP says which.
"""

from __future__ import annotations

from testbed.lab.netlink import TICK_NS, HtbClass
from testbed.plan.model import Plan, Transfer
from topologies.model import Link, Nic

ETHERNET_HEADER = 14
ROOT_HANDLE = 0x00010000
CLASS_ID = 0x00010001
QUEUE_HANDLE = 0x00100000

NEAR = "delay-near"
"""Interface whose netem delays packets between hosts of one leaf."""
FAR = "delay-far"
"""Interface whose netem delays packets that cross a spine."""

DSCP_SHIFT = 2
DSCP_MASK = 0xFC
"""Where the DSCP stands in the type of service; the two bits below are ECN's."""

REAL_LATENESS_NS = 50_000
"""How late a timer of a real clock may come."""

NETEM_LIMIT = 10_000_000
"""Packets in flight before the delay stage would drop; far beyond any bandwidth-delay product here."""


def burst_ns(frame_ns: int, clock: str) -> int:
    """Return the token bucket's depth in nanoseconds of the link's rate, a multiple of TICK_NS.

    What the bucket holds leaves faster than the rate after every idle moment, so it should hold
    nothing; but what a late timer misses and the bucket cannot save is lost rate. The virtual clock
    is late by 16 ns at most. On a real clock timers come some tens of microseconds late, and two
    frames of `frame_ns` each are the least that works.
    """
    depth = TICK_NS if clock == "virtual" else max(2 * frame_ns, REAL_LATENESS_NS)
    return -(-depth // TICK_NS) * TICK_NS


def rate_class(link: Link, plan: Plan) -> HtbClass:
    """Return the rate class of a link, or of a stage inside a host; both buckets have the same depth."""
    frame_bytes = plan.mtu + ETHERNET_HEADER
    bytes_per_s = link.rate_bps // 8
    depth = burst_ns(frame_bytes * 1_000_000_000 // bytes_per_s, plan.clock)
    return HtbClass(bytes_per_s, bytes_per_s, depth, depth, frame_bytes)


def ramp_probability(pmax: float) -> float:
    """Return the max_P that makes RED mark a share `pmax` of packets at the top of its ramp.

    RED spaces its marks evenly: the number of packets from one mark to the next is uniform on
    1 .. 1/p, so a configured p marks 2p/(1+p) of the packets (Floyd and Jacobson 1993, section 7).
    A switch that draws for each packet marks exactly p; solving for p gives pmax/(2-pmax).
    """
    return pmax / (2 - pmax)


def delays_ns(plan: Plan) -> dict[str, int]:
    """Return the delay stages a plan needs, by interface; none where nothing takes time.

    Beside the two for all packets there are two for each latency of the topology's `inside_ns`.
    """
    access = fabric = 0
    nics = plan.topology.nics
    for link in plan.topology.links:
        if link.src in nics:
            access = link.delay_ns
        elif link.dst not in nics:
            fabric = link.delay_ns
    ways = {NEAR: 2 * access, FAR: 2 * access + 2 * fabric}
    for number, inside in enumerate(plan.topology.inside_ns, start=1):
        ways |= {f"{name}-{number}": ways[name] + inside for name in (NEAR, FAR)}
    return ways if any(ways.values()) else {}


def service_of(plan: Plan, transfer: Transfer) -> int:
    """Return the type of service (the DSCP's bits) of what a transfer sends.

    It is the number, among the topology's `inside_ns`, of the latency between its GPUs and its NICs; 0 for
    none.
    """
    rail = plan.topology.rail(transfer.src, transfer.src_gpu, transfer.src_nic)
    landing = plan.topology.landing(transfer.dst, transfer.dst_gpu, transfer.dst_nic)
    inside = sum(stage.delay_ns for stage in (rail, landing) if stage)
    return (plan.topology.inside_ns.index(inside) + 1) << DSCP_SHIFT if inside else 0


def ways_of(nic: Nic, plan: Plan) -> list[tuple[str, str]]:
    """Return what leads a NIC's packets into the delay stages, first match first: `tc` words and the stage.

    KV carries its latency's number; what answers it does not, and never touches a GPU.
    """
    subnet = nic.ip.rpartition(".")[0] + ".0/24"
    ways = []
    for number in range(1, len(plan.topology.inside_ns) + 1):
        service = f"match ip tos {number << DSCP_SHIFT:#04x} {DSCP_MASK:#04x}"
        ways += [
            (f"u32 match ip dst {subnet} {service}", f"{NEAR}-{number}"),
            (f"u32 {service}", f"{FAR}-{number}"),
        ]
    return [*ways, (f"u32 match ip dst {subnet}", NEAR), ("matchall", FAR)]


def delay_lines(plan: Plan) -> list[str]:
    """Return the `tc` lines of the filters that lead packets into the delay stages."""
    if not delays_ns(plan):
        return []
    lines: list[str] = []
    for nic in plan.topology.nics.values():
        lines += _redirect_lines(nic, plan)
    return lines


def _redirect_lines(nic: Nic, plan: Plan) -> list[str]:
    """Return the lines for the leaf's port towards `nic`.

    Open vSwitch deletes an `ingress` qdisc from its ports when it looks at them again, at any change of
    a link. `clsact` does the same work and is left alone, because it has another name.
    """
    filters = [
        f"filter add dev {nic.down} ingress protocol {'all' if match == 'matchall' else 'ip'} prio {prio} "
        f"{match} action mirred egress redirect dev {stage}"
        for prio, (match, stage) in enumerate(ways_of(nic, plan), start=1)
    ]
    return [f"qdisc add dev {nic.down} clsact", *filters]
