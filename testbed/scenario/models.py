"""The scenario as frozen pydantic models: every key once, with its type, default, range and meaning.

The reference table (docs/scenario-reference.md) and all checks of single values come from here. Field
names carry units, keys (their aliases) do not, as their values do. Checks across keys are in
`testbed.scenario.rules`, files and places in `testbed.scenario.loader`.
"""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Annotated

from pydantic import PrivateAttr

from testbed.errors import InputError
from testbed.scenario.kinds import (
    Choice,
    Duration,
    Expression,
    Factor,
    Name,
    Number,
    Rate,
    Size,
    Stretch,
    Text,
    Whole,
)
from testbed.scenario.problems import Problem, input_error
from testbed.scenario.rails import RailPreset
from testbed.scenario.sections import Section, option, required, section, several, unset
from testbed.scenario.serving_keys import ConnectorKeys, DecodeKeys, PlacementKeys, PrefillKeys, SloKeys
from testbed.scenario.transport import Transport
from testbed.scenario.tree import Leaf, Node, Path, Place, Table, find, named_file, nearest_place
from testbed.scenario.workload import ModelChoice, Requests, TensorParallel
from traffic.kv import DTYPES

HOSTS_MAX = 64 * 250
GPUS_MAX = 16
NICS_MAX = 8
SOURCE_PORT_FIRST = 20_000
SOURCE_PORTS = 40_000
"""A source's transfers have the ports 20000 to 59999: below Linux's own choice (`lab.hosts`)."""


class Queue(Section):
    """Marking and drop thresholds of a switch port's queue."""

    kmin_bytes: Annotated[int, Size("64b", "1gb")] = option(
        "kmin", "100kb", "backlog from which packets are marked (ECN); equal to kmax: a step, as for DCTCP"
    )
    kmax_bytes: Annotated[int, Size("64b", "1gb")] = option(
        "kmax", "400kb", "backlog from which every packet is marked"
    )
    pmax: Annotated[float, Number(0, 1, above=True)] = option(
        "pmax", "0.2", "marking probability just below kmax"
    )
    limit_bytes: Annotated[int, Size("64b", "4gb")] = option(
        "limit", "8mb", "backlog from which packets are dropped"
    )
    xoff_bytes: Annotated[int | None, Size("64b", "4gb", optional=True)] = unset(
        "xoff",
        "backlog at which PFC pauses, or would pause, those that send into the queue; left out: a quarter of "
        "the limit in a lossless fabric, not watched otherwise",
    )
    xon_bytes: Annotated[int | None, Size("64b", "4gb", optional=True)] = unset(
        "xon", "backlog at which a pause ends; left out: half of xoff. For a lossless fabric only"
    )
    headroom_bytes: Annotated[int | None, Size("64b", "4gb", optional=True)] = unset(
        "headroom",
        "room between xoff and limit for each port that sends into the queue; left out: what its link "
        "carries until a pause takes effect, and two frames. For a lossless fabric only",
    )


class Layer(Section):
    """The links of one layer, both directions alike."""

    rate_bps: Annotated[int, Rate("1mbit", "1tbit")] = option("rate", "100gbit", "rate of each direction")
    delay_ns: Annotated[int, Duration("0us", "100ms")] = option("delay", "1us", "one-way propagation delay")
    queue: Queue | None = unset("queue", "queue of this layer's ports; keys left out are as in fabric.queue")


class Fabric(Section):
    """A two-tier leaf-spine fabric."""

    leaves: Annotated[int, Whole(1, 64)] = option("leaves", "3", "number of leaf switches")
    spines: Annotated[int, Whole(1, 64)] = option("spines", "2", "number of spine switches")
    hosts_per_leaf: Annotated[int, Whole(1, 250)] = option("hosts_per_leaf", "4", "host ports of each leaf")
    mtu: Annotated[int, Whole(576, 9216)] = option("mtu", "4200", "largest IP packet in bytes")
    loss: Annotated[float, Number(0, 0.5)] = option(
        "loss", "0", "share of all packets lost at random where they enter the fabric"
    )
    lossless: Annotated[str, Choice({"false": "", "true": ""})] = option(
        "lossless", "false", "whether full queues pause those that send into them (PFC), instead of dropping"
    )
    queue: Queue = section("queue", Queue, "queue of every switch port")
    host_link: Layer = section("host_link", Layer, "links between hosts and leaves")
    fabric_link: Layer = section("fabric_link", Layer, "links between leaves and spines")

    @property
    def is_lossless(self) -> bool:
        """Whether queues pause instead of dropping."""
        return self.lossless == "true"

    def queue_of(self, layer: Layer) -> Queue:
        """Return the thresholds that hold for the ports of `layer`."""
        return layer.queue or self.queue


