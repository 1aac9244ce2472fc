"""Writes complete record directories without a lab: a fluid toy model of a few well-understood runs.

Rates are max-min fair from one event to the next, a saturated link has a standing queue, everything else is
idle; no packet is modelled. Good enough to test readers, analysis and reports against runs with a known
culprit, and no substitute for a measured record. Called by tests, and by hand to look at a report: `python
-m tests.support.synthetic incast DIRECTORY`.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from testbed.plan.codec import to_json
from testbed.plan.model import Deadline, Measure, Plan, Queue, Routing, Transfer, Transport
from testbed.record import layout
from testbed.record.reader import Record, SampleGroup
from tests.support.fluid import Case, Floats, Span, arrival, spans_of
from topologies import LeafSpine, Topology, build_leaf_spine
from topologies.leaf_spine import Slower, Stage
from topologies.model import DEST_LANDING, SOURCE_RAIL, Link

MIB = 1 << 20
HEADERS = 66
"""Ethernet, IP and TCP with timestamps, in bytes for each packet."""

INSIDE = (SOURCE_RAIL, DEST_LANDING)
"""Segments whose queues are a host's own: they shape and do not mark."""

KMIN, KMAX = 100_000, 400_000
LEAD_NS = 200_000
"""The samples begin so long before the first transfer, and go on so long after the last."""


