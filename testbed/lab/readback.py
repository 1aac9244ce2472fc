"""Reading the lab back and comparing it with the plan, item by item.

Switches are read with the tools a person would use (`tc`, `ovs-ofctl`), not through the code that set
them. Hosts are asked over netlink, for each program that is started in a guest takes some 30 ms, and
three for each host were a quarter of the time in which a lab comes up. Parsing and comparing are pure and
tested on captured output.
"""

from __future__ import annotations

import json
import re
import socket
from dataclasses import asdict, dataclass
from typing import Any

from testbed.errors import ReadbackError
from testbed.lab.addresses import gso_max_segs
from testbed.lab.gates import KICK_CLASS
from testbed.lab.hosts import host_sysctls, namespace, offloads
from testbed.lab.netlink import NETLINK_ROUTE, HtbClass, Netlink
from testbed.lab.qdiscs import QUEUE_HANDLE, delays_ns, ramp_probability, rate_class, ways_of
from testbed.lab.stages import device_of, queue_handle, stages_of
from testbed.lab.system import network_namespace, run
from testbed.plan.model import Plan, Queue
from topologies.model import Host, Link, Nic

RATE_TOLERANCE = 0.001
"""`tc` prints a rate that is no round number with few digits."""
PROBABILITY_TOLERANCE = 1e-4
"""`tc` prints five significant digits."""


@dataclass(frozen=True)
class Item:
    """One thing read back: where, what, what the plan wants and what is there."""

    where: str
    what: str
    planned: str
    found: str
    ok: bool


def equal(where: str, what: str, planned: object, found: object) -> Item:
    """Return an item that is right when both values are equal."""
    return Item(where, what, str(planned), str(found), planned == found)


def near(where: str, what: str, planned: float, found: float | None, tolerance: float) -> Item:
    """Return an item that is right within a relative tolerance."""
    ok = found is not None and abs(found - planned) <= tolerance * abs(planned)
    return Item(where, what, f"{planned:g}", "nothing" if found is None else f"{found:g}", ok)


def require(items: list[Item]) -> list[dict[str, Any]]:
    """Return the items as plain values; ReadbackError with both values when one is wrong."""
    wrong = [item for item in items if not item.ok]
    if wrong:
        first = wrong[0]
        more = f" (and {len(wrong) - 1} more differences)" if len(wrong) > 1 else ""
        raise ReadbackError(
            f"{first.where}: {first.what} is {first.found}, the plan says {first.planned}{more}"
        )
    return [asdict(item) for item in items]


# ---- queues --------------------------------------------------------------------------

