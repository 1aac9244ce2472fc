"""What of TCP no dilation slows, because the kernel has it in seconds, and when that makes a run another one.

Called by `testbed plan`, and by the analysis on what a run counted.
"""

from __future__ import annotations

from testbed.plan.model import Plan

OWN_TIME = {
    "cubic": "grows its window by seconds and leaves slow start by milliseconds",
    "bbr": "probes its round trip every 10 s for 200 ms",
}
"""Congestion controls with a clock of their own (tcp_cubic.c, tcp_bbr.c). An incast of four at 10 Gbit/s and
k = 1000 had a mean queue of 358 kB under cubic and of 74 kB under bbr, in virtual time of 522 and 795 kB."""


def is_slowed(plan: Plan) -> bool:
    """Tell whether timers of TCP are too short for the plan. Only a real clock is dilated."""
    return plan.dilation != 1 and plan.transport.kind == "tcp"


def own_time(plan: Plan) -> str:
    """Return the sentence on a congestion control that dilation does not slow; empty where there is none."""
    name = plan.transport.congestion_control
    if not is_slowed(plan) or name not in OWN_TIME:
        return ""
    return (
        f"{name} {OWN_TIME[name]}, which dilation does not slow: its queues are others than without; "
        "use virtual time, or dctcp or reno"
    )
