"""Which plans have a congestion control that dilation does not slow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.plan.timers import own_time
from tests.support.lab import small_plan


@pytest.mark.parametrize(
    ("clock", "dilation", "name", "told"),
    [
        ("real", 1000, "cubic", True),
        ("real", 1000, "bbr", True),
        ("real", 1000, "dctcp", False),
        ("real", 1000, "reno", False),
        ("real", 1, "cubic", False),
        ("virtual", 1, "cubic", False),
    ],
)
def test_a_dilated_plan_under_a_control_with_its_own_clock_is_told(
    clock: str, dilation: float, name: str, told: bool
) -> None:
    plan = small_plan(clock=clock)
    plan = replace(plan, dilation=dilation, transport=replace(plan.transport, congestion_control=name))
    assert own_time(plan).startswith(f"{name} ") is told
    assert bool(own_time(plan)) is told
