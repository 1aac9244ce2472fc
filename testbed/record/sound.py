"""Whether a plan that was read from a file can be one of testbed's: names, numbers, what refers to what.

A plan that was built is; one in a record may have been written by anybody, and is analysed or run again.
Names become files, interfaces and words of commands, so each has to look as the builder makes them. Called
by `testbed.record.reader`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from ipaddress import AddressValueError, IPv4Address
from typing import Any

from testbed.errors import InputError
from testbed.plan.model import BackgroundFlow, Plan, Transfer
from testbed.scenario.expectation import parse_expectation
from topologies.model import SEGMENTS

_SCENARIO = re.compile(r"[a-z0-9][a-z0-9-]{0,47}")
_NODE = re.compile(r"[a-z][a-z0-9]{0,14}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_WORD = re.compile(r"[a-z0-9][a-z0-9 _.-]{0,39}")
WHOLE_MAX = 2**62
DILATION_MAX = 1_000_000
PORT_MAX = 65_535

Wrong = Iterator[str]


def check_plan(plan: Plan) -> None:
    """Raise InputError that says the first thing which is not as a plan has it."""
    for checks in (_numbers(plan, "plan"), _head(plan), _nodes(plan), _links(plan), _references(plan)):
        wrong = next(checks, None)
        if wrong is not None:
            raise InputError(f"{wrong}; no plan of testbed's has that")


def _numbers(value: Any, at: str) -> Wrong:
    """Whole numbers that arrays hold, and nothing below 0."""
    if is_dataclass(value):
        for field in fields(value):
            yield from _numbers(getattr(value, field.name), f"{at}.{field.name}")
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from _numbers(item, f"{at}[{number}]")
    elif isinstance(value, (int, float)) and not -1 <= value <= WHOLE_MAX:
        yield f"{at} is {value:g}"


def _head(plan: Plan) -> Wrong:
    transport = plan.transport
    if not _SCENARIO.fullmatch(plan.scenario):
        yield f"plan.scenario is {plan.scenario[:60]!r}"
    for key, allowed in (
        ("backend", ("uml", "native")),
        ("clock", ("virtual", "real")),
        ("framework", ("os-ken", "ryu")),
    ):
        if getattr(plan, key) not in allowed:
            yield f"plan.{key} is {getattr(plan, key)[:60]!r}"
    if not 1 <= plan.dilation <= DILATION_MAX:
        yield f"plan.dilation is {plan.dilation:g}"
    if not 576 <= plan.mtu <= 9216:
        yield f"plan.mtu is {plan.mtu}"
    if (transport.kind, transport.roce is None) not in (("tcp", True), ("roce", False)):
        yield f"plan.transport.kind is {transport.kind[:60]!r}"
    words = (transport.congestion_control, plan.routing.policy, *plan.routing.hash_fields)
    yield from (f"plan has the word {word[:60]!r}" for word in words if not _WORD.fullmatch(word))
    if plan.measure.interval_ns < 1 or plan.measure.progress_ns < 1:
        yield "plan.measure has an interval of 0"
    for text in plan.expectations:
        try:
            parse_expectation(text)
        except ValueError as error:
            yield f"plan.expectations has {text[:60]!r}, which {error}"


def _nodes(plan: Plan) -> Wrong:
    switches, hosts = plan.topology.switches, plan.topology.hosts
    leaves = {switch.name for switch in switches if switch.tier == "leaf"}
    nics = [nic for host in hosts for nic in host.nics]
    yield from _distinct("switch", (switch.name for switch in switches), _NODE)
    yield from _distinct("host", (host.name for host in hosts), _NODE)
    yield from _distinct("NIC", (nic.name for nic in nics), _NODE)
    for host in hosts:
        if not host.nics or any(not 1 <= nic <= len(host.nics) for nic in host.affinity):
            yield f"host {host.name} has {len(host.nics)} NICs and the affinity {host.affinity}"
        if host.role not in ("prefill", "decode", "store"):
            yield f"host {host.name} has the role {host.role[:60]!r}"
    for nic in nics:
        if nic.leaf not in leaves or not _MAC.fullmatch(nic.mac) or not _is_address(nic.ip):
            yield f"NIC {nic.name} has the leaf {nic.leaf[:60]!r} and the addresses {nic.ip!r}, {nic.mac!r}"


def _is_address(text: str) -> bool:
    try:
        return bool(IPv4Address(text))
    except AddressValueError:
        return False


def _links(plan: Plan) -> Wrong:
    topology = plan.topology
    nodes = {*topology.nics, *(switch.name for switch in topology.switches)}
    yield from _distinct("link", (link.name for link in topology.all_links), None)
    for link in topology.all_links:
        ends = _NODE.fullmatch(link.src) and _NODE.fullmatch(link.dst)
        if not ends or link.name != f"{link.src}-{link.dst}" or link.segment not in SEGMENTS:
            yield f"link {link.name[:60]!r} leads from {link.src[:60]!r} to {link.dst[:60]!r}"
        if link.rate_bps < 1:
            yield f"link {link.name} has no rate"
    cables = {link.name for link in topology.links}
    yield from (
        f"link {link.name} ends at no node" for link in topology.links if not {link.src, link.dst} <= nodes
    )
    for nic in topology.nics.values():
        if not {nic.up, nic.down} <= cables:
            yield f"NIC {nic.name} has no cable"


def _references(plan: Plan) -> Wrong:
    links = {link.name for link in plan.topology.all_links}
    yield from _distinct("queue", (queue.link for queue in plan.queues), None)
    yield from (f"link {name} has no queue" for name in links - {queue.link for queue in plan.queues})
    named = [*(queue.link for queue in plan.queues), *plan.measure.departures]
    for point in plan.pausing.points if plan.pausing else ():
        named += [point.link, *point.feeders]
    yield from (f"there is no link {name[:60]!r}" for name in named if name not in links)
    yield from _flows(plan)
    yield from _transfers(plan)
    hosts = {host.name for host in plan.topology.hosts}
    serving = plan.serving
    served = (*serving.prefill_hosts, *serving.decode_hosts, *serving.store_hosts) if serving else ()
    pins = [name for pin in plan.routing.pinned for name in (pin.src, pin.dst) if name is not None]
    yield from (f"there is no host {name[:60]!r}" for name in (*served, *pins) if name not in hosts)


def _flows(plan: Plan) -> Wrong:
    hosts = {host.name: host for host in plan.topology.hosts}
    flows: tuple[Transfer | BackgroundFlow, ...] = (*plan.transfers, *plan.background)
    for one in flows:
        for name, nic in ((one.src, one.src_nic), (one.dst, one.dst_nic)):
            if name not in hosts or not 1 <= nic <= len(hosts[name].nics):
                yield f"there is no NIC {nic} of host {name[:60]!r}"
    for flow in plan.background:
        if flow.protocol not in ("tcp", "udp") or not 1 <= flow.port <= PORT_MAX:
            yield f"background flow {flow.id} has the protocol {flow.protocol[:60]!r} and port {flow.port}"


def _transfers(plan: Plan) -> Wrong:
    hosts = {host.name: host for host in plan.topology.hosts}
    yield from _distinct("transfer", (str(one.id) for one in plan.transfers), None)
    for transfer in plan.transfers:
        ports = transfer.src_port, transfer.dst_port
        if not 1 <= min(ports) <= max(ports) <= PORT_MAX or transfer.src == transfer.dst:
            yield f"transfer {transfer.id} goes from {transfer.src}:{ports[0]} to {transfer.dst}:{ports[1]}"
        if min(transfer.ideal_ns, transfer.bytes) < 1:
            yield f"transfer {transfer.id} has {transfer.bytes} bytes in {transfer.ideal_ns} ns"
        for name, gpu in ((transfer.src, transfer.src_gpu), (transfer.dst, transfer.dst_gpu)):
            if not 1 <= gpu <= len(hosts[name].affinity):
                yield f"there is no GPU {gpu} of host {name}"


def _distinct(what: str, names: Iterable[str], form: re.Pattern[str] | None) -> Wrong:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield f"there are two of {what} {name[:60]!r}"
        if form is not None and not form.fullmatch(name):
            yield f"there is a {what} called {name[:60]!r}"
        seen.add(name)