LAYOUTS = {
    "packed": "one leaf is filled after the other",
    "spread": "each leaf gets a host in turn",
}


class Prefill(Section):
    """The hosts that compute and send KV: p1, p2, ..."""

    count: Annotated[int, Whole(1, HOSTS_MAX)] = option("count", "8", "number of prefill hosts")
    leaves: tuple[Annotated[int, Whole(1, 64)], ...] = several(
        "leaves", "leaves the hosts fill in this order; left out: leaf 1 onwards"
    )
    layout: Annotated[str, Choice(LAYOUTS)] = option(
        "layout", "packed", "how the hosts are laid over the leaves"
    )
    gpu_to_nic: Annotated[RailPreset, Stretch()] = option(
        "gpu_to_nic",
        "gdr-same-switch",
        "path from each GPU to the NIC; a stage of its own where it is slower than the NIC",
    )
    far: Annotated[RailPreset, Stretch()] = option(
        "gpu_to_far_nic",
        "gdr-other-numa",
        "path from a GPU to a NIC that hosts.affinity does not give it, for transfers with from_nic",
    )
    latency_ns: Annotated[int | None, Duration("0us", "1s", optional=True)] = unset(
        "latency", "time that path adds to each packet; left out: that of the preset"
    )


class Decode(Section):
    """The hosts that receive KV and decode: d1, d2, ..."""

    count: Annotated[int, Whole(1, HOSTS_MAX)] = option("count", "1", "number of decode hosts")
    leaves: tuple[Annotated[int, Whole(1, 64)], ...] = several(
        "leaves", "leaves the hosts fill in this order; left out: the first without prefill hosts onwards"
    )
    layout: Annotated[str, Choice(LAYOUTS)] = option(
        "layout", "packed", "how the hosts are laid over the leaves"
    )
    nic_to_gpu: Annotated[RailPreset, Stretch()] = option(
        "nic_to_gpu",
        "gdr-same-switch",
        "path from the NIC to each GPU; a stage of its own where it is slower than the NIC",
    )
    far: Annotated[RailPreset, Stretch()] = option(
        "nic_to_far_gpu",
        "gdr-other-numa",
        "path to a GPU from a NIC that hosts.affinity does not give it, for transfers with to_nic",
    )
    latency_ns: Annotated[int | None, Duration("0us", "1s", optional=True)] = unset(
        "latency", "time that path adds to each packet; left out: that of the preset"
    )
    buffer_bytes: Annotated[int, Size("16kb", "4gb")] = option(
        "buffer",
        "4mb",
        "receive buffer before the GPU: what does not fit is dropped, TCP's window is no larger",
    )
    block_bytes: Annotated[int, Size("1kib", "1gib")] = option(
        "block", "64kib", "unit in which KV is placed in the GPU's memory"
    )
    block_cost_ns: Annotated[int, Duration("0us", "1s")] = option(
        "block_cost", "0us", "time to place one block, during which the next one waits"
    )


class Store(Section):
    """The hosts by way of which a connector hands KV over: s1, s2, ..."""

    count: Annotated[int, Whole(0, HOSTS_MAX)] = option("count", "0", "number of store hosts")
    leaves: tuple[Annotated[int, Whole(1, 64)], ...] = several(
        "leaves", "leaves the hosts fill in this order; left out: the ports that other hosts left free"
    )
    layout: Annotated[str, Choice(LAYOUTS)] = option(
        "layout", "packed", "how the hosts are laid over the leaves"
    )


class SlowRail(Section):
    """One host, or one GPU of it, that is slower than the others."""

    host: Annotated[str, Text(1, 15)] = required("host", "the host, as p3")
    gpu: Annotated[int, Whole(0, GPUS_MAX)] = option("gpu", "0", "its GPU, counted from 1; 0: all of them")
    rate_bps: Annotated[int, Rate("1mbit", "1tbit")] = required("rate", "rate between the GPU and the NIC")


