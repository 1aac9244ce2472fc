"""Rates, buckets, delays and redirects of the plan's links."""

from __future__ import annotations

import random

import pytest

from testbed.lab.netlink import HtbClass
from testbed.lab.qdiscs import (
    burst_ns,
    delay_lines,
    delays_ns,
    ramp_probability,
    rate_class,
    service_of,
    ways_of,
)
from tests.support.lab import small_plan


def red_share(max_p: float, packets: int, seed: int) -> float:
    """The share of packets that RED marks at the top of its ramp, as include/net/red.h does it.

    `count` is the kernel's qcount (packets since the last mark), `threshold` its qR (uniform below
    delta/max_P), here divided by delta = qavg - qth_min.
    """
    draw = random.Random(seed)
    count, threshold, marks = 0, draw.random() / max_p, 0
    for _ in range(packets):
        count += 1
        if count >= threshold:
            marks += 1
            count, threshold = 0, draw.random() / max_p
    return marks / packets


@pytest.mark.parametrize("pmax", [0.01, 0.1, 0.2, 0.5, 0.8, 1.0])
def test_red_marks_the_planned_share_at_the_top_of_its_ramp(pmax: float) -> None:
    # Marks are a renewal process whose gaps vary less than a geometric one's: four standard deviations
    # of the latter, and 1/p need not be whole, which moves the mean gap by less than one packet in 8 gaps.
    packets = 200_000
    share = red_share(ramp_probability(pmax), packets, seed=7)
    noise = 4 * (pmax * (1 - pmax) / packets) ** 0.5
    assert share == pytest.approx(pmax, abs=noise + pmax**2 / 8)


def test_taken_as_it_is_the_probability_would_mark_nearly_twice_as_much() -> None:
    assert red_share(0.2, 200_000, seed=7) == pytest.approx(2 * 0.2 / 1.2, rel=0.02)


@pytest.mark.parametrize(("pmax", "max_p"), [(1.0, 1.0), (0.2, 0.2 / 1.8), (0.5, 1 / 3)])
def test_ramp_probability(pmax: float, max_p: float) -> None:
    assert ramp_probability(pmax) == pytest.approx(max_p, rel=1e-15)


@pytest.mark.parametrize(
    ("frame_ns", "clock", "depth_ns"),
    [
        (337, "virtual", 64),
        (337_000, "virtual", 64),
        (337, "real", 50_048),  # late timers: 50 us, in whole ticks of 64 ns
        (25_024, "real", 50_048),
        (25_025, "real", 50_112),  # two frames
    ],
)
def test_bucket_depth(frame_ns: int, clock: str, depth_ns: int) -> None:
    assert burst_ns(frame_ns, clock) == depth_ns


def test_rate_class_of_a_link() -> None:
    plan = small_plan("fabric.host_link.rate=1gbit", "dilation=1", clock="real")
    link = plan.topology.link("leaf2-d1")
    # 4214 B at 1 Gbit/s are 33712 ns; two of them in ticks of 64 ns.
    assert rate_class(link, plan) == HtbClass(125_000_000, 125_000_000, 67_456, 67_456, 4214)


@pytest.mark.parametrize(
    ("host", "fabric", "delays"),
    [
        ("1us", "1us", {"delay-near": 2_000, "delay-far": 4_000}),
        ("3us", "0.5us", {"delay-near": 6_000, "delay-far": 7_000}),
        ("0us", "2us", {"delay-near": 0, "delay-far": 4_000}),
        ("0us", "0us", {}),
    ],
)
def test_a_path_is_delayed_by_the_sum_of_its_links(host: str, fabric: str, delays: dict[str, int]) -> None:
    plan = small_plan(f"fabric.host_link.delay={host}", f"fabric.fabric_link.delay={fabric}")
    assert delays_ns(plan) == delays


def test_path_delays_do_not_depend_on_the_order_of_links() -> None:
    plan = small_plan("fabric.host_link.delay=3us", "fabric.fabric_link.delay=1us")
    for path in plan.topology.candidate_paths("p1", "d1"):
        assert sum(plan.topology.link(name).delay_ns for name in path) == delays_ns(plan)["delay-far"]
    near = plan.topology.candidate_paths("p1", "p2")[0]
    assert sum(plan.topology.link(name).delay_ns for name in near) == delays_ns(plan)["delay-near"]


