"""The plan: everything that will happen in a run, as plain frozen values.

A plan is computed without root from a scenario and a seed, is handed to the lab as a JSON file, and
is part of every record. This module imports the standard library, `topologies` and parameters of `traffic`
only, because it is loaded inside the lab as well.

Times are nanoseconds and rates bits per second, in the scenario's own (undilated) time. The lab
itself runs `dilated(plan)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from topologies.model import Topology
from traffic.jobs import Serving
from traffic.roce.dcqcn import Parameters

FORMAT_VERSION = 1

TRANSFER_PORT = 5000
"""Where transfers to a host's first GPU are received; the next GPUs have the next ports."""

BACKGROUND_PORT_FIRST = 7_000
"""Where the first iperf3 flow is received; the next ones have the next ports."""

SERVED_PORT_FIRST = 20_000
SERVED_PORTS = 40_000
"""A transfer that the serving engine makes is sent from the port of its number: all are known beforehand."""

NO_REQUEST = -1


@dataclass(frozen=True)
class Queue:
    """One queue: marks from `kmin_bytes` on, always from `kmax_bytes`, drops at `limit_bytes`.

    `pmax` is the marking probability just below `kmax_bytes`. `marking` is False for a host's own
    egress and the stages inside hosts, which only shape. `xoff_bytes` is where PFC would pause (None:
    not watched).
    """

    link: str
    kmin_bytes: int
    kmax_bytes: int
    pmax: float
    limit_bytes: int
    xoff_bytes: int | None
    marking: bool


@dataclass(frozen=True)
class Roce:
    """RoCEv2 queue pairs: payload of a packet, `write` or `read`, recovery, and DCQCN (None: off).

    `window_bytes` 0 is no window, `tick_ns` how much the program that runs them joins.
    """

    mtu: int
    operation: str
    recovery: str
    message_bytes: int
    window_bytes: int
    ack_timeout_ns: int
    tick_ns: int
    dcqcn: Parameters | None


@dataclass(frozen=True)
class Transport:
    """How transfers are carried, and TCP as the hosts run it: ECN negotiation, shortest RTO.

    `kind` is `tcp`, with Linux's `congestion_control`, or `roce`, with `roce` given and the name of DCQCN's
    parameter set.
    """

    kind: str
    congestion_control: str
    ecn: bool
    rto_min_ns: int
    roce: Roce | None = None

    @property
    def tcp_congestion_control(self) -> str:
        """What TCP connections use: the transfers', or beside RoCE the background's."""
        return self.congestion_control if self.kind == "tcp" else "dctcp"


@dataclass(frozen=True)
class Pin:
    """What host `src` sends to host `dst` (None: to all) over a spine goes over this one."""

    src: str
    dst: str | None
    spine: str


@dataclass(frozen=True)
class Routing:
    """How leaves choose a spine: policy `ecmp` hashes `hash_fields`, seeded by `hash_seed`.

    Each leaf's own seed follows from `hash_seed`; with `polarised` all leaves have this one. `pinned` is
    empty but for policy `pinned`, `poll_ns` (how often port counters are read) 0 but for `least-loaded`.
    """

    policy: str
    hash_fields: tuple[str, ...]
    hash_seed: int
    pinned: tuple[Pin, ...] = ()
    poll_ns: int = 0

    @property
    def words(self) -> str:
        """The policy and what it goes by, for a person."""
        if self.policy == "least-loaded":
            return f"least-loaded, port counters read every {self.poll_ns / 1e6:g} ms"
        pins = [f"{pin.src} to {pin.dst or 'all'} over {pin.spine}" for pin in self.pinned]
        by_hash = f"by hash of {', '.join(self.hash_fields)}"
        return f"{self.policy} ({'; '.join(pins)}), others {by_hash}" if pins else f"{self.policy}, {by_hash}"


@dataclass(frozen=True)
class Transfer:
    """One KV transfer: `bytes` of payload from `src` to `dst`, ready to leave at `start_ns`.

    `wire_bytes` counts headers as the queues do. `ideal_ns` is the time it takes alone on an idle
    fabric: wire bytes over the slowest link of its path, plus the path's propagation delay.
    `pace_bps` is the rate at which the sender paces its payload, 0 for as fast as TCP goes. `src_gpu`,
    `dst_gpu`, `src_nic` and `dst_nic` count from 1 within their hosts. It carries KV of the serving engine's
    `request`.
    """

    id: int
    src: str
    dst: str
    bytes: int
    wire_bytes: int
    start_ns: int
    src_port: int
    dst_port: int
    ideal_ns: int
    pace_bps: int = 0
    src_gpu: int = 1
    dst_gpu: int = 1
    src_nic: int = 1
    dst_nic: int = 1
    request: int = NO_REQUEST