class Hosts(Section):
    """Both roles."""

    gpus: Annotated[int, Whole(1, GPUS_MAX)] = option("gpus_per_host", "1", "GPUs that share a host's NICs")
    nics: Annotated[int, Whole(1, NICS_MAX)] = option(
        "nics_per_host", "1", "NICs of each host, each with a leaf port and an address of its own"
    )
    rail_optimised: Annotated[
        str,
        Choice(
            {"false": "all NICs of a host hang on one leaf", "true": "NIC i of every host hangs on leaf i"}
        ),
    ] = option("rail_optimised", "false", "where the NICs hang")
    affinity: tuple[Annotated[int, Whole(1, NICS_MAX)], ...] = several(
        "affinity", "the NIC, counted from 1, of each GPU in turn; left out: the GPUs in equal blocks"
    )
    slow_rails: tuple[SlowRail, ...] = several("slow_rails", "hosts or GPUs slower than the others")
    prefill: Prefill = section("prefill", Prefill, "hosts that send KV")
    decode: Decode = section("decode", Decode, "hosts that receive KV")
    store: Store = section("store", Store, "hosts that keep KV on its way; for connectors with a store")

    @property
    def on_rails(self) -> bool:
        """Whether NIC i of every host hangs on leaf i."""
        return self.rail_optimised == "true"


HASH_FIELDS = ("ipv4_src", "ipv4_dst", "tcp_src", "tcp_dst", "udp_src", "udp_dst")


class Pin(Section):
    """The spine for what one host sends."""

    source: Annotated[str, Text(1, 15)] = required("from", "sending host, as p1")
    destination: Annotated[str | None, Text(1, 15, optional=True)] = unset(
        "to", "receiving host, as d1; left out: all that the sender's other entries do not name"
    )
    spine: Annotated[int, Whole(1, 64)] = required("spine", "number of the spine, from 1")


_POLICIES = {
    "ecmp": "a hash of hash_fields chooses the spine of each flow; every leaf has a seed of its own, so that "
    "what meets on one spine from one leaf does not from another",
    "pinned": "what routing.pinned lists takes the spine that stands there, a hot path on purpose; all other "
    "flows go by ecmp",
    "polarised": "all leaves hash with one function and one seed, and only the destination's fields of "
    "hash_fields. Hash polarisation is that switches one after another choose by the same hash, so that what "
    "one sent the same way the next does not spread. In a two-tier fabric a packet meets one choice only, "
    "its leaf's, and what is left of it is between the leaves: flows to one host and port agree in "
    "the hash at every leaf, so all of them meet on one link from one spine, and the other spines' links to "
    "that leaf stand idle. With the sender's fields in the hash no two flows would agree, and one seed "
    "for all leaves would make no difference",
    "least-loaded": "the controller places each new flow, when its first packet comes, on the spine whose "
    "two links towards the destination are least loaded: what they sent between the last two readings of the "
    "switches' port counters, and a host link's rate for each flow placed of late. It stays there. Measured "
    "in virtual time, that packet's way over the controller takes 2 us, as does its answer's; a transfer "
    "connects 2 ms before it starts and is not held up. A udp flow's first packets, for up to 5 ms, "
    "all pass through Open vSwitch's slow path",
}


class Routing(Section):
    """How leaves choose a spine."""

    policy: Annotated[str, Choice(_POLICIES)] = option("policy", "ecmp", "how a leaf chooses a spine")
    hash_fields: tuple[Annotated[str, Choice(dict.fromkeys(HASH_FIELDS, ""))], ...] = several(
        "hash_fields",
        "header fields that are hashed; with roce the default has the ports of udp",
        HASH_FIELDS[:4],
    )
    pinned: tuple[Pin, ...] = several("pinned", "the paths of policy pinned")
    poll_ns: Annotated[int, Duration("100us", "1s")] = option(
        "poll", "1ms", "how often the controller reads port counters; for least-loaded only"
    )

    @property
    def hashed(self) -> tuple[str, ...]:
        """The fields that leaves hash: with `polarised` the destination's only."""
        if self.policy != "polarised":
            return self.hash_fields
        return tuple(name for name in self.hash_fields if name.endswith("_dst"))


