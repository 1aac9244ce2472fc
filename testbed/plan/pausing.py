"""Which ports a queue of a lossless fabric pauses: those over which the plan's transfers fill it. Pure.

Called by `testbed.plan.build`. The lab pauses what stands here and asks nobody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from controller.document import controller_document, parse_document
from controller.prediction import Prediction
from testbed.plan.model import PausePoint, Pausing, Plan, Transfer
from testbed.scenario.lossless import Pause
from topologies.model import DEST_LANDING

DEADLOCK_NS = 1_000_000
"""Ports that hold each other in a circle for so long are deadlocked: none can be the first to send."""

_TCP, _UDP = ("tcp", 6), ("udp", 17)
"""The words of header fields, and the protocol's number. RoCE is UDP."""


def pausing(plan: Plan, pauses: list[Pause]) -> Pausing:
    """Return where the fabric of `plan` pauses, and whom."""
    feeders: dict[str, dict[str, None]] = {}
    for path in _paths(plan):
        for before, queue in pairwise(path):
            feeders.setdefault(queue, {})[before] = None
    points = (
        PausePoint(
            link=pause.link,
            xoff_bytes=pause.xoff_bytes,
            xon_bytes=pause.xon_bytes,
            headroom_bytes=pause.headroom_bytes,
            feeders=tuple(sorted(feeders.get(pause.link, ()))),
        )
        for pause in pauses
    )
    return Pausing(tuple(points), DEADLOCK_NS)


def _paths(plan: Plan) -> Iterator[tuple[str, ...]]:
    """Yield every path of cables and landings that data may take; acknowledgements fill no queue."""
    if plan.serving:
        yield from _all_paths(plan)
        return
    prediction = Prediction(parse_document(controller_document(plan)))
    for transfer in plan.transfers:
        landing = plan.topology.landing(transfer.dst, transfer.dst_gpu, transfer.dst_nic)
        behind = (landing.name,) if landing else ()
        for path in _cables(plan, transfer, prediction):
            yield (*path, *behind)
    for flow in plan.background:
        # iperf3 chooses its own port, and with it its path.
        yield from plan.topology.candidate_paths(flow.src, flow.dst)


def _all_paths(plan: Plan) -> Iterator[tuple[str, ...]]:
    """Yield the paths between all prefill and decode hosts: who sends to whom is decided in the run."""
    topology = plan.topology
    landings = [stage for stage in topology.stages if stage.segment == DEST_LANDING]
    ends = [(host, number) for host in topology.hosts for number in range(1, len(host.nics) + 1)]
    for src, src_nic in ends:
        for dst, dst_nic in ends:
            if (src.role, dst.role) == ("prefill", "decode"):
                for path in topology.candidate_paths(src.name, dst.name, src_nic, dst_nic):
                    yield path
                    behind = (stage.name for stage in landings if stage.src == dst.nic(dst_nic).name)
                    yield from ((path[-1], name) for name in behind)


def _cables(plan: Plan, transfer: Transfer, prediction: Prediction) -> tuple[tuple[str, ...], ...]:
    """Return the one path the hash gives, or all where nobody can tell before the run."""
    topology, ends = plan.topology, (transfer.src, transfer.dst, transfer.src_nic, transfer.dst_nic)
    candidates = topology.candidate_paths(*ends)
    if len(candidates) == 1 or plan.routing.policy == "least-loaded":
        return candidates
    protocol, number = _TCP if plan.transport.kind == "tcp" else _UDP
    fields: dict[str, int | str] = {
        "ipv4_src": topology.host(transfer.src).nic(transfer.src_nic).ip,
        "ipv4_dst": topology.host(transfer.dst).nic(transfer.dst_nic).ip,
        "ip_proto": number,
        f"{protocol}_src": transfer.src_port,
        f"{protocol}_dst": transfer.dst_port,
    }
    spine = prediction.spine_of(fields)
    return tuple(path for path in candidates if path[1].endswith(f"-{spine}"))