@dataclass(frozen=True)
class BackgroundFlow:
    """An iperf3 flow beside the transfers. `rate_bps` 0 means as fast as TCP goes."""

    id: int
    src: str
    dst: str
    protocol: str
    rate_bps: int
    start_ns: int
    duration_ns: int
    port: int
    src_nic: int = 1
    dst_nic: int = 1


@dataclass(frozen=True)
class Measure:
    """How often queues (`interval_ns`) and transfers (`progress_ns`) are sampled.

    `departures` are the links of which every packet is recorded as it leaves.
    """

    interval_ns: int
    progress_ns: int
    departures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Deadline:
    """When a run that has not ended is given up: in scenario time and in real seconds."""

    scenario_ns: int
    real_s: float


@dataclass(frozen=True)
class Skipped:
    """So many rows of a trace could not be used, for one reason."""

    reason: str
    rows: int


@dataclass(frozen=True)
class Workload:
    """What the transfers stand for: requests of which `source`, their tokens, and their KV in full.

    `kv_bytes` is what the prompts' KV would be; transfers carry `scale` times that. The first and the last
    request arrive at `first_ns` and `last_ns`.
    """

    source: str
    requests: int
    prompt_tokens: int
    output_tokens: int
    kv_bytes: int
    scale: float
    first_ns: int
    last_ns: int
    skipped: tuple[Skipped, ...]


@dataclass(frozen=True)
class PausePoint:
    """A queue that pauses: at `xoff_bytes` it has `feeders` stop, at `xon_bytes` it lets them go on.

    Feeders are links whose packets go into the queue. `headroom_bytes` is what may still arrive meanwhile.
    """

    link: str
    xoff_bytes: int
    xon_bytes: int
    headroom_bytes: int
    feeders: tuple[str, ...]


@dataclass(frozen=True)
class Pausing:
    """Where a lossless fabric pauses. A circle of paused ports that lasts `deadlock_ns` is a deadlock."""

    points: tuple[PausePoint, ...]
    deadlock_ns: int


@dataclass(frozen=True)
class Plan:
    """All of a run. `ideal_last_end_ns` is when the last transfer would end with perfect sharing, `loss` the
    share of packets that the fabric loses.

    With `serving` the lab decides when requests are transferred to which host; `transfers` are then what
    would come of it if each transfer had the network for itself.
    `workload` is None where the transfers say it all: their sizes are given, and not scaled.
    `pausing` is None for a fabric that drops. `memory_bytes` is what a guest kernel gets, None as much as
    it needs.
    """

    format_version: int
    scenario: str
    description: str
    seed: int
    backend: str
    clock: str
    dilation: float
    mtu: int
    framework: str
    topology: Topology
    queues: tuple[Queue, ...]
    transport: Transport
    routing: Routing
    transfers: tuple[Transfer, ...]
    background: tuple[BackgroundFlow, ...]
    measure: Measure
    deadline: Deadline
    ideal_last_end_ns: int
    expectations: tuple[str, ...]
    serving: Serving | None = None
    workload: Workload | None = None
    loss: float = 0.0
    pausing: Pausing | None = None
    memory_bytes: int | None = None

    def queue(self, link: str) -> Queue:
        """Return the queue of a link or stage; KeyError when there is none."""
        return self._queues[link]

    @cached_property
    def _queues(self) -> dict[str, Queue]:
        return {queue.link: queue for queue in self.queues}

    @property
    def crossing(self) -> tuple[int, ...]:
        """The ids of the transfers at one of whose ends a GPU uses a NIC that is not its own."""
        host = {host.name: host for host in self.topology.hosts}
        return tuple(
            item.id
            for item in self.transfers
            if not host[item.src].owns(item.src_gpu, item.src_nic)
            or not host[item.dst].owns(item.dst_gpu, item.dst_nic)
        )
