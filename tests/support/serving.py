"""Serving systems for tests: few hosts, one token a nanosecond, whatever a test changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from traffic.connectors import CONNECTORS, handover
from traffic.jobs import ROUND_ROBIN, Job, Serving

PUSHED = handover(CONNECTORS["distserve"], token_bytes=0, layers=0, flows=1)


def job(number: int, arrival_ns: int = 0, prefill_ns: int = 100, size: int = 800, output: int = 3) -> Job:
    """Return a job of 100 tokens."""
    return Job(number, arrival_ns, prefill_ns, size, 100, output)


def serving(*jobs: Job, **changes: Any) -> Serving:
    """Return a system of two prefill and two decode hosts that serves `jobs`."""
    base = Serving(
        scheme="mooncake",
        handover=replace(PUSHED, starts="push"),
        prefill_hosts=("p1", "p2"),
        decode_hosts=("d1", "d2"),
        store_hosts=("s1",),
        prefill_policy=ROUND_ROBIN,
        prefill_slots=1,
        placement="round-robin",
        skew=1.0,
        staleness_ns=0,
        decode_slots=0,
        step_ns=0,
        slo_ttft_ns=0,
        cache_blocks=0,
        lead_ns=0,
        nic_of_gpu=(1,),
        seed=1,
        size_factor=1.0,
        time_factor=1.0,
        jobs=jobs,
    )
    return replace(base, **changes)