SLOW_BOTH = (
    *("hosts.prefill.gpu_to_nic=40gbit", "hosts.prefill.latency=5us"),
    *("hosts.decode.nic_to_gpu=40gbit", "hosts.decode.latency=2us"),
)


def test_the_stages_latency_lies_on_the_way_of_kv_alone() -> None:
    plan = small_plan(*SLOW_BOTH)
    assert plan.topology.inside_ns == (2_000, 5_000, 7_000)
    assert delays_ns(plan) == {
        "delay-near": 2_000,
        "delay-far": 4_000,
        "delay-near-1": 4_000,
        "delay-far-1": 6_000,
        "delay-near-2": 7_000,
        "delay-far-2": 9_000,
        "delay-near-3": 9_000,
        "delay-far-3": 11_000,
    }
    assert ways_of(plan.topology.nics["p1"], plan)[4:] == [
        ("u32 match ip dst 10.0.1.0/24 match ip tos 0x0c 0xfc", "delay-near-3"),
        ("u32 match ip tos 0x0c 0xfc", "delay-far-3"),
        ("u32 match ip dst 10.0.1.0/24", "delay-near"),
        ("matchall", "delay-far"),
    ]
    lines = [line for line in delay_lines(plan) if line.startswith("filter add dev leaf1-p1 ")]
    assert [line.split("prio ")[1].split()[0] for line in lines] == list("12345678")
    assert {service_of(plan, item) for item in plan.transfers} == {0x0C}


def test_one_side_alone_and_no_latency_at_all() -> None:
    assert small_plan(*SLOW_BOTH[:2]).topology.inside_ns == (5_000,)
    assert delays_ns(small_plan(*SLOW_BOTH[2:]))["delay-far-1"] == 4_000 + 2_000
    # A rate of the scenario's own has no latency unless it is given.
    rates = small_plan(SLOW_BOTH[0], SLOW_BOTH[2])
    assert delays_ns(rates) == {"delay-near": 2_000, "delay-far": 4_000}
    assert len(ways_of(rates.topology.nics["p1"], rates)) == 2
    assert {service_of(rates, item) for item in rates.transfers} == {0}


def test_each_gpu_and_nic_have_the_latency_of_their_own_way() -> None:
    plan = small_plan(
        *("fabric.host_link.rate=400gbit", "fabric.hosts_per_leaf=4", "hosts.gpus_per_host=2"),
        *("hosts.nics_per_host=2", "hosts.prefill.gpu_to_far_nic=host-bounce", "workload.requests=null"),
        "workload.transfers=[{from: p1, to: d1, bytes: 1b}, {from: p1, to: d1, bytes: 1b, from_nic: 1},"
        " {from: p1, to: d1, bytes: 1b, to_nic: 2}, {from: p2, to: d1, bytes: 1b, from_nic: 2, to_nic: 1}]",
    )
    assert [stage.delay_ns for stage in plan.topology.stages] == [7_000, 7_000, 1_430, 1_430]
    assert plan.topology.inside_ns == (1_430, 7_000, 8_430)
    assert [service_of(plan, item) >> 2 for item in plan.transfers] == [0, 2, 1, 3]


def test_packets_from_a_host_are_led_to_the_stage_of_their_path() -> None:
    lines = delay_lines(small_plan())
    redirect = "action mirred egress redirect dev"
    # clsact: Open vSwitch deletes `ingress` from its ports.
    assert lines[-3:] == [
        "qdisc add dev leaf2-d1 clsact",
        "filter add dev leaf2-d1 ingress protocol ip prio 1 u32 match ip dst 10.0.2.0/24 "
        f"{redirect} delay-near",
        f"filter add dev leaf2-d1 ingress protocol all prio 2 matchall {redirect} delay-far",
    ]
    assert [line.split()[3] for line in lines if line.startswith("qdisc")] == [
        "leaf1-p1",
        "leaf1-p2",
        "leaf2-d1",
    ]


def test_without_delay_nothing_is_redirected() -> None:
    assert delay_lines(small_plan("fabric.host_link.delay=0us", "fabric.fabric_link.delay=0us")) == []
