"""The plan of a scenario: exact queues, ports, sizes, ideal times and seeds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.plan.build import build_plan, wire_bytes
from testbed.plan.dilation import dilated
from testbed.plan.model import Deadline, Measure, Plan, Queue, Routing, Transport
from testbed.scenario import load_scenario
from testbed.scenario.models import HASH_FIELDS


def plan_of(*overrides: str, name: str = "incast", seed: int = 1, clock: str = "virtual") -> Plan:
    return build_plan(load_scenario(name, overrides), seed=seed, backend="uml", clock=clock)


def test_incast() -> None:
    plan = plan_of()
    assert [(item.src, item.dst, item.src_port, item.dst_port) for item in plan.transfers] == [
        (f"p{number}", "d1", 20_000, 5_000) for number in range(1, 9)
    ]
    assert [item.id for item in plan.transfers] == list(range(8))
    first = plan.transfers[0]
    # 64 MiB in segments of 4148 B: 16179, each with 66 B of headers.
    assert (first.bytes, first.wire_bytes) == (67_108_864, 67_108_864 + 16_179 * 66)
    # 68176678 B at 100 Gbit/s are 5454134.24 ns; four links of 1 us.
    assert first.ideal_ns == 5_454_135 + 4_000
    # All eight share d1's link: 8 x 5454134.24 ns and the way there.
    assert plan.ideal_last_end_ns == 43_633_074 + 4_000
    assert plan.measure == Measure(20_000, 100_000)
    assert plan.transport == Transport("tcp", "dctcp", True, 1_000_000)
    assert plan.deadline == Deadline(20 * plan.ideal_last_end_ns + 2_000_000_000, 600.0)
    assert (plan.scenario, plan.backend, plan.clock, plan.mtu) == ("incast", "uml", "virtual", 4200)
    assert (plan.framework, plan.expectations) == ("os-ken", ("verdict.segment == dest-leaf",))


def test_baseline_has_a_decode_host_for_each_prefill_host() -> None:
    plan = plan_of(name="baseline")
    assert [(item.src, item.dst) for item in plan.transfers] == [(f"p{n}", f"d{n}") for n in range(1, 9)]
    assert plan.ideal_last_end_ns == plan.transfers[0].ideal_ns == 5_458_135


def test_oversubscribed_uplinks_bound_the_ideal() -> None:
    # Four hosts of 100 Gbit/s on two uplinks of 100: each gets half, whatever the hash would do.
    plan = plan_of("fabric.fabric_link.rate=100gbit", name="baseline")
    assert plan.transfers[0].ideal_ns == 5_454_135 + 4_000
    assert plan.ideal_last_end_ns == 10_908_269 + 4_000


@pytest.mark.parametrize(
    ("payload", "mtu", "wire"),
    [(1, 1500, 67), (1448, 1500, 1514), (1449, 1500, 1449 + 132), (14_480, 1500, 15_140)],
)
def test_wire_bytes(payload: int, mtu: int, wire: int) -> None:
    assert wire_bytes(payload, mtu) == wire


def test_every_link_has_a_queue_and_only_switches_mark() -> None:
    plan = plan_of("fabric.host_link.queue.kmin=50kb")
    queues = {queue.link: queue for queue in plan.queues}
    assert list(queues) == [link.name for link in plan.topology.links]
    assert queues["p1-leaf1"] == Queue("p1-leaf1", 50_000, 400_000, 0.2, 8_000_000, None, False)
    assert queues["leaf1-p1"] == Queue("leaf1-p1", 50_000, 400_000, 0.2, 8_000_000, 2_000_000, True)
    assert queues["leaf1-spine1"] == Queue("leaf1-spine1", 100_000, 400_000, 0.2, 8_000_000, 2_000_000, True)
    assert queues["spine2-leaf3"].kmin_bytes == 100_000


def test_round_robin_and_source_ports() -> None:
    plan = plan_of("workload.requests.count=7", "hosts.prefill.count=3", "hosts.decode.count=2")
    assert [(item.src, item.dst, item.src_port) for item in plan.transfers] == [
        ("p1", "d1", 20_000),
        ("p2", "d2", 20_000),
        ("p3", "d1", 20_000),
        ("p1", "d2", 20_001),
        ("p2", "d1", 20_001),
        ("p3", "d2", 20_001),
        ("p1", "d1", 20_002),
    ]


def test_as_many_transfers_as_a_source_has_ports() -> None:
    plan = plan_of("workload.requests.count=40000", "hosts.prefill.count=1", "workload.requests.kv_bytes=1b")
    assert plan.transfers[-1].src_port == 59_999
    assert len({item.src_port for item in plan.transfers}) == 40_000


def test_start_times_come_from_the_seed() -> None:
    window = "workload.requests.window=10ms"
    starts = [item.start_ns for item in plan_of(window).transfers]
    assert starts == sorted(starts)
    assert starts[0] == 1_343_642
    assert all(0 <= start < 10_000_000 for start in starts)
    assert starts == [item.start_ns for item in plan_of(window).transfers]
    assert starts != [item.start_ns for item in plan_of(window, seed=2).transfers]


def test_hash_seed_comes_from_the_seed() -> None:
    # The first four bytes of SHA-256 of "ecmp-1".
    assert plan_of().routing == Routing("ecmp", HASH_FIELDS[:4], 1_321_881_318)
    assert plan_of(seed=2).routing.hash_seed != 1_321_881_318


def test_scaled_sizes_never_reach_zero() -> None:
    plan = plan_of("workload.scale.bytes=0.25")
    assert plan.transfers[0].bytes == 16_777_216
    assert plan_of("workload.scale.bytes=1e-12").transfers[0].bytes == 1


def test_ideal_time_on_one_leaf_and_over_a_slow_fabric() -> None:
    local = plan_of(
        "hosts.decode.leaves=[1]",
        "workload.requests=null",
        "workload.transfers=[{from: p1, to: d1, bytes: 1b}]",
    )
    # 67 B at 100 Gbit/s: 5.36 ns, and two links.
    assert local.transfers[0].ideal_ns == local.ideal_last_end_ns == 6 + 2_000
    slow = plan_of(
        "fabric.fabric_link={rate: 1gbit, delay: 1ms}",
        "workload.requests=null",
        "workload.transfers=[{from: p1, to: d1, bytes: 1b, start: 1s}]",
    )
    assert slow.transfers[0].ideal_ns == 536 + 2_002_000
    assert slow.ideal_last_end_ns == 10**9 + 536 + 2_002_000


def test_background_flows() -> None:
    plan = plan_of(
        "workload.background=[{from: p1, to: d1, duration: 5s},"
        " {from: p2, to: d1, protocol: udp, rate: 1gbit, start: 1ms, duration: 1ms}]"
    )
    first, second = plan.background
    assert (first.protocol, first.rate_bps, first.start_ns, first.duration_ns) == ("tcp", 0, 0, 5 * 10**9)
    assert (first.port, second.port) == (7_000, 7_001)
    assert (second.src, second.protocol, second.rate_bps) == ("p2", "udp", 10**9)
    assert plan.deadline.scenario_ns == 20 * 5 * 10**9 + 2 * 10**9


def test_a_deadline_that_is_given() -> None:
    assert plan_of("deadline={scenario: 3s, real: 90s}").deadline == Deadline(3 * 10**9, 90.0)


def test_dilation() -> None:
    plan = plan_of(
        "dilation=1000",
        "workload.requests.window=1ms",
        "workload.background=[{from: p1, to: d1, protocol: udp, rate: 1gbit, start: 1ms, duration: 2ms}]",
        clock="real",
    )
    slow = dilated(plan)
    assert plan.topology.links[0].rate_bps == 100_000_000_000
    assert (slow.topology.links[0].rate_bps, slow.topology.links[0].delay_ns) == (100_000_000, 1_000_000)
    assert [item.start_ns for item in slow.transfers] == [1000 * item.start_ns for item in plan.transfers]
    assert slow.transfers[0].ideal_ns == 1000 * plan.transfers[0].ideal_ns
    assert slow.transfers[0].bytes == plan.transfers[0].bytes
    assert slow.queues == plan.queues
    assert slow.transport.rto_min_ns == 10**9
    assert (slow.measure.interval_ns, slow.measure.progress_ns) == (20_000_000, 100_000_000)
    assert slow.deadline == Deadline(1000 * plan.deadline.scenario_ns, 600.0)
    assert slow.ideal_last_end_ns == 1000 * plan.ideal_last_end_ns
    flow = slow.background[0]
    assert (flow.rate_bps, flow.start_ns, flow.duration_ns) == (1_000_000, 10**9, 2 * 10**9)
    assert (slow.routing, slow.dilation, slow.mtu) == (plan.routing, 1000, plan.mtu)


def test_unlimited_stays_unlimited_and_nothing_else_becomes_so() -> None:
    plan = plan_of(
        "workload.background=[{from: p1, to: d1, duration: 1ms}]", "dilation=1000000", clock="real"
    )
    assert dilated(plan).background[0].rate_bps == 0
    slowest = replace(plan.topology.links[0], rate_bps=100)
    tiny = replace(plan, topology=replace(plan.topology, links=(slowest,)))
    assert dilated(tiny).topology.links[0].rate_bps == 1


def test_without_dilation_nothing_changes() -> None:
    plan = plan_of()
    assert dilated(plan) is plan
