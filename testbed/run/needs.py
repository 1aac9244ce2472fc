"""What a run will need of the machine: memory of its guest, room for its record, real time. Pure.

Estimates: counts of what the plan has, times the measured cost of one (docs/scale.md says of which runs, and
how far off they were). Called by `testbed plan`, and before a run: a guest has the memory that its plan
needs, unless the scenario says otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from testbed.plan.budget import ACKS_PER_PACKET
from testbed.plan.model import BackgroundFlow, Plan
from testbed.plan.served import most_transfers
from testbed.record import layout
from traffic.pieces import SEND_START_LEAST_BYTES, send_start_bytes

MIB = 1 << 20
DRAIN_NS = 6_000_000
"""What is sampled before the first and after the last transfer."""

BASE_MIB = 115.0
NIC_MIB = 0.65
PAIR_KIB = 0.5
PORT_MIB = 0.12
SWITCH_MIB = 2.6
STAGE_MIB = 0.3
TRANSFER_KIB = 20.0
FLOW_MIB = 4.5
"""What a guest touches: the system with its programs; for each NIC, for each pair of NICs (a neighbour's
address), switch port, switch, stage inside a host, transfer and background flow."""

SENDING_SHARE = 0.13
"""What a guest touches for a byte that waits in a send buffer: the bytes themselves are one page of zeros."""

BASE_MAPS = 5_000
TRANSFER_MAPS = 1.6
"""Pages of a guest's program lie as they come in the memory file; each stretch is a mapping of the host's."""

SPARE = 1.5
SPARE_MIB = 192
STEP_MIB = 64
"""A guest has so many times what it will touch, and so much more, in whole steps: what is not touched costs
the machine nothing but the list of its pages."""

TRANSFER_BYTES = 3_000
QUEUE_BYTES = 3_000
"""Of a record, beside its samples: of each transfer and of each queue."""

BASE_S = 2.7
NIC_S = 0.012
PORT_S = 0.0072
SWITCH_S = 0.06
TRANSFER_S = 0.004
HOP_S = 1.4e-6
READING_S = 1.8e-6
"""Real time: of a run with nothing in it; for each NIC, switch port, switch and transfer; for a packet over
one link; for one queue of one sample, read, written and analysed."""

ROCE_PACKET_S = 90e-6
"""RoCE's own program takes as long for a packet."""

PAUSING_S = 80.0
"""The program that pauses looks at queues every few microseconds: so long for a second of the scenario."""


@dataclass(frozen=True)
class Counts:
    """What costs something: `hops` are packets, ACKs among them, counted once for each link they cross,
    `readings` the queues of all samples."""

    nics: int
    ports: int
    switches: int
    stages: int
    transfers: int
    flows: int
    packets: float
    hops: float
    queues: int
    readings: float


@dataclass(frozen=True)
class Needs:
    """`touched_bytes` is what the guest touches of its `memory_mib` at most, in so many `maps`: stretches of
    the memory file that one of its programs has."""

    touched_bytes: int
    memory_mib: int
    record_bytes: int
    real_s: float
    maps: int = 0


def counts_of(plan: Plan) -> Counts:
    """Return what a plan has of all that costs something."""
    topology, frame = plan.topology, plan.mtu + 14
    packets = hops = 0.0
    for transfer in plan.transfers:
        source, target = topology.host(transfer.src), topology.host(transfer.dst)
        links = 2 if source.nic(transfer.src_nic).leaf == target.nic(transfer.dst_nic).leaf else 4
        own = transfer.wire_bytes / frame * (1 + ACKS_PER_PACKET)
        packets += own
        hops += own * links
    for flow in plan.background:
        own = _background_bytes(plan, flow) / frame
        packets += own
        hops += 4 * own
    duration_ns = plan.ideal_last_end_ns + DRAIN_NS
    return Counts(
        nics=len(topology.nics),
        ports=len(topology.links) - len(topology.nics),
        switches=len(topology.switches),
        stages=len(topology.stages),
        transfers=most_transfers(plan),
        flows=len(plan.background),
        packets=packets,
        hops=hops,
        queues=len(topology.all_links),
        readings=duration_ns / plan.measure.interval_ns * len(topology.all_links),
    )


def _background_bytes(plan: Plan, flow: BackgroundFlow) -> float:
    """Return what an iperf3 flow carries, at its rate or that of its NIC."""
    nic = plan.topology.link(plan.topology.host(flow.src).nic(flow.src_nic).up)
    return (flow.rate_bps or nic.rate_bps) / 8 * flow.duration_ns / 1e9


def needs_of(plan: Plan) -> Needs:
    """Return what a run of `plan` will need."""
    counts = counts_of(plan)
    touched_mib = (
        BASE_MIB
        + NIC_MIB * counts.nics
        + PORT_MIB * counts.ports
        + PAIR_KIB / 1024 * counts.nics**2
        + SWITCH_MIB * counts.switches
        + STAGE_MIB * counts.stages
        + TRANSFER_KIB / 1024 * counts.transfers
        + FLOW_MIB * counts.flows
        + SENDING_SHARE * _waiting_bytes(plan) / MIB
    )
    own_mib = plan.memory_bytes // MIB if plan.memory_bytes else _roomy_mib(touched_mib)
    maps = BASE_MAPS + math.ceil(TRANSFER_MAPS * counts.transfers)
    return Needs(round(touched_mib) * MIB, own_mib, _record_bytes(counts), _real_s(plan, counts), maps)


def _waiting_bytes(plan: Plan) -> int:
    """Return what the transfers of a plan have in their send buffers when all begin at once."""
    room = send_start_bytes(most_transfers(plan))
    if plan.transport.roce or room == SEND_START_LEAST_BYTES:
        return 0
    return sum(min(transfer.wire_bytes, room) for transfer in plan.transfers)


def _roomy_mib(touched_mib: float) -> int:
    return math.ceil((touched_mib * SPARE + SPARE_MIB) / STEP_MIB) * STEP_MIB


def _record_bytes(counts: Counts) -> int:
    samples = counts.readings * 8 * len(layout.SAMPLE_FIELDS)
    return round(samples + TRANSFER_BYTES * counts.transfers + QUEUE_BYTES * counts.queues)


def _real_s(plan: Plan, counts: Counts) -> float:
    lab_s = (
        BASE_S
        + NIC_S * counts.nics
        + PORT_S * counts.ports
        + SWITCH_S * counts.switches
        + TRANSFER_S * counts.transfers
        + READING_S * counts.readings
    )
    if plan.clock == "real":
        return lab_s + plan.ideal_last_end_ns * plan.dilation / 1e9
    packet_s = ROCE_PACKET_S if plan.transport.roce else 0.0
    pausing_s = PAUSING_S * plan.ideal_last_end_ns / 1e9 if plan.pausing else 0.0
    return lab_s + HOP_S * counts.hops + packet_s * counts.packets + pausing_s
