"""The settings of a run and what it ran on, as tables of names and values.

Reads the plan and the record's environment; judges nothing. Called by `testbed.report.page`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.plan.model import Plan, Queue, Roce, Workload
from testbed.report.numbers import format_bytes, format_count, format_ns, format_rate, significant
from topologies.model import SEGMENTS, Host, Link, Topology

NAMES_MOST = 4
"""So many names are listed before the rest is counted."""


@dataclass(frozen=True)
class Table:
    """A heading with rows of a name and a value."""

    heading: str
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class QueueKind:
    """Queues of one segment that have the same settings."""

    segment: str
    links: tuple[str, ...]
    queue: Queue
    rate_bps: int
    delay_ns: int

    @property
    def names(self) -> str:
        """The links' names, shortened."""
        return some(self.links)


def some(names: Sequence[str]) -> str:
    """Return names as a list, of which all after the first few are only counted."""
    shown = ", ".join(names[:NAMES_MOST])
    rest = len(names) - NAMES_MOST
    return f"{shown} and {rest} more" if rest > 0 else shown


def setting_tables(plan: Plan) -> tuple[Table, ...]:
    """Return the plan's settings; queues are in `queue_kinds`."""
    return (
        Table("Run", tuple(_run(plan))),
        Table("Fabric", tuple(_fabric(plan.topology, plan.mtu))),
        Table("Transport and routing", tuple(_transport(plan))),
        Table("Workload", tuple(_workload(plan))),
        Table("Measurement", tuple(_measurement(plan))),
    )


def queue_kinds(plan: Plan) -> tuple[QueueKind, ...]:
    """Return the plan's queues, alike ones of a segment together, in the order of the path."""
    links = {link.name: link for link in plan.topology.all_links}
    alike: dict[tuple[object, ...], list[Queue]] = {}
    for queue in plan.queues:
        link = links[queue.link]
        alike.setdefault((link.segment, link.rate_bps, link.delay_ns, *_settings(queue)), []).append(queue)
    kinds = [_kind(links[queues[0].link], queues) for queues in alike.values()]
    return tuple(sorted(kinds, key=lambda kind: SEGMENTS.index(kind.segment)))


def environment_table(environment: Mapping[str, Any]) -> Table:
    """Return what the record knows of machine, versions and time spent, nested names joined by dots.

    A text of several lines is left out, as the scenario's: its settings are in the other tables.
    """
    shown = {name: value for name, value in environment.items() if "\n" not in str(value)}
    return Table("Machine and versions", tuple(_flat(shown)))


def _kind(link: Link, queues: Sequence[Queue]) -> QueueKind:
    names = tuple(queue.link for queue in queues)
    return QueueKind(link.segment, names, queues[0], link.rate_bps, link.delay_ns)


def _settings(queue: Queue) -> tuple[object, ...]:
    marking = (queue.marking, queue.kmin_bytes, queue.kmax_bytes, queue.pmax)
    return (*marking, queue.limit_bytes, queue.xoff_bytes)


def _run(plan: Plan) -> Iterator[tuple[str, str]]:
    yield "scenario", plan.scenario
    yield "seed", str(plan.seed)
    yield "backend", plan.backend
    yield "clock", plan.clock
    yield "dilation", f"{plan.dilation:g}"
    yield "controller", plan.framework
    scenario_time = format_ns(plan.deadline.scenario_ns)
    yield "deadline", f"{scenario_time} of scenario time, {plan.deadline.real_s:g} s of real time"
    if plan.expectations:
        yield "expectations", "; ".join(plan.expectations)


def _fabric(topology: Topology, mtu: int) -> Iterator[tuple[str, str]]:
    yield "leaves", _count_and_names(switch.name for switch in topology.switches_of("leaf"))
    yield "spines", _count_and_names(switch.name for switch in topology.switches_of("spine"))
    for role in ("prefill", "decode", "store"):
        placed = [f"{host.name} on {_leaves(host)}" for host in topology.hosts if host.role == role]
        if placed or role != "store":
            yield f"{role} hosts", _count_and_names(placed)
    several = max(topology.hosts, key=lambda host: len(host.nics))
    if len(several.nics) > 1:
        owned = ", ".join(f"GPU {gpu} NIC {nic}" for gpu, nic in enumerate(several.affinity, start=1))
        yield "NICs of each host", f"{len(several.nics)}: {owned}"
    nics = topology.nics.keys()
    access = {link.rate_bps for link in topology.links if link.src in nics or link.dst in nics}
    fabric = {link.rate_bps for link in topology.links if not {link.src, link.dst} & nics}
    yield "host links", ", ".join(format_rate(rate) for rate in sorted(access)) or "none"
    yield "fabric links", ", ".join(format_rate(rate) for rate in sorted(fabric)) or "none"
    yield "MTU", f"{mtu} B"