_RATES = re.compile(r" rate (\S+) ceil (\S+) ")
_RATE_UNITS = {"bit": 1, "Kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9, "Tbit": 1e12}


def parse_rate(text: str) -> float:
    """Return the bits per second of a rate as `tc` prints it, e.g. `100Gbit`; ValueError otherwise."""
    match = re.fullmatch(r"([0-9.]+)(\D+)", text)
    if match is None or match[2] not in _RATE_UNITS:
        raise ValueError(f"tc printed the rate {text!r}")
    return float(match[1]) * _RATE_UNITS[match[2]]


def by_device(qdiscs: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Group `tc -j qdisc show` by device and kind."""
    grouped: dict[str, dict[str, dict[str, Any]]] = {}
    for qdisc in qdiscs:
        grouped.setdefault(qdisc.get("dev", ""), {})[qdisc["kind"]] = qdisc
    return grouped


def queue_items(queue: Queue, kinds: dict[str, dict[str, Any]]) -> list[Item]:
    """Compare one port's leaf queue with the plan."""
    kind = "red" if queue.marking else "bfifo"
    if kind not in kinds:
        return [equal(queue.link, "queue", kind, " ".join(sorted(kinds)) or "nothing")]
    options = kinds[kind]["options"]
    items = [equal(queue.link, "limit", queue.limit_bytes, options.get("limit"))]
    if queue.marking:
        items += [
            equal(queue.link, "K_min", queue.kmin_bytes, options.get("min")),
            equal(queue.link, "K_max", queue.kmax_bytes, options.get("max")),
            equal(queue.link, "marking instead of dropping", True, options.get("ecn")),
            equal(queue.link, "no early drop", True, options.get("nodrop")),
            equal(queue.link, "EWMA weight exponent", 0, options.get("ewma")),
            near(
                queue.link,
                "marking probability",
                ramp_probability(queue.pmax),
                options.get("probability"),
                PROBABILITY_TOLERANCE,
            ),
        ]
    return items


def rate_items(link: Link, text: str, classes: list[HtbClass], plan: Plan) -> list[Item]:
    """Compare one port's rate and bucket with the plan.

    `text` is what `tc class show` prints of it. `tc` shows a bucket in whole microseconds of its
    rate, so the depth is taken from the kernel's own answer.
    """
    rates = _RATES.search(text)
    if rates is None or len(classes) != 1:
        return [equal(link.name, "rate class", "one htb class", f"{len(classes)}")]
    return [
        near(link.name, "rate", link.rate_bps, parse_rate(rates[1]), RATE_TOLERANCE),
        near(link.name, "ceiling", link.rate_bps, parse_rate(rates[2]), RATE_TOLERANCE),
        *class_items(link, classes, plan),
    ]


def without_gate(classes: list[HtbClass], plan: Plan) -> list[HtbClass]:
    """Return the classes of an interface without the one that belongs to its gate, where ports have gates."""
    return [found for found in classes if found != KICK_CLASS] if plan.pausing else classes


def class_items(link: Link, classes: list[HtbClass], plan: Plan) -> list[Item]:
    """Compare the one rate class of an interface, as the kernel has it, with the plan."""
    if len(classes) != 1:
        return [equal(link.name, "rate class", "one htb class", f"{len(classes)}")]
    wanted, found = rate_class(link, plan), classes[0]
    return [
        equal(link.name, "rate in B/s", wanted.rate_bytes_per_s, found.rate_bytes_per_s),
        equal(link.name, "ceiling in B/s", wanted.ceil_bytes_per_s, found.ceil_bytes_per_s),
        equal(link.name, "burst in ns", wanted.burst_ns, found.burst_ns),
        equal(link.name, "cburst in ns", wanted.cburst_ns, found.cburst_ns),
        equal(link.name, "quantum", wanted.quantum_bytes, found.quantum_bytes),
    ]


def port_items(links: list[Link], plan: Plan) -> list[Item]:
    """Read back rate and queue of some interfaces of the calling thread's namespace."""
    kinds = by_device(json.loads(run(["tc", "-j", "-d", "qdisc", "show"])))
    texts = class_texts([link.name for link in links])
    queues = {queue.link: queue for queue in plan.queues}
    netlink = Netlink(NETLINK_ROUTE)
    items: list[Item] = []
    for link in links:
        items += queue_items(queues[link.name], kinds.get(link.name, {}))
        classes = netlink.htb_classes(socket.if_nametoindex(link.name))
        if plan.pausing:
            items.append(equal(link.name, "gate", True, "tbf" in kinds.get(link.name, {})))
        items += rate_items(link, texts[link.name], without_gate(classes, plan), plan)
    netlink.close()
    return items


def class_texts(devices: list[str]) -> dict[str, str]:
    """Return `tc class show` of each device, with one program start for all.

    A batch prints one answer after another without naming the device, so a device without a rate
    class would shift those behind it: the count is checked.
    """
    batch = "".join(f"class show dev {device}\n" for device in devices)
    answer = run(["tc", "-batch", "-"], stdin=batch)
    # Each answer has a second line for the leaf queue's own class.
    lines = [line for line in answer.splitlines() if line.startswith("class htb 1:1 ")]
    if len(lines) != len(devices):
        return {device: run(["tc", "class", "show", "dev", device]) for device in devices}
    return dict(zip(devices, lines, strict=True))


_REDIRECTS = re.compile(r"match (\S+) at (?:0|16)$|Redirect to device (\S+)\)", re.MULTILINE)
_FIRST_FILTER = re.compile(r"^(?=filter protocol ip pref 1 u32 chain 0 *$)", re.MULTILINE)


def redirect_item(nic: Nic, ways: list[tuple[str, str]], text: str) -> Item:
    """Compare `tc filter show` of the leaf's port towards a NIC with the plan.

    The leaf's own addresses go to the near stages, all others to the far ones.
    """
    found = [match[1] or match[2] for match in _REDIRECTS.finditer(text)]
    planned = " ".join(word for match, stage in ways for word in (*_keys(nic, match), stage))
    return equal(nic.down, "way to delay", planned, " ".join(found) or "nothing")


def _keys(nic: Nic, match: str) -> list[str]:
    """Return a filter's keys as `tc` prints them, value and mask of 32 bits of the IP header."""
    keys = [socket.inet_aton(nic.ip)[:3].hex() + "00/ffffff00"] if " dst " in match else []
    service = re.search(r" tos 0x(..) 0x(..)", match)
    return [*keys, f"00{service[1]}0000/00{service[2]}0000"] if service else keys


def filter_texts(devices: list[str]) -> dict[str, str]:
    """Return `tc filter show` of each device's ingress, with one program start where all have filters."""
    batch = "".join(f"filter show dev {device} ingress\n" for device in devices)
    texts = _FIRST_FILTER.split(run(["tc", "-batch", "-"], stdin=batch))[1:]
    if len(texts) != len(devices):
        return {device: run(["tc", "filter", "show", "dev", device, "ingress"]) for device in devices}
    return dict(zip(devices, texts, strict=True))


def delay_items(plan: Plan) -> list[Item]:
    """Read back the two delay stages and that packets are led there.

    `tc` prints microseconds, so the delay is taken from the kernel's own answer.
    """
    delays = delays_ns(plan)
    if not delays:
        return []
    netlink = Netlink(NETLINK_ROUTE)
    found, losses = netlink.netem_delays_ns(), netlink.netem_losses()
    netlink.close()
    items = []
    for name, wanted in delays.items():
        index = socket.if_nametoindex(name)
        items.append(equal(name, "delay in ns", wanted, found.get(index)))
        items.append(near(name, "loss", plan.loss, losses.get(index), PROBABILITY_TOLERANCE))
    ports = {nic.down: nic for nic in plan.topology.nics.values()}
    texts = filter_texts(list(ports))
    return items + [redirect_item(nic, ways_of(nic, plan), texts[port]) for port, nic in ports.items()]


# ---- hosts and switches --------------------------------------------------------------


def host_items(host: Host, plan: Plan) -> list[Item]:
    """Read back one host: its NICs' queues, TCP settings and offloads."""
    items: list[Item] = []
    with network_namespace(namespace(host.name)):
        for nic in host.nics:
            items += nic_items(nic, plan)
        for key, wanted in host_sysctls(host, plan).items():
            with open(f"/proc/sys/net/{key}") as file:
                items.append(equal(host.name, key, wanted.split(), file.read().split()))
    return items


def nic_items(nic: Nic, plan: Plan) -> list[Item]:
    """Read back one NIC, in its host's namespace: queue or stages, offloads, segments."""
    netlink = Netlink(NETLINK_ROUTE)
    items = stage_items(netlink, nic, plan)
    if not items or nic.role != "prefill":
        items += nic_queue_items(netlink, plan.topology.link(nic.up), plan)
    segments = gso_max_segs(netlink, socket.if_nametoindex(nic.up))
    netlink.close()
    return [*items, *offload_items(nic.up), equal(nic.up, "gso_max_segs", 1, segments)]


def nic_queue_items(netlink: Netlink, link: Link, plan: Plan) -> list[Item]:
    """Read back the rate and the queue of a NIC without stages."""
    index = socket.if_nametoindex(link.name)
    limit = plan.queue(link.name).limit_bytes
    return [
        *class_items(link, without_gate(netlink.htb_classes(index), plan), plan),
        equal(link.name, "limit", limit, netlink.fifo_limits(index).get(QUEUE_HANDLE)),
    ]


def stage_items(netlink: Netlink, nic: Nic, plan: Plan) -> list[Item]:
    """Read back the stages behind a NIC, in its host's namespace: rates, buffers, and the way there."""
    stages = stages_of(plan, nic.name)
    if not stages:
        return []
    device = device_of(nic)
    index = socket.if_nametoindex(device)
    found, buffers = netlink.htb_classes(index), netlink.fifo_limits(index)
    limits = {queue.link: queue.limit_bytes for queue in plan.queues}
    items = []
    for number, stage in enumerate(stages):
        items.append(equal(stage.name, "rate class", True, rate_class(stage, plan) in found))
        items.append(equal(stage.name, "buffer", limits[stage.name], buffers.get(queue_handle(number))))
    if nic.role == "prefill":
        whole = rate_class(plan.topology.link(device), plan)
        return [*items, equal(device, "rate class of the NIC", True, whole in found)]
    text = run(["tc", "filter", "show", "dev", nic.up, "ingress"])
    return [*items, equal(nic.name, "way to the stages", True, f"Redirect to device {device})" in text)]


def offload_items(device: str) -> list[Item]:
    """Read back that no offload can put a super-packet into an interface's queue."""
    return [equal(device, name, False, state) for name, state in offloads(device).items()]


def rule_items(switch: str, planned: tuple[int, int], flows: str, groups: str) -> list[Item]:
    """Compare the number of groups and rules in a switch with what was sent to it."""
    return [
        equal(switch, "groups", planned[0], groups.count("group_id=")),
        equal(switch, "rules", planned[1], flows.count("actions=")),
        equal(
            switch,
            "groups with an explicit hash",
            planned[0],
            groups.count("selection_method=hash"),
        ),
    ]


def switch_items(switch: str, planned: tuple[int, int]) -> list[Item]:
    """Read back one switch's groups and rules with `ovs-ofctl`."""
    flows = run(["ovs-ofctl", "-O", "OpenFlow15", "dump-flows", switch])
    groups = run(["ovs-ofctl", "-O", "OpenFlow15", "dump-groups", switch])
    return rule_items(switch, planned, flows, groups)
