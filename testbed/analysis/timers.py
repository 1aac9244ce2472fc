"""Timers of TCP that dilation does not slow, where a run shows that they mattered. Called by `fidelity`."""

from __future__ import annotations

from testbed.plan.timers import is_slowed, own_time
from testbed.record.reader import Record

DELAYED_SHARE = 0.01
"""So many of the segments may be acknowledged by the timer for delayed ACKs, and each transfer's last."""


def timer_problems(record: Record) -> list[str]:
    """Return what a dilated run did by timers that were too short for it."""
    plan = record.plan
    if not is_slowed(plan):
        return []
    problems = [own_time(plan)] if own_time(plan) else []
    again = _total(record, "TCPSynRetrans")
    if again:
        problems.append(f"SYNs were sent again after 1 s, which dilation does not slow: {again}")
    delayed = _total(record, "DelayedACKs")
    segments = sum(-(-transfer.bytes // plan.mtu) for transfer in plan.transfers)
    # iperf3's own connections are no transfers, and their segments are not counted.
    if not plan.background and delayed > DELAYED_SHARE * segments + len(plan.transfers):
        problems.append(f"ACKs were sent by a timer of 40 ms, which dilation does not slow: {delayed}")
    return problems


def _total(record: Record, counter: str) -> int:
    return sum(counters.get(counter, 0) for counters in record.tcp_counters.values())
