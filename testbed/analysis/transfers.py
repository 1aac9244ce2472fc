"""Completion times of the transfers against their ideals, and what they mean for the first token.

Pure functions of the record; why a transfer was late is the business of `losses`. Called by `summary`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from testbed.analysis.stats import NS_PER_MS, POINTS, distribution, jain
from testbed.plan.model import Transfer
from testbed.record.outcomes import Outcome
from testbed.record.reader import Record

PAIR_POINTS = tuple(point for point in POINTS if point[0] != "p95")


@dataclass(frozen=True)
class Completion:
    """A transfer that completed, with how it was planned and what became of it."""

    transfer: Transfer
    outcome: Outcome
    end_ns: int

    @property
    def fct_ns(self) -> int:
        """Flow completion time: from the start at the sender to the last byte at the receiver."""
        return self.end_ns - self.outcome.start_ns

    @property
    def slowdown(self) -> float:
        """Completion time as a multiple of the time the transfer takes alone on an idle fabric."""
        return self.fct_ns / self.transfer.ideal_ns


def completions(record: Record) -> list[Completion]:
    """Return the transfers that completed, in the plan's order."""
    return [
        Completion(transfer, outcome, outcome.end_ns)
        for transfer, outcome in zip(record.plan.transfers, record.outcomes, strict=True)
        if outcome.completed and outcome.end_ns is not None
    ]


def busy_window(record: Record) -> tuple[int, int]:
    """Return the first start and the last end in scenario ns.

    Where nothing completed, the window ends with the last sample.
    """
    start = min((outcome.start_ns for outcome in record.outcomes), default=0)
    ends = [completion.end_ns for completion in completions(record)]
    if not ends:
        ends = [int(record.sample_times(group)[-1]) for group in record.groups if len(group.rows)]
    return start, max(ends, default=start)


def summarise_transfers(record: Record) -> dict[str, Any]:
    """Return the summary's `transfers`.

    `count` holds all transfers of the plan, everything else only those that completed: `bytes` is their
    payload, `last_end_ms` counts from the workload's start, `jain` is the fairness of their mean rates.
    """
    done = completions(record)
    fct = np.array([completion.fct_ns for completion in done], np.float64)
    ideal = np.array([completion.transfer.ideal_ns for completion in done], np.float64)
    size = np.array([completion.transfer.bytes for completion in done], np.float64)
    return {
        "count": len(record.outcomes),
        "completed": len(done),
        "bytes": sum(completion.transfer.bytes for completion in done),
        "fct_ms": distribution(fct / NS_PER_MS),
        "ideal_ms": distribution(ideal / NS_PER_MS),
        "slowdown": distribution(fct / ideal),
        "last_end_ms": max((completion.end_ns for completion in done), default=0) / NS_PER_MS
        if done
        else None,
        "ideal_last_end_ms": record.plan.ideal_last_end_ns / NS_PER_MS,
        "jain": jain(size / np.maximum(fct, 1)),
        "retransmissions": sum(outcome.retransmissions for outcome in record.outcomes),
    }


def summarise_ttft(record: Record) -> dict[str, Any]:
    """Return the summary's `ttft_ms`: from the end of prefill to the last byte of the KV at the decode host.

    `count` holds all transfers, the figures only those that completed.
    """
    done = completions(record)
    by_decode: dict[str, list[int]] = defaultdict(list)
    by_pair: dict[str, list[int]] = defaultdict(list)
    for completion in done:
        by_decode[completion.transfer.dst].append(completion.fct_ns)
        by_pair[f"{completion.transfer.src}->{completion.transfer.dst}"].append(completion.fct_ns)
    return {
        "count": len(record.outcomes),
        **distribution(np.array([completion.fct_ns for completion in done], np.float64) / NS_PER_MS),
        "by_decode": {name: _p50_p99(times) for name, times in by_decode.items()},
        "by_pair": {name: _p50_p99(times) for name, times in by_pair.items()},
    }


def _p50_p99(times_ns: Sequence[int]) -> dict[str, float | None]:
    figures = distribution(np.array(times_ns, np.float64) / NS_PER_MS, PAIR_POINTS)
    return {"p50": figures["p50"], "p99": figures["p99"]}
