"""Where a lossless fabric pauses and whom: thresholds, headroom, and the ports that fill each queue."""

from __future__ import annotations

import pytest

from testbed.plan.model import PausePoint, Plan
from tests.support.lab import small_plan

LOSSLESS = "fabric.lossless=true"
FRAMES = 2 * 4214


def points(plan: Plan) -> dict[str, PausePoint]:
    assert plan.pausing is not None
    return {point.link: point for point in plan.pausing.points}


def feeders(plan: Plan) -> dict[str, tuple[str, ...]]:
    return {link: point.feeders for link, point in points(plan).items() if point.feeders}


def test_a_fabric_that_drops_pauses_nowhere() -> None:
    assert small_plan().pausing is None


def test_every_switch_port_can_pause() -> None:
    plan = small_plan(LOSSLESS)
    assert set(points(plan)) == {queue.link for queue in plan.queues if queue.marking}


def test_thresholds_have_defaults() -> None:
    point = points(small_plan(LOSSLESS, "fabric.queue.limit=8mb"))["leaf2-d1"]
    assert (point.xoff_bytes, point.xon_bytes) == (2_000_000, 1_000_000)
    queues = {queue.link: queue for queue in small_plan(LOSSLESS).queues}
    assert queues["leaf2-d1"].xoff_bytes == 2_000_000
    assert queues["p1-leaf1"].xoff_bytes is None


def test_thresholds_are_those_of_the_scenario() -> None:
    own = ("fabric.queue.xoff=1mb", "fabric.queue.xon=300kb", "fabric.queue.headroom=100kb")
    point = points(small_plan(LOSSLESS, *own, "fabric.spines=2"))["leaf2-d1"]
    assert (point.xoff_bytes, point.xon_bytes, point.headroom_bytes) == (1_000_000, 300_000, 200_000)


def test_headroom_is_what_the_links_that_fill_a_queue_carry_until_they_stop() -> None:
    found = points(small_plan(LOSSLESS, "fabric.spines=1", "fabric.fabric_link.rate=200gbit"))
    # 2 x 1 us and the microsecond of reaction, at 25 bytes in a nanosecond.
    assert found["leaf2-d1"].headroom_bytes == 3_000 * 25 + FRAMES
    # p1 and p2: their packets spend all of 4 us behind the NIC, at 12.5 bytes in a nanosecond.
    assert found["leaf1-spine1"].headroom_bytes == 2 * (5_000 * 12.5 + FRAMES)


def test_what_comes_down_from_a_spine_does_not_go_up_again() -> None:
    found = points(small_plan(LOSSLESS, "fabric.spines=2"))
    assert found["leaf1-spine1"].headroom_bytes == 2 * (5_000 * 12.5 + FRAMES)  # p1 and p2, not spine2


def test_those_that_fill_a_queue_follow_from_the_transfers() -> None:
    assert feeders(small_plan(LOSSLESS, "fabric.spines=1")) == {
        "leaf1-spine1": ("p1-leaf1", "p2-leaf1"),
        "spine1-leaf2": ("leaf1-spine1",),
        "leaf2-d1": ("spine1-leaf2",),
    }


def test_a_pinned_flow_fills_the_queues_of_its_path_only() -> None:
    pinned = "routing.pinned=[{from: p1, spine: 2}, {from: p2, spine: 1}]"
    found = feeders(small_plan(LOSSLESS, "fabric.spines=2", "routing.policy=pinned", pinned))
    assert found["leaf1-spine1"] == ("p2-leaf1",)
    assert found["leaf1-spine2"] == ("p1-leaf1",)
    assert found["leaf2-d1"] == ("spine1-leaf2", "spine2-leaf2")


def test_with_least_loaded_every_path_is_possible() -> None:
    found = feeders(small_plan(LOSSLESS, "fabric.spines=2", "routing.policy=least-loaded"))
    assert found["leaf1-spine1"] == found["leaf1-spine2"] == ("p1-leaf1", "p2-leaf1")


def test_a_background_flow_fills_queues_too() -> None:
    beside = "workload.background=[{from: p1, to: p2, duration: 1ms}]"
    assert feeders(small_plan(LOSSLESS, beside))["leaf1-p2"] == ("p1-leaf1",)


def test_a_landing_pauses_its_leafs_port() -> None:
    plan = small_plan(LOSSLESS, "hosts.decode.nic_to_gpu=40gbit", "hosts.decode.buffer=4mb")
    point = points(plan)["d1-d1g1"]
    assert (point.xoff_bytes, point.xon_bytes, point.feeders) == (2_000_000, 1_000_000, ("leaf2-d1",))
    assert point.headroom_bytes == pytest.approx(3_000 * 12.5 + FRAMES, abs=1)
    assert {queue.link: queue for queue in plan.queues}["d1-d1g1"].xoff_bytes == 2_000_000


def test_roce_is_foretold_by_its_udp_ports() -> None:
    found = feeders(small_plan(LOSSLESS, "transport.kind=roce", "fabric.spines=2"))
    uplinks = [found.get(f"leaf1-spine{number}", ()) for number in (1, 2)]
    assert sorted(name for names in uplinks for name in names) == ["p1-leaf1", "p2-leaf1"]


def test_with_a_serving_engine_any_prefill_host_may_fill_any_port_of_a_decode_host() -> None:
    # Who sends to whom is decided in the run.
    served = (LOSSLESS, "fabric.spines=1", "workload.connector=distserve", "expect=[]")
    plan = small_plan(*served)
    assert plan.serving is not None
    found = feeders(plan)
    decode = [host for host in plan.topology.hosts if host.role == "decode"]
    leaves = {host.leaf for host in plan.topology.hosts if host.role == "prefill"}
    for host in decode:
        assert f"spine1-{host.leaf}" in found[host.nic().down] or host.leaf in leaves
    uplinks = {name for name in found if name.endswith("-spine1")}
    senders = {host.nic().up for host in plan.topology.hosts if host.role == "prefill"}
    assert set().union(*(found[name] for name in uplinks)) == senders
