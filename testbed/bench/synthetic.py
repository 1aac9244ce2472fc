"""A record as large as wanted, written without a lab: what the analysis is timed on.

The plan is a real one. Its transfers are as if served one after the other at the decode host's rate, and
the samples count what that means for each link. Good for its size alone: no queue in it behaves as one
does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from testbed.plan.build import build_plan
from testbed.plan.codec import to_json
from testbed.plan.model import Plan, Transfer
from testbed.record import layout
from testbed.record.writer import RecordWriter
from testbed.scenario import load_scenario
from topologies.model import Link

SCENARIO = """\
name: large
fabric:
  leaves: 3
  spines: 2
  hosts_per_leaf: 4
  host_link: {{rate: 100gbit, delay: 1us}}
  fabric_link: {{rate: 200gbit, delay: 1us}}
  mtu: 4200
  queue: {{kmin: 100kb, kmax: 400kb, pmax: 0.2, limit: 8mb, xoff: 2mb}}
hosts: {{prefill: {{count: 8}}, decode: {{count: 1}}}}
workload:
  requests: {{kind: burst, count: {transfers}, window: {window_ns}ns, kv_bytes: 1mib}}
measure: {{interval: {interval_ns}ns, progress: 100us}}
deadline: {{scenario: 1000s, real: 1000s}}
"""

LOAD = 0.6
"""Share of the decode host's rate that arrives."""

RATE_BPS = 100_000_000_000
DELAY_NS = 4_000
TRANSFER_NS = 85_270
"""1 MiB with its headers at the rate of a host's link; the way there crosses four links."""

STANDING_BYTES = 150_000

PACKET_BYTES = 4214
BLOCK_ROWS = 1 << 14

Floats = NDArray[np.float64]


def large_record(folder: Path, transfers: int, readings: int) -> Path:
    """Write a record of so many transfers, with about so many readings of a queue, and return it.

    A reading is one queue at one moment; a sample reads all queues of the fabric.
    """
    window_ns = round(transfers * TRANSFER_NS / LOAD)
    links = len(_plan(folder, transfers, window_ns, 20_000).topology.all_links)
    plan = _plan(folder, transfers, window_ns, round(window_ns * links / readings))
    writer = RecordWriter.create(folder / "record", scenario=f"name: {plan.scenario}\n", plan=to_json(plan))
    served = _served(plan)
    _write_facts(writer.path, plan)
    _write_transfers(writer.path, plan, *served)
    _write_samples(writer.path, plan, *served)
    writer.finish(layout.COMPLETE, None, {})
    return writer.path


def _plan(folder: Path, transfers: int, window_ns: int, interval_ns: int) -> Plan:
    path = folder / "scenario.yaml"
    path.write_text(SCENARIO.format(transfers=transfers, window_ns=window_ns, interval_ns=interval_ns))
    return build_plan(load_scenario(str(path)), seed=1, backend="uml", clock="virtual")


def _served(plan: Plan) -> tuple[Floats, Floats]:
    """Return when (ns) each transfer's first byte arrives, and its last: one after the other."""
    begin, end, free_ns = [], [], 0.0
    for transfer in plan.transfers:
        begin.append(max(free_ns, transfer.start_ns + DELAY_NS))
        free_ns = begin[-1] + transfer.wire_bytes * 8e9 / RATE_BPS
        end.append(free_ns)
    return np.array(begin, np.float64), np.array(end, np.float64)


def _path(plan: Plan, transfer: Transfer) -> list[Link]:
    topology = plan.topology
    candidates = topology.candidate_paths(transfer.src, transfer.dst)
    return [topology.link(name) for name in candidates[transfer.id % len(candidates)]]


def _write_facts(record: Path, plan: Plan) -> None:
    readback = [{"where": "leaf3-d1", "what": "rate", "planned": "1e+11", "found": "1e+11", "ok": True}]
    contents: dict[str, Any] = {
        layout.FACTS: {"readback": readback, "controller": {}, "versions": {}},
        layout.BACKGROUND: [],
        layout.TCP_COUNTERS: {host.name: {"TCPDelivered": 1} for host in plan.topology.hosts},
    }
    for name, content in contents.items():
        (record / name).write_text(json.dumps(content) + "\n")
    (record / layout.DATAPATH_FLOWS).write_text("\n".join(_flows(plan)) + "\n")