class Transfer(Section):
    """One transfer written out."""

    source: Annotated[str, Text(1, 15)] = required("from", "sending host, as p1")
    destination: Annotated[str, Text(1, 15)] = required("to", "receiving host, as d1")
    size_bytes: Annotated[int, Size("1b", "1tib")] = required("bytes", "payload")
    start_ns: Annotated[int, Duration("0us", "60min")] = option("start", "0us", "when it is ready to leave")
    source_gpu: Annotated[int | None, Whole(1, GPUS_MAX, optional=True)] = unset(
        "from_gpu", "sending GPU, counted from 1; left out: the host's GPUs in turn"
    )
    destination_gpu: Annotated[int | None, Whole(1, GPUS_MAX, optional=True)] = unset(
        "to_gpu", "receiving GPU, counted from 1; left out: the host's GPUs in turn"
    )
    source_nic: Annotated[int | None, Whole(1, NICS_MAX, optional=True)] = unset(
        "from_nic", "sending NIC, counted from 1; left out: the one that hosts.affinity gives the GPU"
    )
    destination_nic: Annotated[int | None, Whole(1, NICS_MAX, optional=True)] = unset(
        "to_nic", "receiving NIC, counted from 1; left out: the one that hosts.affinity gives the GPU"
    )
    source_port: Annotated[
        int | None, Whole(SOURCE_PORT_FIRST, SOURCE_PORT_FIRST + SOURCE_PORTS - 1, optional=True)
    ] = unset(
        "from_port",
        "the sender's port (roce: the queue pair's), which leaves hash; left out: the host's next free one",
    )
    pace_bps: Annotated[int | None, Rate("1mbit", "1tbit", optional=True)] = unset(
        "rate", "the sender paces its payload at this rate; left out: as fast as TCP goes"
    )


class Background(Section):
    """One iperf3 flow beside the transfers."""

    source: Annotated[str, Text(1, 15)] = required("from", "sending host, as p1")
    destination: Annotated[str, Text(1, 15)] = required("to", "receiving host, as d1")
    source_nic: Annotated[int, Whole(1, NICS_MAX)] = option("from_nic", "1", "sending NIC, counted from 1")
    destination_nic: Annotated[int, Whole(1, NICS_MAX)] = option(
        "to_nic", "1", "receiving NIC, counted from 1"
    )
    protocol: Annotated[str, Choice({"tcp": "", "udp": ""})] = option(
        "protocol", "tcp", "protocol of the flow"
    )
    rate_bps: Annotated[int | None, Rate("1kbit", "1tbit", optional=True)] = unset(
        "rate", "sending rate; required for udp, left out for tcp: as fast as TCP goes"
    )
    start_ns: Annotated[int, Duration("0us", "60min")] = option("start", "0us", "when it starts")
    duration_ns: Annotated[int, Duration("1us", "60min")] = required("duration", "how long it sends")


class Scale(Section):
    """Factors that shrink a workload."""

    size_factor: Annotated[float, Factor(0, 1, above=True)] = option(
        "bytes", "1", "factor on the size of every transfer; nothing becomes less than one byte"
    )
    time_factor: Annotated[float, Factor(0, 1, above=True)] = option(
        "time",
        "1",
        "factor on the arrivals, prefill times, decode steps and promises of requests; equal to bytes, what "
        "serving takes and what transfers take stay in proportion",
    )


class Workload(Section):
    """What is transferred: `requests` or `transfers`, one of the two."""

    model: ModelChoice | None = unset(
        "model", "the model whose KV moves; a single word is its name, and with kv_bytes a label only"
    )
    dtype: Annotated[str | None, Choice(dict.fromkeys(DTYPES, ""), optional=True)] = unset(
        "dtype", "elements of the KV cache; left out: those of the model, bf16 for a name in the table"
    )
    tensor_parallel: TensorParallel = section(
        "tensor_parallel", TensorParallel, "over how many GPUs each side cuts the model"
    )
    connector: ConnectorKeys = section("connector", ConnectorKeys, "how KV is handed over")
    placement: PlacementKeys = section("placement", PlacementKeys, "which decode host serves a request")
    prefill: PrefillKeys = section("prefill", PrefillKeys, "the time before there is KV")
    decode: DecodeKeys = section("decode", DecodeKeys, "the time after KV has landed")
    slo: SloKeys = section("slo", SloKeys, "what is promised")
    requests: Requests | None = unset("requests", "generated requests")
    transfers: tuple[Transfer, ...] = several("transfers", "transfers written out, instead of requests")
    background: tuple[Background, ...] = several("background", "iperf3 flows beside the transfers")
    scale: Scale = section("scale", Scale, "shrinks the workload")


