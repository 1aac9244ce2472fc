"""The serving engine in the lab: its requests become the hosts' connections, its news their ends.

Part of the traffic program (`testbed.run.inside`). Writes the moments of every request beside the outcomes
of its transfers. With network-aware placement it reads the switches' counters itself, as a scheduler would
that asks the network's telemetry.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from testbed.plan.model import Plan, Transfer
from testbed.plan.served import TransferMaker, landings, receivers
from testbed.record import layout
from testbed.run.counters import FreeRates
from traffic.dispatch import NETWORK_AWARE, Dispatcher
from traffic.jobs import Serving
from traffic.serving import Course, Engine
from traffic.serving_replay import Pool, ServedFlow, ServingReplay
from traffic.tcp_replay import Flow, Namespace

Wire = Callable[[Transfer], Flow]
"""Returns a transfer as a flow, with its endpoints and limits."""

SMALL_BUFFER_BYTES = 1 << 20
"""A paced connection may have a millisecond at its rate in its host's queue; all others have a mebibyte at
most (`tcp_limit_output_bytes`), and so has this one by its buffer. Connections that share descriptors have
the same: what is in a buffer can no longer take another NIC."""

MOMENTS = (
    "arrival_ns",
    "prefill_start_ns",
    "prefill_end_ns",
    "landed_ns",
    "admitted_ns",
    "first_token_ns",
    "ended_ns",
)


class ServingRun:
    """One run's engine, placement and flows."""

    def __init__(self, plan: Plan, serving: Serving, wire: Wire, namespace: Namespace) -> None:
        self._plan, self._serving, self._wire = plan, serving, wire
        self._maker = TransferMaker(serving)
        self._transfers: dict[int, Transfer] = {}
        self._made: dict[int, ServedFlow] = {}
        dispatcher = Dispatcher(serving)
        self._engine = Engine(
            serving, dispatcher.choose, on_landed=dispatcher.landed, on_ended=dispatcher.ended
        )
        watch = None
        if serving.placement == NETWORK_AWARE:
            rates = FreeRates(plan)
            watch = (serving.staleness_ns, lambda now_ns: dispatcher.read(rates.read(now_ns)))
        self.replay = ServingReplay(
            self._engine,
            self._flows,
            self._listening(),
            congestion_control=plan.transport.congestion_control,
            namespace=namespace,
            dilation=plan.dilation,
            watch=watch,
        )

    def write(self, record: Path) -> None:
        """Write what became of every request, and of which transfers it was made."""
        document = {
            "requests": [self._course(course) for course in self._engine.courses.values()],
            "transfers": [asdict(transfer) for transfer in self._moved()],
        }
        (record / layout.REQUESTS).write_text(json.dumps(document, indent=1) + "\n")

    def _moved(self) -> Iterator[Transfer]:
        """Yield the transfers with what they really moved; one that moved nothing was none."""
        for number, transfer in sorted(self._transfers.items()):
            size = self._made[number].bytes
            if size:
                yield replace(transfer, bytes=size)

    @staticmethod
    def _course(course: Course) -> dict[str, Any]:
        return {
            "id": course.job.id,
            "prefill_host": course.prefill_host,
            "decode_host": course.decode_host,
            "store_host": course.store_host,
            "bytes": course.bytes,
            "cached_blocks": course.cached_blocks,
            **{name: getattr(course, name) for name in MOMENTS},
            "error": course.error,
        }

    def _listening(self) -> list[Flow]:
        """Return a flow for each place at which transfers may end."""
        nics = range(1, len(self._plan.topology.hosts[0].nics) + 1)
        places = [
            (host, nic, *place)
            for host in receivers(self._plan)
            for nic in nics
            for place in landings(self._plan, host, nic)
        ]
        src = self._serving.prefill_hosts[0]
        return [
            self._wire(Transfer(-1, src, host, 1, 0, 0, 0, port, 0, dst_gpu=gpu, dst_nic=nic))
            for host, nic, port, gpu in places
        ]

    def _flows(self, course: Course) -> list[ServedFlow]:
        chunk = self._serving.handover.descriptor_bytes
        flows: list[ServedFlow] = []
        for transfer in self._maker.transfers(course):
            self._transfers[transfer.id] = transfer
            plain = self._wire(transfer)
            flow = ServedFlow(
                plain.id,
                plain.src,
                plain.dst,
                plain.bytes,
                plain.start_ns,
                plain.pace_bps,
                plain.priority,
                plain.window_bytes,
                send_buffer_bytes=SMALL_BUFFER_BYTES if plain.pace_bps or self._pooled else 0,
                service=plain.service,
                request=course.job.id,
                chunk_bytes=chunk,
            )
            if course.store_host and transfer.src == course.store_host:
                flow.fed = True
                flows[-1].feeds = flow
            flows.append(flow)
            self._made[flow.id] = flow
        if self._pooled:
            self._share(flows)
        return flows

    @property
    def _pooled(self) -> bool:
        return self._serving.handover.nics > 1

    def _share(self, flows: list[ServedFlow]) -> None:
        """Let the flows of each pair of ranks take descriptors from one pool."""
        nics, unit = self._serving.handover.nics, self._serving.handover.descriptor_bytes
        for first in range(0, len(flows), nics):
            mine = flows[first : first + nics]
            size = sum(flow.bytes for flow in mine)
            pool = Pool(size, unit or size, mine)
            for flow in mine:
                flow.pool, flow.bytes = pool, size
