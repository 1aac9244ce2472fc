"""From a checked scenario, a seed, a backend and a clock to the Plan. Pure: needs no root, starts nothing.

Called by the command line. What runs inside the lab imports `model`, `codec` and `dilation` instead.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

from testbed.plan.ideal import Flow, ideal_last_end_ns
from testbed.plan.limits import check_limits
from testbed.plan.model import (
    BACKGROUND_PORT_FIRST,
    FORMAT_VERSION,
    TRANSFER_PORT,
    BackgroundFlow,
    Deadline,
    Measure,
    Pin,
    Plan,
    Queue,
    Roce,
    Routing,
    Transfer,
    Transport,
    Workload,
)
from testbed.plan.pausing import pausing
from testbed.plan.releases import posting_ns
from testbed.plan.requests import has_ends, requests_of, scaled
from testbed.plan.serving import PathFacts, preview
from testbed.plan.system import is_served, serving_system
from testbed.plan.wanted import Wanted, wanted_of, workload_of
from testbed.scenario.lossless import ETHERNET_BYTES, LANDING_PART, pauses, xoff_bytes
from testbed.scenario.models import SOURCE_PORT_FIRST, SOURCE_PORTS, Scenario
from testbed.scenario.nics import End, Ends
from testbed.scenario.placement import leaf_spine
from testbed.scenario.problems import Problem
from topologies import Topology, build_leaf_spine
from topologies.model import DEST_LANDING, Link, Nic
from traffic.jobs import Serving
from traffic.roce.geometry import wire_bytes as roce_wire_bytes
from traffic.roce.packets import ROCE_PORT

IP_TCP_BYTES = 40
TCP_OPTION_BYTES = 12
"""Timestamps, padded (RFC 7323), which Linux sends in every segment."""

HOST_QUEUE_BYTES = 1_000_000_000
"""Room of a host's own queue where the serving engine opens connections: a mebibyte for a thousand."""

DEADLINE_FACTOR = 20
DEADLINE_FLOOR_NS = 2_000_000_000
"""Room for slow start, timeouts and an unlucky hash before a run is called hung."""


def build_plan(scenario: Scenario, *, seed: int, backend: str, clock: str) -> Plan:
    """Return everything that will happen in a run of `scenario`, in scenario time.

    `backend` is `native` or `uml`, `clock` is `virtual` or `real`. The same arguments give the same
    plan. Raises InputError, with the place in the scenario, for what cannot be run.
    """
    _check_clock(scenario, clock)
    _check_engine(scenario)
    spec = leaf_spine(scenario)
    topology = build_leaf_spine(spec)
    routes = routes_of(topology, scenario.fabric.mtu, _transport(scenario))
    serving, workload = _served(scenario, seed)
    if serving is not None:
        transfers = tuple(preview(serving, routes.resolved, routes.facts))
    else:
        wanted, workload = wanted_of(scenario, seed)
        transfers = _transfers(scenario, wanted, routes, Ends(spec.nic_of_gpu))
    background = _background(scenario)
    ideal_ns = ideal_last_end_ns([routes.flow(transfer) for transfer in transfers], routes.capacities_bps)
    plan = Plan(
        format_version=FORMAT_VERSION,
        scenario=scenario.name,
        description=scenario.description,
        seed=seed,
        backend=backend,
        clock=clock,
        dilation=scenario.dilation,
        mtu=scenario.fabric.mtu,
        framework=scenario.controller.framework,
        topology=topology,
        queues=_roomy(_queues(scenario, topology), topology) if serving else _queues(scenario, topology),
        transport=_transport(scenario),
        routing=_routing(scenario, seed),
        transfers=transfers,
        background=background,
        measure=_measure(scenario, clock, transfers, topology),
        deadline=_deadline(scenario, ideal_ns, background),
        ideal_last_end_ns=ideal_ns,
        expectations=scenario.expect,
        serving=serving,
        workload=workload,
        loss=scenario.fabric.loss,
        memory_bytes=scenario.memory_bytes,
    )
    check_limits(scenario, plan)
    if not scenario.fabric.is_lossless:
        return plan
    return replace(plan, pausing=pausing(plan, pauses(scenario, topology)))