class Controller(Section):
    """The OpenFlow controller."""

    framework: Annotated[str, Choice({"os-ken": "", "ryu": ""})] = option(
        "framework", "os-ken", "framework the controller runs on"
    )


class Measure(Section):
    """How often is sampled."""

    interval_ns: Annotated[int, Duration("1us", "1s")] = option(
        "interval", "20us", "between two samples of every queue"
    )
    progress_ns: Annotated[int, Duration("1us", "1s")] = option(
        "progress", "100us", "longest time between two records of a receiving transfer"
    )
    departures: tuple[Annotated[str, Text(1, 31)], ...] = several(
        "departures", "links of which every packet is recorded as it leaves: time, size, ECN"
    )


class Deadline(Section):
    """When a run that has not ended is given up."""

    scenario_ns: Annotated[int | None, Duration("1us", "1440min", optional=True)] = unset(
        "scenario", "in scenario time; left out: 20 times the ideal duration and 2 s"
    )
    real_ns: Annotated[int, Duration("1s", "1440min")] = option("real", "600s", "in real time")


class Scenario(Section):
    """A whole scenario. `where` and `error` speak of the file it was read from."""

    name: Annotated[
        str,
        Name(r"[a-z0-9][a-z0-9-]{0,47}", "1 to 48 of a-z, 0-9 and '-', not starting with '-'"),
    ] = required("name", "names the run's directory and the report")
    description: Annotated[str, Text(0, 500)] = option(
        "description", "", "one sentence for lists and reports"
    )
    fabric: Fabric = section("fabric", Fabric, "the switches and links")
    hosts: Hosts = section("hosts", Hosts, "the servers")
    transport: Transport = section("transport", Transport, "the transport protocol")
    routing: Routing = section("routing", Routing, "the choice of paths")
    workload: Workload = section("workload", Workload, "the transfers")
    controller: Controller = section("controller", Controller, "the OpenFlow controller")
    measure: Measure = section("measure", Measure, "the sampling")
    memory_bytes: Annotated[int | None, Size("64mib", "1tib", optional=True)] = unset(
        "memory",
        "memory of the guest kernel, with backend uml; left out: what the plan needs. "
        "Another size gives other exact values",
    )
    dilation: Annotated[float, Number(1, 1_000_000)] = option(
        "dilation", "1", "slows everything by this factor; with the real clock only"
    )
    deadline: Deadline = section("deadline", Deadline, "when to give up")
    expect: tuple[Annotated[str, Expression()], ...] = several(
        "expect", "expectations of the summary, see below"
    )
    _tree: Node = PrivateAttr(default_factory=lambda: Table({}, Place(0, 0, "scenario")))

    @classmethod
    def at(cls, data: object, tree: Node) -> Scenario:
        """Return the scenario of validated `data` that was read from `tree`; pydantic.ValidationError."""
        scenario = cls.model_validate(data)
        scenario._tree = tree
        return scenario

    @property
    def tree(self) -> Node:
        """What was read: the file with `extends` merged and `--set` applied."""
        return self._tree

    @property
    def expect_places(self) -> tuple[str, ...]:
        """Where each expectation is written, as `file:line`."""
        numbers = range(len(self.expect))
        return tuple(str(nearest_place(self._tree, ("expect", number))) for number in numbers)

    def file(self, path: Path) -> FilePath:
        """Return the file that the value at `path` names, seen from the scenario file it stands in."""
        node = find(self._tree, path)
        assert isinstance(node, Leaf)
        return named_file(node)

    def error(self, *problems: Problem) -> InputError:
        """Return the error that reports `problems` at their places in the scenario's files."""
        return input_error(self._tree, problems)
