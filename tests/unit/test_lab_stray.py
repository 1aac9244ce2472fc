"""Reading what was lost outside the queues, and how idle the processors were."""

from __future__ import annotations

import pytest

from testbed.lab.stray import interface_drops, lost_upcalls, softnet_drops
from testbed.run.processor import idle_share, ticks

DEV = """\
Inter-|   Receive            |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier
    lo: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
leaf1-d1: 5000 50 0 3 0 0 0 0 7000 70 0 4 0 0 0 0
"""
SHOW = "system@ovs-system:\n  lookups: hit:520 missed:31 lost:2\n  flows: 12\n"


def test_drops_of_interfaces_are_of_both_directions() -> None:
    assert interface_drops(DEV) == {"interface lo": 0, "interface leaf1-d1": 7}


def test_the_kernels_backlog_is_summed_over_processors() -> None:
    assert softnet_drops("0000aaaa 00000010 00000000\n0000bbbb 00000001 00000000\n") == 17


@pytest.mark.parametrize(("text", "lost"), [(SHOW, 2), (SHOW + SHOW, 4), ("", 0)])
def test_lost_upcalls(text: str, lost: int) -> None:
    assert lost_upcalls(text) == lost


def test_idle_ticks_are_those_that_did_nothing() -> None:
    #      user nice system idle iowait irq softirq steal guest
    text = "cpu  100 1 20 700 30 4 5 6 9 0\ncpu0 50 0 10 350 15 2 2 3 4 0\n"
    assert ticks(text) == (730, 866)
    assert idle_share((730, 866), (755, 966)) == 0.25
    assert idle_share((730, 866), (730, 866)) == 1.0
