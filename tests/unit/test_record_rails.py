"""Whose backlog it is: a NIC's, or that of the rails before it."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.record.rails import nic_and_rails, own_backlog, sends_at_its_rate
from topologies import LeafSpine, Stage, build_leaf_spine
from topologies.model import Topology


@pytest.fixture(scope="module")
def topology() -> Topology:
    stage = Stage(6_000_000_000, 0, shared=False)
    return build_leaf_spine(
        LeafSpine(1, 1, 4, 10_000_000_000, 0, 10_000_000_000, 0, (1,), (1,), 2, rail=stage, landing=stage)
    )


@pytest.mark.parametrize("link", ["p1-leaf1", "p1g1-p1", "p1g2-p1"])
def test_a_nic_and_its_rails_belong_together(topology: Topology, link: str) -> None:
    nic, rails = nic_and_rails(topology, link)
    assert nic is not None
    assert nic.name == "p1-leaf1"
    assert [rail.name for rail in rails] == ["p1g1-p1", "p1g2-p1"]


@pytest.mark.parametrize("link", ["d1-leaf1", "leaf1-p1", "leaf1-spine1", "d1-d1g1"])
def test_other_links_have_a_queue_of_their_own(topology: Topology, link: str) -> None:
    assert nic_and_rails(topology, link) == (None, ())


def test_a_nic_is_full_where_it_sends_at_its_rate(topology: Topology) -> None:
    nic = topology.link("p1-leaf1")  # 1250 bytes in each microsecond
    times, sent = np.array([0, 1000, 2000, 3000]), np.array([0, 1250, 2474, 3699])
    assert sends_at_its_rate(nic, times, sent).tolist() == [False, True, False, True]


def test_what_waits_waits_for_the_nic_where_that_is_full() -> None:
    full = np.array([False, True, False])
    first, second = np.array([10, 20, 30]), np.array([1, 2, 3])
    at_nic = first + second + np.array([0, 0, 5])
    assert own_backlog(True, full, at_nic, [first, second]).tolist() == [0, 22, 5]
    assert own_backlog(False, full, first, [first, second]).tolist() == [10, 0, 30]
