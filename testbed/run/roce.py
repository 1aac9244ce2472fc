"""The plan's transfers as RoCE queue pairs: what `traffic.roce` needs to know of the plan, and what it
leaves.

Runs inside the lab, in the traffic program; picked by `testbed.run.inside` when the plan's transport is RoCE.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.lab.hosts import namespace
from testbed.lab.system import network_namespace
from testbed.plan.model import Plan, Transfer
from testbed.record import layout
from testbed.run.rows import RowFile
from traffic.roce.pairs import Lanes, Settings
from traffic.roce.replay import RoceReplay
from traffic.tcp_replay import Flow


class RoceRun:
    """A `RoceReplay` of a plan that writes progress and counters into the record."""

    def __init__(self, plan: Plan, flows: Sequence[Flow], record: Path) -> None:
        self._record = record
        self._progress = RowFile(record / layout.PROGRESS)
        self._replay = RoceReplay(
            flows,
            settings_of(plan),
            lanes={transfer.id: lanes_of(plan, transfer) for transfer in plan.transfers},
            gpus={transfer.id: transfer.dst_gpu for transfer in plan.transfers},
            namespace=lambda host: network_namespace(namespace(host)),
            progress=self._progress.add,
            progress_ns=plan.measure.progress_ns,
            dilation=plan.dilation,
        )
        self.prepare = self._replay.prepare
        self.close_open = self._replay.close_open

    def run(self, epoch_ns: int, end_ns: int) -> bool:
        """Run all flows; return False at `end_ns` if some remain."""
        return self._replay.run(epoch_ns, end_ns)

    def outcomes(self) -> list[dict[str, Any]]:
        """Return what became of each flow, once nothing more is done; writes the rest of the record."""
        self._progress.close()
        counters = json.dumps(self._replay.counters(), indent=1) + "\n"
        (self._record / layout.ROCE_COUNTERS).write_text(counters)
        return self._replay.outcomes()


def settings_of(plan: Plan) -> Settings:
    """Return how the queue pairs of a plan, in lab time, work. Raises ValueError for another transport."""
    own = plan.transport.roce
    if own is None:
        raise ValueError(f"the plan's transport is {plan.transport.kind}")
    return Settings(
        mtu=own.mtu,
        read=own.operation == "read",
        recovery=own.recovery,
        message_bytes=own.message_bytes,
        window_bytes=own.window_bytes,
        ack_timeout_ns=own.ack_timeout_ns,
        tick_ns=own.tick_ns,
        dcqcn=own.dcqcn,
        name=plan.transport.congestion_control,
        exact=plan.clock == "virtual",
    )


def lanes_of(plan: Plan, transfer: Transfer) -> Lanes:
    """Return name and rate of what a transfer's source shares with others and must not outrun: its NIC.

    A slower rail before that holds packets back itself, so that its queue is seen.
    """
    nic = plan.topology.link(plan.topology.host(transfer.src).nic(transfer.src_nic).up)
    return [(nic.name, nic.rate_bps)]