def incast(senders: int = 8, size: int = 16 * MIB, dilation: float = 1) -> Case:
    """Prefill hosts on two leaves send to one decode host at once: the queue stands at leaf3-d1."""
    topology = _topology([1 + i * 2 // senders for i in range(senders)], [3], fabric_gbps=200)
    pairs = [(f"p{i + 1}", "d1") for i in range(senders)]
    return _case("incast", topology, pairs, size, dilation)


def baseline(senders: int = 8, size: int = 16 * MIB, dilation: float = 1) -> Case:
    """Each prefill host sends to a decode host of its own over links with room: nothing is held up."""
    placed = [1 + i * 2 // senders for i in range(senders)]
    topology = _topology(placed, [2 + i for i in placed], fabric_gbps=400)
    pairs = [(f"p{i + 1}", f"d{i + 1}") for i in range(senders)]
    return _case("baseline", topology, pairs, size, dilation)


def hot_spine(size: int = 16 * MIB, dilation: float = 1) -> Case:
    """Four transfers from four leaves, three of them over spine1: the queue stands at spine1-leaf5."""
    topology = _topology([1, 2, 3, 4], [5, 5, 5, 5], fabric_gbps=100, leaves=5)
    pairs = [(f"p{i}", f"d{i}") for i in range(1, 5)]
    return _case("hot-spine", topology, pairs, size, dilation, spine_of=(0, 0, 0, 1))


def hot_uplink(size: int = 16 * MIB, dilation: float = 1) -> Case:
    """Four transfers leave one leaf, three of them by the uplink to spine1: the queue stands at
    leaf1-spine1."""
    topology = _topology([1, 1, 1, 1], [2, 2, 2, 2], fabric_gbps=100)
    pairs = [(f"p{i}", f"d{i}") for i in range(1, 5)]
    return _case("hot-uplink", topology, pairs, size, dilation, spine_of=(0, 0, 0, 1))


def shared_rail(size: int = 16 * MIB, dilation: float = 1) -> Case:
    """One prefill host sends to three decode hosts at once: they share its own egress, p1-leaf1."""
    topology = _topology([1], [2, 2, 3], fabric_gbps=400)
    return _case("shared-rail", topology, [("p1", "d1"), ("p1", "d2"), ("p1", "d3")], size, dilation)


def slow_sender(size: int = 16 * MIB, dilation: float = 1) -> Case:
    """The baseline with senders that hand over a third of the line rate: no queue anywhere."""
    case = baseline(4, size, dilation)
    plan = replace(case.plan, scenario="slow-sender")
    return Case(plan, case.paths, tuple(33e9 for _ in case.paths))


def slow_rail(size: int = 16 * MIB, dilation: float = 1) -> Case:
    """The baseline of four with a rail of 40 Gbit/s in one prefill host: the queue stands at p2g1-p2."""
    slow = Slower("p2", 1, 40_000_000_000)
    topology = _topology([1, 1, 2, 2], [3, 3, 4, 4], fabric_gbps=400, slower=(slow,))
    return _case("slow-rail", topology, [(f"p{i}", f"d{i}") for i in range(1, 5)], size, dilation)


def slow_landing(size: int = 16 * MIB, dilation: float = 1) -> Case:
    """Two hosts send to one that lands 25 Gbit/s: the queue stands at d1-d1g1, not at its downlink."""
    topology = _topology([1, 2], [3], fabric_gbps=400, landing=Stage(25_000_000_000, 1000, False))
    return _case("slow-landing", topology, [("p1", "d1"), ("p2", "d1")], size, dilation)


def two_culprits(size: int = 16 * MIB, dilation: float = 1) -> Case:
    """Three hosts send to one, three others from rails at a third of the rate: each costs about half."""
    slower = tuple(Slower(f"p{i}", 1, 33_000_000_000) for i in (4, 5, 6))
    topology = _topology([1, 1, 1, 2, 2, 2], [3, 4, 4, 4], fabric_gbps=400, slower=slower)
    pairs = [("p1", "d1"), ("p2", "d1"), ("p3", "d1"), ("p4", "d2"), ("p5", "d3"), ("p6", "d4")]
    return _case("two-culprits", topology, pairs, size, dilation)


def one_rail_of_four(size: int = 16 * MIB, dilation: float = 1) -> Case:
    """Three of four GPUs use the first of four NICs, the other the second: p1n1-leaf1 is shared."""
    affinity = (1, 1, 1, 2)
    topology = _topology([1], [1], fabric_gbps=400, leaves=4, affinity=affinity)
    pairs = [("p1", "d1")] * len(affinity)
    return _case("one-rail-of-four", topology, pairs, size, dilation, gpus=(1, 2, 3, 4))


CASES: dict[str, Callable[[], Case]] = {
    "incast": incast,
    "baseline": baseline,
    "hot-spine": hot_spine,
    "hot-uplink": hot_uplink,
    "shared-rail": shared_rail,
    "slow-sender": slow_sender,
    "slow-rail": slow_rail,
    "slow-landing": slow_landing,
    "two-culprits": two_culprits,
    "one-rail-of-four": one_rail_of_four,
}


def _topology(
    prefill: Sequence[int],
    decode: Sequence[int],
    fabric_gbps: int,
    leaves: int | None = None,
    landing: Stage | None = None,
    slower: tuple[Slower, ...] = (),
    affinity: tuple[int, ...] = (),
) -> Topology:
    """With an `affinity`, a host has as many GPUs and NICs as that is long, NIC i on leaf i."""
    return build_leaf_spine(
        LeafSpine(
            leaves=leaves or max(*prefill, *decode, 3),
            spines=2,
            hosts_per_leaf=8,
            host_rate_bps=100_000_000_000,
            host_delay_ns=1000,
            fabric_rate_bps=fabric_gbps * 1_000_000_000,
            fabric_delay_ns=1000,
            prefill_leaves=tuple(prefill),
            decode_leaves=tuple(decode),
            landing=landing,
            slower=slower,
            gpus_per_host=len(affinity) or 1,
            nics_per_host=len(affinity) or 1,
            rail_optimised=bool(affinity),
            affinity=affinity,
        )
    )


def _case(
    name: str,
    topology: Topology,
    pairs: Sequence[tuple[str, str]],
    size: int,
    dilation: float,
    spine_of: Sequence[int] = (),
    gpus: Sequence[int] = (),
) -> Case:
    used = [(gpu, topology.hosts[0].affinity[gpu - 1]) for gpu in gpus or [1] * len(pairs)]
    choices = [topology.candidate_paths(*pair, nic, nic) for pair, (_, nic) in zip(pairs, used, strict=True)]
    spines = spine_of or range(len(pairs))
    paths = tuple(
        topology.through_hosts(src, gpu, dst, gpu, choice[spine % len(choice)])
        for (src, dst), choice, spine, (gpu, _) in zip(pairs, choices, spines, used, strict=True)
    )
    transfers = tuple(
        replace(_transfer(topology, i, *pair, size), src_gpu=gpu, dst_gpu=gpu, src_nic=nic, dst_nic=nic)
        for i, (pair, (gpu, nic)) in enumerate(zip(pairs, used, strict=True))
    )
    plan = Plan(
        format_version=1,
        scenario=name,
        description=f"Toy run {name}.",
        seed=1,
        backend="uml",
        clock="virtual" if dilation == 1 else "real",
        dilation=dilation,
        mtu=4200,
        framework="os-ken",
        topology=topology,
        queues=tuple(_queue(link) for link in topology.all_links),
        transport=Transport("tcp", "dctcp", True, 1_000_000),
        routing=Routing("ecmp", ("ipv4_src", "ipv4_dst", "tcp_src", "tcp_dst"), 1),
        transfers=transfers,
        background=(),
        measure=Measure(20_000, 100_000),
        deadline=Deadline(1_000_000_000, 600.0),
        ideal_last_end_ns=0,
        expectations=(),
    )
    case = Case(plan, paths, tuple(math.inf for _ in pairs))
    return replace(case, plan=replace(plan, ideal_last_end_ns=_ideal_last_end(case)))


def _transfer(topology: Topology, number: int, src: str, dst: str, size: int) -> Transfer:
    path = [topology.link(name) for name in topology.candidate_paths(src, dst)[0]]
    wire = size + -(-size // (4200 - HEADERS + 14)) * HEADERS
    slowest = min(link.rate_bps for link in path)
    ideal = round(wire * 8e9 / slowest) + sum(link.delay_ns for link in path)
    return Transfer(number, src, dst, size, wire, 0, 20_000 + number, 10_000 + number, ideal)


def _queue(link: Link) -> Queue:
    host = link.segment in INSIDE
    return Queue(link.name, KMIN, KMAX, 0.2, 8_000_000, None if host else 2_000_000, not host)


def _ideal_last_end(case: Case) -> int:
    """The busiest link's wire bytes at its rate, which is when perfect sharing would end these bursts."""
    links = {link.name: link for link in case.plan.topology.all_links}
    load = dict.fromkeys(links, 0)
    for transfer, path in zip(case.plan.transfers, case.paths, strict=True):
        for name in path:
            load[name] += transfer.wire_bytes
    return round(max(load[name] * 8e9 / links[name].rate_bps for name in load)) + 4000


def write_record(folder: Path, case: Case, status: str = layout.COMPLETE, reason: str | None = None) -> Path:
    """Write the whole record of `case` into `folder` (made if missing) and return it."""
    for name in (layout.RAW, layout.LOGS):
        (folder / name).mkdir(parents=True, exist_ok=True)
    spans = spans_of(case)
    _write(folder, layout.PLAN, to_json(case.plan))
    _write(folder, layout.SCENARIO, f"name: {case.plan.scenario}\n")
    _write(folder, layout.log("lab"), "toy model, no lab\n")
    _write_json(folder, layout.ENVIRONMENT, _environment())
    _write_json(folder, layout.FACTS, _facts())
    _write_json(folder, layout.BACKGROUND, [])
    counters = {host.name: {"TCPDelivered": 1} for host in case.plan.topology.hosts}
    _write_json(folder, layout.TCP_COUNTERS, counters)
    _write(folder, layout.DATAPATH_FLOWS, datapath_flows(case))
    _write_progress(folder, case, spans)
    _write_samples(folder, case, spans)
    _seal(folder, status, reason)
    return folder


def edit_json(folder: Path, name: str, edit: Callable[[Any], Any]) -> None:
    """Replace what JSON file `name` holds by `edit(value)`, or by the value it changed, and seal anew."""
    value = json.loads((folder / name).read_text())
    changed = edit(value)
    _write_json(folder, name, value if changed is None else changed)
    reseal(folder)


def reseal(folder: Path) -> None:
    """Give the manifest the sizes and sums of the files as they are now."""
    manifest = json.loads((folder / layout.MANIFEST).read_text())
    _seal(folder, manifest["status"], manifest["reason"])


def datapath_flows(case: Case) -> str:
    """Return what Open vSwitch would print for these paths, one flow for each transfer and switch."""
    hosts = {host.name: host for host in case.plan.topology.hosts}
    cables = {link.name for link in case.plan.topology.links}
    lines: list[str] = []
    for transfer, path in zip(case.plan.transfers, case.paths, strict=True):
        source = hosts[transfer.src].nic(transfer.src_nic)
        target = hosts[transfer.dst].nic(transfer.dst_nic)
        for arrived, left in pairwise(name for name in path if name in cables):
            here, before = left.split("-")[0], arrived.split("-")[0]
            lines.append(
                f"ufid:{len(lines):08x}-0000-4000-8000-000000000000, skb_priority(0/0),skb_mark(0/0),"
                "ct_state(0/0),ct_zone(0/0),ct_mark(0/0),ct_label(0/0),recirc_id(0),dp_hash(0/0),"
                f"in_port({here}-{before}),packet_type(ns=0,id=0),"
                f"eth(src={source.mac},dst={target.mac}),eth_type(0x0800),"
                f"ipv4(src={source.ip},dst={target.ip},proto=6,tos=0/0,ttl=0/0,frag=no),"
                f"tcp(src={transfer.src_port},dst={transfer.dst_port}),tcp_flags(0/0), "
                f"packets:{transfer.wire_bytes // 4200}, bytes:{transfer.wire_bytes}, used:0.010s, "
                f"flags:SP., dp:ovs, actions:{left}"
            )
    return "\n".join(lines) + "\n"


def _write_progress(folder: Path, case: Case, spans: Sequence[Span]) -> None:
    rows, outcomes = [], []
    for transfer in case.plan.transfers:
        times, received = arrival(spans, transfer)
        step = case.plan.measure.progress_ns
        inner = np.arange(math.floor(times[0] / step) * step + step, times[-1], step)
        moments = np.append(inner, times[-1])
        arrived = np.floor(np.interp(moments, times, received) + 1e-6)
        rows += [(t, transfer.id, b) for t, b in zip(moments, arrived, strict=True)]
        outcomes.append(_outcome(case, transfer, float(times[0]), float(times[-1])))
    rows.sort()
    table = np.array(rows, np.float64)
    table[:, 0] *= case.plan.dilation
    np.rint(table).astype("<i8").tofile(folder / layout.PROGRESS)
    _write_json(folder, layout.OUTCOMES, outcomes)


def _outcome(case: Case, transfer: Transfer, first_ns: float, end_ns: float) -> dict[str, Any]:
    control = case.plan.transport.congestion_control
    k = case.plan.dilation
    return {
        "id": transfer.id,
        "start_ns": round(transfer.start_ns * k),
        "first_byte_ns": round(first_ns * k),
        "end_ns": round(end_ns * k),
        "bytes": transfer.bytes,
        "congestion_control": {"sender": control, "receiver": control},
        "ecn": case.plan.transport.ecn,
        "retransmissions": 0,
        "error": None,
    }


def _write_samples(folder: Path, case: Case, spans: Sequence[Span]) -> None:
    interval = case.plan.measure.interval_ns
    times = np.arange(-LEAD_NS, spans[-1].end_ns + LEAD_NS, interval)
    links = case.plan.topology.all_links
    hosts = [link for link in links if link.segment in INSIDE]
    for group, members in (
        (layout.FABRIC, [link for link in links if link not in hosts]),
        (layout.HOSTS, hosts),
    ):
        columns = [np.rint(times * case.plan.dilation)]
        for number, link in enumerate(members):
            columns += _link_columns(case, spans, link, times, number)
        rows = np.stack(columns, axis=1).astype("<i8")
        rows.tofile(folder / layout.samples_rows(group))
        header = {
            "format_version": layout.FORMAT_VERSION,
            "group": group,
            "links": [link.name for link in members],
            "fields": list(layout.SAMPLE_FIELDS),
            "interval_ns": round(interval * case.plan.dilation),
            "rows": len(rows),
        }
        _write_json(folder, layout.samples_header(group), header)


def _link_columns(case: Case, spans: Sequence[Span], link: Link, times: Floats, number: int) -> list[Floats]:
    users = {i for i, path in enumerate(case.paths) if link.name in path}
    edges = np.array([spans[0].start_ns] + [span.end_ns for span in spans])
    carried = [
        sum(rate for i, rate in span.rates.items() if i in users) * (span.end_ns - span.start_ns) / 8e9
        for span in spans
    ]
    total = np.floor(np.interp(times, edges, np.cumsum([0.0, *carried])))
    span_of = np.searchsorted(edges, times, side="right") - 1
    standing = np.array([link.name in span.queued for span in spans] + [False])
    queued = standing[np.clip(span_of, -1, len(spans))] & (span_of >= 0)
    marking = link.segment not in INSIDE
    level = 1.5 * KMIN if marking else 16_000
    backlog = np.where(queued, np.rint(level * (1 + 0.3 * np.sin(times / 37_000 + number))), 0)
    packets = np.floor(total / 4214)
    share = np.where(queued, 0.25 if marking else 0.0, 0.0)
    marks = np.floor(np.cumsum(np.diff(packets, prepend=packets[0]) * share))
    start = 1_000 + number  # counters do not begin at 0 in a real lab either
    return [backlog, total + start, packets + start, np.zeros_like(total), marks + start]


def _environment() -> dict[str, Any]:
    wall = {"boot_s": 1.5, "build_s": 4.0, "traffic_s": 1.8, "analysis_s": 0.2}
    return {"wall_clock": wall, "versions": {"testbed": "0"}, "host": {"cpus": 2}}


def _facts() -> dict[str, Any]:
    readback = [{"where": "leaf3-d1", "what": "rate", "planned": "1e+11", "found": "1e+11", "ok": True}]
    return {"readback": readback, "offloads": {}, "versions": {}, "controller": {}}


def _seal(folder: Path, status: str, reason: str | None) -> None:
    skip = {layout.MANIFEST, layout.ENVIRONMENT, *layout.DERIVED}
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    files = {name: _entry((folder / name).read_bytes()) for name in names if name not in skip}
    manifest = {"format_version": layout.FORMAT_VERSION, "status": status, "reason": reason, "files": files}
    _write_json(folder, layout.MANIFEST, manifest)


def _entry(content: bytes) -> dict[str, Any]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _write_json(folder: Path, name: str, value: Any) -> None:
    _write(folder, name, json.dumps(value, indent=1, sort_keys=True) + "\n")


def _write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")


def main(arguments: Iterable[str]) -> None:
    """Write the record of the case named first into the directory named second."""
    name, folder = arguments
    print(write_record(Path(folder), CASES[name]()))


if __name__ == "__main__":
    main(sys.argv[1:])


def edit_samples(record: Record, link: str, field: str, change: Callable[[Any], Any]) -> Record:
    """Return `record` with one field of one link changed in all its samples."""
    groups: list[SampleGroup] = []
    for group in record.groups:
        rows = np.array(group.rows)
        if link in group.links:
            width = len(layout.SAMPLE_FIELDS)
            column = 1 + group.links.index(link) * width + layout.SAMPLE_FIELDS.index(field)
            rows[:, column] = change(rows[:, column])
        groups.append(replace(group, rows=rows))
    return replace(record, groups=tuple(groups))
