"""Checks across keys: what no single value can tell. Called by the loader once every value is valid.

Each check yields problems at the key a person would change. Nothing here reads files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from testbed.scenario import lossless, serving_rules, workload_rules
from testbed.scenario.expectation import Expectation, parse_expectation
from testbed.scenario.expression import Constant, Key, Word
from testbed.scenario.lossless import ETHERNET_BYTES
from testbed.scenario.models import Background, Pin, Queue, Scenario, Transfer
from testbed.scenario.nic_rules import leaves_of, nic_number_problems, nic_problems
from testbed.scenario.placement import landing_rate_bps, leaf_spine, place_hosts
from testbed.scenario.problems import Problem
from testbed.scenario.summary_keys import Names, keys_below, unknown_key, words_of
from testbed.scenario.transport import transport_problems
from testbed.scenario.tree import Path
from testbed.units import format_bytes, format_rate
from topologies import build_leaf_spine

FEW = 12
"""So many names are listed in a message."""

LANDING_MIN_BPS = 1_000_000
"""The lowest rate that a scenario may give any link or stage."""


def problems(scenario: Scenario) -> Iterator[Problem]:
    """Yield everything that is wrong across keys."""
    for path, queue in _queues(scenario):
        yield from _queue(path, queue, scenario.fabric.mtu)
    yield from _repeats(("hosts", "prefill", "leaves"), scenario.hosts.prefill.leaves)
    yield from _repeats(("hosts", "decode", "leaves"), scenario.hosts.decode.leaves)
    yield from _repeats(("routing", "hash_fields"), scenario.routing.hash_fields)
    yield from _loss(scenario)
    yield from _transport(scenario)
    yield from _routing(scenario)
    yield from nic_problems(scenario)
    yield from _hosts(scenario)
    yield from _landing(scenario)
    yield from lossless.problems(scenario)
    yield from _slow_rails(scenario)
    yield from _latencies(scenario)
    yield from _workload(scenario)
    yield from _departures(scenario)
    yield from workload_rules.problems(scenario)
    yield from serving_rules.problems(scenario)
    yield from _expectations(scenario)


def _loss(scenario: Scenario) -> Iterator[Problem]:
    """Packets are lost where they are delayed."""
    fabric = scenario.fabric
    if fabric.loss and not fabric.host_link.delay_ns:
        allowed = "leave it out, or give host_link a delay of 1ns or more"
        yield Problem(("fabric", "loss"), "needs links that take time", allowed)


def _transport(scenario: Scenario) -> Iterator[Problem]:
    fabric, routing = scenario.fabric, scenario.routing
    given = routing.hash_fields if "hash_fields" in routing.model_fields_set else None
    yield from transport_problems(scenario.transport, fabric.mtu, fabric.host_link.rate_bps, given)


def _departures(scenario: Scenario) -> Iterator[Problem]:
    """Links that are none, of which departures are to be recorded."""
    yield from _repeats(("measure", "departures"), scenario.measure.departures)
    try:
        names = [link.name for link in build_leaf_spine(leaf_spine(scenario)).links]
    except ValueError:
        return  # said elsewhere
    for number, name in enumerate(scenario.measure.departures):
        if name not in names:
            few = f": {', '.join(names)}" if len(names) <= FEW else ", as leaf1-d1"
            yield Problem(("measure", "departures", number), "is no link", f"a link{few}", tuple(names))


def _expectations(scenario: Scenario) -> Iterator[Problem]:
    """What can never hold because no summary of the scenario has it."""
    if not scenario.expect:
        return
    try:
        links = [link.name for link in build_leaf_spine(leaf_spine(scenario)).all_links]
    except ValueError:
        return  # said elsewhere
    names = Names(links, host_names(scenario))
    for number, text in enumerate(scenario.expect):
        wanted, path = parse_expectation(text), ("expect", number)
        for key in wanted.keys:
            yield from _summary_key(path, key.keys, names)
        yield from _answer(path, wanted, names)


def _summary_key(path: Path, keys: tuple[str, ...], names: Names) -> Iterator[Problem]:
    unknown = unknown_key(keys, names)
    if unknown is not None:
        few = f": {', '.join(unknown.options)}" if 0 < len(unknown.options) <= FEW else ""
        allowed = f"the keys of {unknown.above}{few}" if unknown.options else "no key stands below it"
        wrong = f"asks {unknown.above} for {unknown.key!r}"
        yield Problem(path, wrong, allowed, unknown.options, sought=unknown.key)
    elif below := keys_below(keys):
        wrong = f"compares {'.'.join(keys)}, which is not a single value"
        yield Problem(path, wrong, f"its keys are {', '.join(below)}")


def _answer(path: Path, wanted: Expectation, names: Names) -> Iterator[Problem]:
    """An answer that names nothing: no segment where a segment stands, no link where a link does."""
    words = tuple(words_of(wanted.left.keys, names)) if isinstance(wanted.left, Key) else ()
    if not words or not isinstance(wanted.right, Word | Constant):
        return
    value = wanted.right.value
    if value is not None and value not in words:
        few = ", ".join(words) if len(words) <= FEW else "a link, as leaf1-d1,"
        text = value if isinstance(value, str) else ""
        answer = repr(value) if text else "that"
        yield Problem(path, f"can never hold: {answer} is no answer", f"{few} or null", words, sought=text)


def _queues(scenario: Scenario) -> Iterator[tuple[Path, Queue]]:
    fabric = scenario.fabric
    yield ("fabric", "queue"), fabric.queue
    for key, layer in (("host_link", fabric.host_link), ("fabric_link", fabric.fabric_link)):
        if layer.queue is not None:
            yield ("fabric", key, "queue"), layer.queue


def _queue(path: Path, queue: Queue, mtu: int) -> Iterator[Problem]:
    packet = mtu + ETHERNET_BYTES
    if queue.kmin_bytes < packet:
        allowed = f"at least mtu + {ETHERNET_BYTES}, {packet}b"
        yield Problem((*path, "kmin"), "is less than one packet", allowed)
    sizes = {"kmin": queue.kmin_bytes, "kmax": queue.kmax_bytes, "xoff": queue.xoff_bytes or 0}
    bounds = {"kmin": "kmax", "kmax": "limit", "xoff": "limit"}
    sizes["limit"] = queue.limit_bytes
    for low, high in bounds.items():
        if sizes[low] > sizes[high]:
            yield Problem(
                (*path, low),
                f"is above {high}",
                f"at most {high}, {format_bytes(sizes[high])}",
                default=format_bytes(sizes[low]),
                beside=((*path, high),),
            )


def _repeats(path: Path, values: tuple[object, ...]) -> Iterator[Problem]:
    for number, value in enumerate(values):
        if value in values[:number]:
            yield Problem((*path, number), "is repeated", "name each once")


def _hosts(scenario: Scenario) -> Iterator[Problem]:
    placement, hosts, leaves = place_hosts(scenario), scenario.hosts, scenario.fabric.leaves
    if hosts.on_rails:
        return  # where NICs hang is checked with them
    unknown = [
        *_leaves("prefill", hosts.prefill.leaves, leaves),
        *_leaves("decode", hosts.decode.leaves, leaves),
        *_leaves("store", hosts.store.leaves, leaves),
    ]
    if unknown:
        yield from unknown
    elif len(placement.prefill_leaves) < hosts.prefill.count:
        yield _no_room(scenario, "prefill", hosts.prefill.count, len(hosts.prefill.leaves))
    elif len(placement.decode_leaves) < hosts.decode.count:
        yield _no_room(scenario, "decode", hosts.decode.count, len(hosts.decode.leaves))
    elif len(placement.store_leaves) < hosts.store.count:
        yield _no_room(scenario, "store", hosts.store.count, len(hosts.store.leaves))
    else:
        yield from _names(scenario)


def _leaves(role: str, numbers: tuple[int, ...], leaves: int) -> Iterator[Problem]:
    for index, number in enumerate(numbers):
        if number > leaves:
            yield Problem(("hosts", role, "leaves", index), "is no leaf", f"1 to {leaves}")


def _no_room(scenario: Scenario, role: str, count: int, listed: int) -> Problem:
    fabric, hosts = scenario.fabric, scenario.hosts
    leaves = listed or fabric.leaves
    return Problem(
        ("hosts", role, "count"),
        "is more than there are free slots",
        f"{hosts.prefill.count} prefill and {hosts.decode.count} decode hosts share the slots, and "
        f"{leaves} x hosts_per_leaf {fabric.hosts_per_leaf}{_each(hosts.nics)} are "
        f"{leaves * (fabric.hosts_per_leaf // hosts.nics)}",
        default=str(count),
        beside=(
            ("hosts", role, "leaves"),
            ("hosts", "prefill", "count"),
            ("fabric", "hosts_per_leaf"),
            ("fabric", "leaves"),
        ),
    )


def _each(nics: int) -> str:
    return f" / nics_per_host {nics}" if nics > 1 else ""


def _names(scenario: Scenario) -> Iterator[Problem]:
    try:
        build_leaf_spine(leaf_spine(scenario))
    except ValueError as error:
        # The sizes are right one by one; what is left is a name that their digits make too long.
        wrong, _, allowed = str(error).partition(": ")
        yield Problem(("fabric", "leaves"), f"cannot be built: {wrong}", allowed)


def host_names(scenario: Scenario) -> tuple[str, ...]:
    """Return the names of all hosts: p1, p2, ..., d1, d2, ..."""
    prefill = (f"p{number}" for number in range(1, scenario.hosts.prefill.count + 1))
    decode = (f"d{number}" for number in range(1, scenario.hosts.decode.count + 1))
    store = (f"s{number}" for number in range(1, scenario.hosts.store.count + 1))
    return (*prefill, *decode, *store)


def _slow_rails(scenario: Scenario) -> Iterator[Problem]:
    names, spec, seen = host_names(scenario), leaf_spine(scenario), set[tuple[str, int]]()
    for number, item in enumerate(scenario.hosts.slow_rails):
        path: Path = ("hosts", "slow_rails", number)
        if item.host not in names:
            yield Problem((*path, "host"), "is no host", _spans(names), names)
        yield from _gpu((*path, "gpu"), item.gpu, scenario)
        stage = spec.rail if item.host.startswith("p") else spec.landing
        if item.gpu and stage and stage.shared:
            yield Problem((*path, "gpu"), "shares its way with the host's other GPUs", "leave it out")
        if item.rate_bps >= spec.host_rate_bps:
            allowed = f"below host_link.rate, {format_rate(spec.host_rate_bps)}"
            yield Problem((*path, "rate"), "is not slower than the NIC", allowed)
        if (item.host, item.gpu) in seen:
            yield Problem((*path, "host"), "is repeated", "name each host and GPU once")
        seen.add((item.host, item.gpu))


def _latencies(scenario: Scenario) -> Iterator[Problem]:
    spec, hosts = leaf_spine(scenario), scenario.hosts
    ways = {
        "prefill": (hosts.prefill.latency_ns, spec.rail),
        "decode": (hosts.decode.latency_ns, spec.landing),
    }
    for role, (latency_ns, stage) in ways.items():
        if latency_ns and stage is None:
            wrong = "belongs to no stage: the way is as fast as the NIC"
            allowed = "leave it out, or give the way to the GPU a rate below that of the NIC"
            yield Problem(("hosts", role, "latency"), wrong, allowed)


def _landing(scenario: Scenario) -> Iterator[Problem]:
    """What is left of a rate beside the placing of blocks can be nothing, and no stage has that rate."""
    decode = scenario.hosts.decode
    rate_bps = landing_rate_bps(scenario, decode.nic_to_gpu.rate_bps)
    if rate_bps < LANDING_MIN_BPS:
        yield Problem(
            ("hosts", "decode", "block_cost"),
            f"leaves {format_rate(rate_bps)} to land a block of {format_bytes(decode.block_bytes)}",
            f"at least {format_rate(LANDING_MIN_BPS)}: shorten it, or enlarge block",
        )


def _gpu(path: Path, gpu: int | None, scenario: Scenario) -> Iterator[Problem]:
    if gpu is not None and gpu > scenario.hosts.gpus:
        yield Problem(path, "is no GPU", f"1 to gpus_per_host, {scenario.hosts.gpus}")


def _routing(scenario: Scenario) -> Iterator[Problem]:
    routing, path = scenario.routing, ("routing", "hash_fields")
    if not routing.hash_fields:
        yield Problem(path, "is empty", "name at least one field")
    elif not routing.hashed:
        allowed = "polarised hashes these only: ipv4_dst, tcp_dst, udp_dst"
        yield Problem(path, "has no field of the destination", allowed, show=False)
    if routing.pinned and routing.policy != "pinned":
        allowed = "leave it out, or set routing.policy to pinned"
        yield Problem(("routing", "pinned"), f"stands beside policy {routing.policy}", allowed, show=False)
    if routing.policy == "pinned" and not routing.pinned:
        yield Problem(("routing", "policy"), "pins no path", "list at least one in routing.pinned")
    yield from _repeats(("routing", "pinned"), tuple((pin.source, pin.destination) for pin in routing.pinned))
    for number, pin in enumerate(routing.pinned):
        yield from _pin(("routing", "pinned", number), pin, scenario)


def _pin(path: Path, pin: Pin, scenario: Scenario) -> Iterator[Problem]:
    names, leaves, spines = host_names(scenario), leaves_of(scenario), scenario.fabric.spines
    if pin.spine > spines:
        yield Problem((*path, "spine"), "is no spine", f"1 to {spines}")
    ends = {"from": pin.source} if pin.destination is None else {"from": pin.source, "to": pin.destination}
    unknown = [key for key, name in ends.items() if name not in names]
    for key in unknown:
        yield Problem((*path, key), "is no host", _spans(names), names)
    targets = names if pin.destination is None else (pin.destination,)
    reached = set().union(*(leaves.get(name, set()) for name in (pin.source, *targets)))
    if not unknown and len(reached) == 1:
        wrong = "has all hosts on its leaf" if targets == names else "is on the same leaf"
        yield Problem((*path, list(ends)[-1]), wrong, "only what goes to another leaf crosses a spine")


def _workload(scenario: Scenario) -> Iterator[Problem]:
    workload = scenario.workload
    path: Path = ("workload",)
    if workload.requests is not None and workload.transfers:
        yield Problem((*path, "transfers"), "stands beside requests", "give one of the two", show=False)
    if workload.requests is None and not workload.transfers:
        yield Problem(path, "has no transfer", "give requests or transfers", show=False)
    names = host_names(scenario)
    for number, transfer in enumerate(workload.transfers):
        yield from _ends((*path, "transfers", number), transfer, names)
        yield from _gpu((*path, "transfers", number, "from_gpu"), transfer.source_gpu, scenario)
        yield from _gpu((*path, "transfers", number, "to_gpu"), transfer.destination_gpu, scenario)
        yield from nic_number_problems((*path, "transfers", number), transfer, scenario)
    yield from _source_ports(workload.transfers)
    for number, flow in enumerate(workload.background):
        yield from _ends((*path, "background", number), flow, names)
        yield from nic_number_problems((*path, "background", number), flow, scenario)
        if flow.protocol == "udp" and flow.rate_bps is None:
            at = (*path, "background", number, "rate")
            yield Problem(at, "is missing", "a udp flow needs the rate it sends at")


def _source_ports(transfers: Sequence[Transfer]) -> Iterator[Problem]:
    """A transfer is known by its host's address and its port."""
    seen: set[tuple[str, int]] = set()
    for number, transfer in enumerate(transfers):
        if transfer.source_port is None:
            continue
        end = transfer.source, transfer.source_port
        if end in seen:
            wrong = f"is already that of another transfer from {transfer.source}"
            yield Problem(("workload", "transfers", number, "from_port"), wrong, "name another port")
        seen.add(end)


def _ends(path: Path, flow: Transfer | Background, names: tuple[str, ...]) -> Iterator[Problem]:
    for key, name in (("from", flow.source), ("to", flow.destination)):
        if name not in names:
            yield Problem((*path, key), "is no host", _spans(names), names)
    if flow.source == flow.destination:
        yield Problem((*path, "to"), "is the sender itself", "name another host")


def _spans(names: tuple[str, ...]) -> str:
    roles = [[name for name in names if name.startswith(letter)] for letter in "pds"]
    spans = [f"{role[0]} to {role[-1]}" if len(role) > 1 else role[0] for role in roles if role]
    return f"the hosts are {' and '.join(spans)}"