def _flows(plan: Plan) -> Iterator[str]:
    """Yield a datapath flow for each transfer and switch, as Open vSwitch prints it."""
    back = {(link.dst, link.src): link.name for link in plan.topology.links}
    for transfer in plan.transfers:
        source, target = plan.topology.host(transfer.src).nic(1), plan.topology.host(transfer.dst).nic(1)
        for arrived, left in pairwise(_path(plan, transfer)):
            yield (
                f"recirc_id(0),dp_hash(0/0),in_port({back[arrived.src, arrived.dst]}),packet_type(ns=0,id=0),"
                f"eth(src={source.mac},dst={target.mac}),eth_type(0x0800),"
                f"ipv4(src={source.ip},dst={target.ip},proto=6,tos=0/0,ttl=0/0,frag=no),"
                f"tcp(src={transfer.src_port},dst={transfer.dst_port}),tcp_flags(0/0), "
                f"packets:{transfer.wire_bytes // PACKET_BYTES}, bytes:{transfer.wire_bytes}, used:0.010s, "
                f"flags:SP., dp:ovs, actions:{left.name}"
            )


def _write_transfers(record: Path, plan: Plan, begin: Floats, end: Floats) -> None:
    control = plan.transport.congestion_control
    outcomes, rows = [], []
    for transfer, first_ns, last_ns in zip(plan.transfers, begin, end, strict=True):
        outcomes.append(
            {
                "id": transfer.id,
                "start_ns": transfer.start_ns,
                "first_byte_ns": int(first_ns) + 1,
                "end_ns": int(last_ns),
                "bytes": transfer.bytes,
                "congestion_control": {"sender": control, "receiver": control},
                "ecn": True,
                "retransmissions": 0,
                "error": None,
            }
        )
        middle = int(first_ns + last_ns) // 2
        rows += [(middle, transfer.id, transfer.bytes // 2), (int(last_ns), transfer.id, transfer.bytes)]
    (record / layout.OUTCOMES).write_text(json.dumps(outcomes) + "\n")
    np.array(rows, "<i8").tofile(record / layout.PROGRESS)


def _write_samples(record: Path, plan: Plan, begin: Floats, end: Floats) -> None:
    switches = {switch.name for switch in plan.topology.switches}
    fabric = [link for link in plan.topology.all_links if link.src in switches]
    hosts = [link for link in plan.topology.all_links if link.src not in switches]
    for group, links in ((layout.FABRIC, fabric), (layout.HOSTS, hosts)):
        with (record / layout.samples_rows(group)).open("wb") as file:
            rows = sum(_write_block(file, block) for block in _blocks(plan, links, begin, end))
        header = {
            "format_version": layout.FORMAT_VERSION,
            "group": group,
            "links": [link.name for link in links],
            "fields": list(layout.SAMPLE_FIELDS),
            "interval_ns": plan.measure.interval_ns,
            "rows": rows,
        }
        (record / layout.samples_header(group)).write_text(json.dumps(header) + "\n")


def _write_block(file: BinaryIO, block: Floats) -> int:
    file.write(block.astype("<i8").tobytes())
    return len(block)


def _blocks(plan: Plan, links: Sequence[Link], begin: Floats, end: Floats) -> Iterator[Floats]:
    """Yield rows of samples, some at a time: a long record must not fill the memory."""
    interval_ns = plan.measure.interval_ns
    edges = np.ravel(np.column_stack((begin, end)))
    carried = {link.name: _carried(plan, link) for link in links}
    first, last = -10 * interval_ns, int(end[-1]) + 10 * interval_ns
    for start in range(first, last, BLOCK_ROWS * interval_ns):
        moments = range(start, min(start + BLOCK_ROWS * interval_ns, last), interval_ns)
        times = np.array(moments, np.float64)
        columns: list[Floats] = [times]
        for link in links:
            total = np.interp(times, edges, carried[link.name])
            bottleneck = link.name == "leaf3-d1"
            standing = bottleneck & _busy(times, begin, end, interval_ns)
            backlog = np.where(standing, STANDING_BYTES, 0).astype(np.float64)
            packets: Floats = np.floor(total / PACKET_BYTES)
            columns += [backlog, total, packets, np.zeros_like(total), np.floor(packets / 4) * bottleneck]
        yield np.stack(columns, axis=1)


def _busy(times: Floats, begin: Floats, end: Floats, interval_ns: int) -> NDArray[np.bool_]:
    """Tell whether the decode host is served now and without a break for some intervals more."""
    last = np.append(begin[1:] > end[:-1], True)
    over = end[last]
    ahead = np.append(over, np.inf)[np.searchsorted(over, times)] - times
    inside = np.searchsorted(begin, times, "right") > np.searchsorted(end, times, "right")
    return np.asarray(inside & (ahead > 2 * max(interval_ns, 20_000)) & np.isfinite(ahead))


def _carried(plan: Plan, link: Link) -> Floats:
    """Return how many bytes a link has carried at each transfer's begin and end."""
    uses = [link in _path(plan, transfer) for transfer in plan.transfers]
    sizes = np.array([transfer.wire_bytes for transfer in plan.transfers], np.float64) * np.array(uses)
    carried: Floats = np.repeat(np.cumsum(sizes), 2) - np.ravel(
        np.column_stack((sizes, np.zeros_like(sizes)))
    )
    return carried