def wire_bytes(payload_bytes: int, mtu: int) -> int:
    """Return the bytes queues count for a payload: full segments, Ethernet, IP and TCP headers.

    Handshake, acknowledgements and retransmissions are not counted.
    """
    segment = mtu - IP_TCP_BYTES - TCP_OPTION_BYTES
    packets = -(-payload_bytes // segment)
    return payload_bytes + packets * (ETHERNET_BYTES + IP_TCP_BYTES + TCP_OPTION_BYTES)


def _served(scenario: Scenario, seed: int) -> tuple[Serving | None, Workload | None]:
    """Return the serving system with its requests, and what they come to; nothing where there is none."""
    if not is_served(scenario) or has_ends(scenario):
        return None, None
    requests, tally = requests_of(scenario, seed)
    serving = serving_system(scenario, seed, requests)
    return serving, workload_of(tally, scenario, scenario.workload.scale.time_factor)


def _check_clock(scenario: Scenario, clock: str) -> None:
    if clock == "virtual" and scenario.dilation != 1:
        allowed = "1 with the virtual clock, which needs no dilation; or --clock real"
        raise scenario.error(Problem(("dilation",), "is for the real clock only", allowed))


def _check_engine(scenario: Scenario) -> None:
    """The serving engine opens connections when it decides to; queue pairs are set up before a run."""
    if scenario.transport.kind == "roce" and is_served(scenario):
        allowed = "tcp with a serving engine; roce with requests of kv_bytes or written-out transfers"
        raise scenario.error(Problem(("transport", "kind"), "does not go with a serving engine", allowed))


def _routing(scenario: Scenario, seed: int) -> Routing:
    routing = scenario.routing
    pins = (Pin(pin.source, pin.destination, f"spine{pin.spine}") for pin in routing.pinned)
    poll_ns = routing.poll_ns if routing.policy == "least-loaded" else 0
    hashed = routing.hashed
    if scenario.transport.kind == "roce" and "hash_fields" not in routing.model_fields_set:
        hashed = tuple(name.replace("tcp_", "udp_") for name in hashed)
    return Routing(routing.policy, hashed, _hash_seed(seed), tuple(pins), poll_ns)


def _measure(scenario: Scenario, clock: str, transfers: tuple[Transfer, ...], topology: Topology) -> Measure:
    """On a real clock the gaps of the port to the host that receives most are looked at as well."""
    measure, received = scenario.measure, Counter[str]()
    for transfer in transfers:
        received[topology.host(transfer.dst).nic(transfer.dst_nic).down] += transfer.wire_bytes
    busiest = [name for name, _ in received.most_common(1)] if clock == "real" else []
    departures = tuple(dict.fromkeys([*measure.departures, *busiest]))
    return Measure(measure.interval_ns, measure.progress_ns, departures)


def _hash_seed(seed: int) -> int:
    return int.from_bytes(hashlib.sha256(f"ecmp-{seed}".encode()).digest()[:4], "big")


def _transport(scenario: Scenario) -> Transport:
    transport = scenario.transport
    roce = _roce(scenario) if transport.kind == "roce" else None
    name = transport.congestion_control if roce is None else f"dcqcn {transport.dcqcn}"
    return Transport(transport.kind, name, transport.ecn_on, transport.rto_min_ns, roce)


def _roce(scenario: Scenario) -> Roce:
    transport, fabric = scenario.transport, scenario.fabric
    return Roce(
        mtu=transport.payload(fabric.mtu),
        operation=transport.operation,
        recovery=transport.recovery,
        message_bytes=transport.message_bytes,
        window_bytes=transport.window_bytes or 0,
        ack_timeout_ns=transport.ack_timeout_ns,
        tick_ns=transport.tick_ns,
        dcqcn=transport.parameters(fabric.host_link.rate_bps),
    )


def _queues(scenario: Scenario, topology: Topology) -> tuple[Queue, ...]:
    nics = set(topology.nics)
    cables = tuple(_queue(scenario, link, nics) for link in topology.links)
    return cables + tuple(_stage_queue(scenario, stage) for stage in topology.stages)


def _roomy(queues: tuple[Queue, ...], topology: Topology) -> tuple[Queue, ...]:
    """Give hosts' own queues room for as many connections as requests may open at once: a NIC drops nothing
    that its host sends, it makes it wait."""
    landings = {stage.name for stage in topology.stages if stage.segment == DEST_LANDING}
    return tuple(
        queue if queue.marking or queue.link in landings else replace(queue, limit_bytes=HOST_QUEUE_BYTES)
        for queue in queues
    )


def _stage_queue(scenario: Scenario, stage: Link) -> Queue:
    """A stage only shapes. Before a decode host's GPU stands its receive buffer."""
    landing = stage.segment == DEST_LANDING
    limit = scenario.hosts.decode.buffer_bytes if landing else scenario.fabric.queue.limit_bytes
    xoff = limit // LANDING_PART if landing and scenario.fabric.is_lossless else None
    return Queue(stage.name, limit, limit, 1.0, limit, xoff, marking=False)


def _queue(scenario: Scenario, link: Link, nics: set[str]) -> Queue:
    fabric, marking = scenario.fabric, link.src not in nics
    at_host = not marking or link.dst in nics
    queue = fabric.queue_of(fabric.host_link if at_host else fabric.fabric_link)
    xoff = xoff_bytes(queue) if fabric.is_lossless else queue.xoff_bytes
    return Queue(
        link=link.name,
        kmin_bytes=queue.kmin_bytes,
        kmax_bytes=queue.kmax_bytes,
        pmax=queue.pmax,
        limit_bytes=queue.limit_bytes,
        xoff_bytes=xoff if marking else None,
        marking=marking,
    )


def _transfers(
    scenario: Scenario, wanted_all: Sequence[Wanted], routes: _Routes, ends: Ends
) -> tuple[Transfer, ...]:
    chosen = {(wanted.src, wanted.src_port) for wanted in wanted_all if wanted.src_port}
    free = {wanted.src: _free_ports(wanted.src, chosen) for wanted in wanted_all}
    transfers = []
    for number, wanted in enumerate(wanted_all):
        port = wanted.src_port or next(free[wanted.src], None)
        if port is None:
            raise scenario.error(_too_many(scenario, number, wanted.src))
        size = scaled(wanted.size_bytes, scenario.workload.scale.size_factor)
        source = ends.source(wanted.src, wanted.src_gpu, wanted.src_nic)
        target = ends.target(wanted.dst, wanted.dst_gpu, wanted.dst_nic)
        transfers.append(routes.transfer(number, wanted, size, port, (source, target)))
    return tuple(transfers)


def _free_ports(src: str, chosen: Set[tuple[str, int]]) -> Iterator[int]:
    """Yield the ports that a host's transfers take which name none."""
    ports = range(SOURCE_PORT_FIRST, SOURCE_PORT_FIRST + SOURCE_PORTS)
    return (port for port in ports if (src, port) not in chosen)


def _too_many(scenario: Scenario, number: int, src: str) -> Problem:
    requests = scenario.workload.requests
    key = "limit" if requests and requests.kind == "trace" else "count"
    path = ("workload", "requests", key) if requests else ("workload", "transfers", number)
    wrong = f"gives {src} more than {SOURCE_PORTS} transfers, each of which has a port of its own"
    return Problem(path, wrong, "use more prefill hosts or fewer transfers", show=requests is not None)


def _background(scenario: Scenario) -> tuple[BackgroundFlow, ...]:
    return tuple(
        BackgroundFlow(
            id=number,
            src=flow.source,
            dst=flow.destination,
            protocol=flow.protocol,
            rate_bps=flow.rate_bps or 0,
            start_ns=flow.start_ns,
            duration_ns=flow.duration_ns,
            port=BACKGROUND_PORT_FIRST + number,
            src_nic=flow.source_nic,
            dst_nic=flow.destination_nic,
        )
        for number, flow in enumerate(scenario.workload.background)
    )


def _deadline(scenario: Scenario, ideal_ns: int, background: tuple[BackgroundFlow, ...]) -> Deadline:
    ends = [flow.start_ns + flow.duration_ns for flow in background]
    generous_ns = DEADLINE_FACTOR * max([ideal_ns, *ends]) + DEADLINE_FLOOR_NS
    return Deadline(scenario.deadline.scenario_ns or generous_ns, scenario.deadline.real_ns / 1e9)


def routes_of(topology: Topology, mtu: int, transport: Transport) -> _Routes:
    """Return what tells wire bytes, ideal times and paths of transfers over `topology`."""
    return _Routes(topology, mtu, transport.roce)


class _Routes:
    """Rates, delays and shared resources of the paths between NICs; looked up, not searched."""

    def __init__(self, topology: Topology, mtu: int, roce: Roce | None) -> None:
        self.topology, self.mtu, self.roce = topology, mtu, roce
        self.nic_of = {
            (host.name, number): nic for host in topology.hosts for number, nic in enumerate(host.nics, 1)
        }
        self.links = {link.name: link for link in topology.links}
        self.spines = topology.switches_of("spine")
        self.paths: dict[tuple[str, str], list[Link]] = {}

    @cached_property
    def resources(self) -> dict[tuple[str, str], int]:
        """The index of each resource: a NIC's or a leaf's capacity upwards or downwards."""
        nodes = [*self.topology.nics, *(leaf.name for leaf in self.topology.switches_of("leaf"))]
        pairs = [(node, way) for node in nodes for way in ("up", "down")]
        return {pair: number for number, pair in enumerate(pairs)}

    @cached_property
    def capacities_bps(self) -> list[float]:
        """The capacity of each resource, in bits per second."""
        return [float(self._capacity(node, way)) for node, way in self.resources]

    def _capacity(self, node: str, way: str) -> int:
        nic = self.topology.nics.get(node)
        others = [nic.leaf] if nic else [spine.name for spine in self.spines]
        ends = [(node, other) if way == "up" else (other, node) for other in others]
        return sum(self.links[f"{src}-{dst}"].rate_bps for src, dst in ends)

    def path(self, first: Nic, last: Nic) -> list[Link]:
        """Return the links of the path over the first spine; all spines are alike."""
        pair = first.name, last.name
        if pair not in self.paths:
            self.paths[pair] = self._path(first, last)
        return self.paths[pair]

    def _path(self, first: Nic, last: Nic) -> list[Link]:
        within = first.leaf == last.leaf
        between = [first.leaf] if within else [first.leaf, self.spines[0].name, last.leaf]
        return [self.links[f"{a}-{b}"] for a, b in pairwise([first.name, *between, last.name])]

    def transfer(
        self, number: int, wanted: Wanted, size_bytes: int, port: int, ends: tuple[End, End]
    ) -> Transfer:
        """Return the transfer with its wire bytes and the time it takes alone, rounded up.

        Alone means over the NICs and cables: a stage inside a host that is slower is time lost there.
        """
        src, dst = ends
        path = self.path(self.nic_of[src.host, src.nic], self.nic_of[dst.host, dst.nic])
        wire = self._wire_bytes(size_bytes)
        bits_ns = wire * 8 * 1_000_000_000
        serial_ns = -(-bits_ns // min(link.rate_bps for link in path))
        return Transfer(
            id=number,
            src=src.host,
            dst=dst.host,
            bytes=size_bytes,
            wire_bytes=wire,
            start_ns=wanted.start_ns,
            src_port=port,
            dst_port=ROCE_PORT if self.roce else TRANSFER_PORT + dst.gpu - 1,
            ideal_ns=serial_ns + sum(link.delay_ns for link in path),
            pace_bps=wanted.pace_bps,
            src_gpu=src.gpu,
            dst_gpu=dst.gpu,
            src_nic=src.nic,
            dst_nic=dst.nic,
        )

    def _wire_bytes(self, size_bytes: int) -> int:
        if self.roce is None:
            return wire_bytes(size_bytes, self.mtu)
        own = self.roce
        return roce_wire_bytes(size_bytes, own.mtu, own.message_bytes, read=own.operation == "read")

    def facts(self, transfer: Transfer) -> PathFacts:
        """Return rate and delay of a transfer's path."""
        ends = self.nic_of[transfer.src, transfer.src_nic], self.nic_of[transfer.dst, transfer.dst_nic]
        path = self.path(*ends)
        return PathFacts(min(link.rate_bps for link in path), sum(link.delay_ns for link in path))

    def resolved(self, transfer: Transfer) -> Transfer:
        """Return a transfer of the serving engine with its wire bytes and the time it takes alone.

        What its descriptors cost to post it takes on any network.
        """
        facts, wire = self.facts(transfer), self._wire_bytes(transfer.bytes)
        serial_ns = max(-(-wire * 8 * 1_000_000_000 // facts.rate_bps), math.ceil(posting_ns(transfer)))
        return replace(transfer, wire_bytes=wire, ideal_ns=serial_ns + facts.delay_ns)

    def flow(self, transfer: Transfer) -> Flow:
        """Return the transfer as the fluid model takes it."""
        first = self.nic_of[transfer.src, transfer.src_nic]
        last = self.nic_of[transfer.dst, transfer.dst_nic]
        ends = [(first.name, "up"), (last.name, "down")]
        fabric = [(first.leaf, "up"), (last.leaf, "down")] if first.leaf != last.leaf else []
        path = self.path(first, last)
        bits = transfer.wire_bytes * 8.0
        posted_bps = bits * 1e9 / posting_ns(transfer) if posting_ns(transfer) else math.inf
        return Flow(
            resources=tuple(self.resources[pair] for pair in ends + fabric),
            cap_bps=min(float(min(link.rate_bps for link in path)), posted_bps),
            bits=bits,
            start_ns=transfer.start_ns,
            delay_ns=sum(link.delay_ns for link in path),
        )