def _leaves(host: Host) -> str:
    return " and ".join(dict.fromkeys(nic.leaf for nic in host.nics))


def _count_and_names(names: Iterable[str]) -> str:
    listed = list(names)
    return f"{len(listed)}: {some(listed)}" if listed else "none"


def _roce(roce: Roce) -> Iterator[tuple[str, str]]:
    yield "RDMA", f"{roce.operation}, {format_bytes(roce.message_bytes)} a message, payload {roce.mtu} B"
    yield "recovery", f"{roce.recovery}, timeout {format_ns(roce.ack_timeout_ns)}"
    if roce.window_bytes:
        yield "window", format_bytes(roce.window_bytes)
    if roce.dcqcn is not None:
        own = roce.dcqcn
        timers = f"alpha {format_ns(own.alpha_timer_ns)}, rate {format_ns(own.rate_timer_ns)}"
        yield "DCQCN", f"notifications {format_ns(own.cnp_interval_ns)} apart, {timers}, g {own.g:g}"


def _transport(plan: Plan) -> Iterator[tuple[str, str]]:
    transport, routing = plan.transport, plan.routing
    yield "transport", transport.kind
    yield "congestion control", transport.congestion_control
    yield "ECN", "negotiated" if transport.ecn else "off"
    if transport.roce is None:
        yield "shortest retransmission timeout", format_ns(transport.rto_min_ns)
    else:
        yield from _roce(transport.roce)
    yield "routing", routing.words
    if routing.policy != "least-loaded":
        yield "hash seed", str(routing.hash_seed)


def workload_rows(workload: Workload) -> Iterator[tuple[str, str]]:
    """Yield what the transfers stand for, as names and values; the plan's text and the page show it."""
    yield "requests", f"{format_count(workload.requests)} of {workload.source}"
    yield "arrivals", _span(format_ns(workload.first_ns), format_ns(workload.last_ns))
    if workload.prompt_tokens:
        prompt, output = format_count(workload.prompt_tokens), format_count(workload.output_tokens)
        yield "tokens", f"{prompt} of prompts, {output} of answers"
    yield "KV", f"{format_bytes(workload.kv_bytes)} in full"
    if workload.scale != 1:
        yield "scaled", f"every transfer has {workload.scale:g} of its bytes, and at least one"
    for skipped in workload.skipped:
        yield "not used", f"{format_count(skipped.rows)} rows: {skipped.reason}"


def _workload(plan: Plan) -> Iterator[tuple[str, str]]:
    if plan.workload is not None:
        yield from workload_rows(plan.workload)
    sizes = sorted({transfer.bytes for transfer in plan.transfers})
    yield "transfers", format_count(len(plan.transfers))
    if crossing := [str(number) for number in plan.crossing]:
        yield "over another GPU's NIC", f"{len(crossing)}: {some(crossing)}"
    if sizes:
        starts = [transfer.start_ns for transfer in plan.transfers]
        yield "bytes of each", _span(format_bytes(sizes[0]), format_bytes(sizes[-1]))
        yield "starts", _span(format_ns(min(starts)), format_ns(max(starts)))
    yield "background flows", format_count(len(plan.background))
    for flow in plan.background:
        rate = format_rate(flow.rate_bps) if flow.rate_bps else "as fast as it goes"
        when = f"{format_ns(flow.start_ns)} for {format_ns(flow.duration_ns)}"
        yield f"background {flow.id}", f"{flow.protocol}, {flow.src} to {flow.dst}, {rate}, from {when}"


def _span(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"


def _measurement(plan: Plan) -> Iterator[tuple[str, str]]:
    yield "queues sampled every", format_ns(plan.measure.interval_ns)
    yield "progress logged every", format_ns(plan.measure.progress_ns)
    yield "ideal end of the last transfer", format_ns(plan.ideal_last_end_ns)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name in sorted(values):
        value, path = values[name], f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}.")
        else:
            yield path, _text(value)


def _text(value: object) -> str:
    if isinstance(value, float):
        return significant(value)
    if isinstance(value, list | tuple):
        return " ".join(_text(entry) for entry in value)
    return str(value)
