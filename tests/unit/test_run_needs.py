"""What a run needs, from what its plan has: counts by hand, and how the estimate follows them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from testbed.run import needs
from testbed.run.needs import MIB, counts_of, needs_of
from tests.support.lab import small_plan

FRAME = 4_214


def test_what_a_plan_has() -> None:
    # Two senders on leaf1, one receiver on leaf2, two spines: four links for each transfer.
    plan = small_plan()
    counts = counts_of(plan)
    assert (counts.nics, counts.ports, counts.switches, counts.stages) == (3, 3 + 8, 4, 0)
    assert (counts.transfers, counts.flows, counts.queues) == (2, 0, 14)
    wire = sum(transfer.wire_bytes for transfer in plan.transfers)
    assert counts.packets == pytest.approx(1.5 * wire / FRAME)
    assert counts.hops == pytest.approx(4 * counts.packets)
    samples = (plan.ideal_last_end_ns + needs.DRAIN_NS) / plan.measure.interval_ns
    assert counts.readings == pytest.approx(14 * samples)


def test_within_a_leaf_packets_cross_two_links() -> None:
    one_leaf = [
        "fabric.leaves=1",
        "hosts.prefill.leaves=[1]",
        "hosts.decode.leaves=[1]",
        "fabric.hosts_per_leaf=3",
    ]
    counts = counts_of(small_plan(*one_leaf))
    assert counts.hops == pytest.approx(2 * counts.packets)


def test_a_background_flow_counts_with_its_rate() -> None:
    flow = "workload.background=[{from: p1, to: d1, protocol: udp, rate: 8gbit, duration: 1ms}]"
    plan = small_plan(flow)
    more = counts_of(plan).packets - counts_of(replace(plan, background=())).packets
    assert more == pytest.approx(1e6 / FRAME)
    assert needs_of(plan).touched_bytes > needs_of(replace(plan, background=())).touched_bytes


def test_a_guest_has_more_than_it_will_touch_in_whole_steps() -> None:
    found = needs_of(small_plan())
    assert found.memory_mib % needs.STEP_MIB == 0
    touched_mib = found.touched_bytes / MIB
    assert 1.5 * touched_mib + 190 <= found.memory_mib <= 1.5 * touched_mib + 260


def test_memory_that_is_given_is_given() -> None:
    assert needs_of(small_plan("memory=2gib")).memory_mib == 2048
    assert needs_of(small_plan("memory=1000000kib")).memory_mib == 976
    assert needs_of(small_plan("memory=2gib")).touched_bytes == needs_of(small_plan()).touched_bytes


def test_needs_grow_with_the_plan() -> None:
    plan = small_plan()
    small, large = needs_of(plan), needs_of(small_plan("workload.requests.count=400"))
    waiting = needs.SENDING_SHARE * sum(transfer.wire_bytes for transfer in plan.transfers)  # of few only
    assert large.touched_bytes - small.touched_bytes == pytest.approx(398 * 20 * 1024 - waiting, abs=MIB)
    assert large.maps - small.maps == math.ceil(1.6 * 400) - math.ceil(1.6 * 2)
    assert large.record_bytes > small.record_bytes
    assert large.real_s > small.real_s


@pytest.mark.parametrize(
    ("transport", "kv_bytes", "waiting"),
    [("tcp", "4mib", 2 * 4 << 20), ("tcp", "64mib", 2 * 16 << 20), ("roce", "4mib", 0)],
)
def test_what_waits_in_send_buffers_takes_memory(transport: str, kv_bytes: str, waiting: int) -> None:
    plan = small_plan(f"workload.requests.kv_bytes={kv_bytes}", f"transport={{kind: {transport}}}")
    assert needs._waiting_bytes(plan) == pytest.approx(waiting, rel=0.03)  # with headers


def test_a_real_clock_takes_the_dilated_time() -> None:
    plan = small_plan("dilation=1000", clock="real")
    bare = replace(plan, dilation=0.0)
    assert needs_of(plan).real_s - needs_of(bare).real_s == pytest.approx(plan.ideal_last_end_ns / 1e6)


def test_rdma_costs_more_for_a_packet() -> None:
    plan = small_plan("transport={kind: roce}")
    assert needs_of(plan).real_s > needs_of(small_plan()).real_s


def test_pausing_costs_by_the_time_it_lasts() -> None:
    plan = small_plan("fabric.lossless=true")
    more = needs_of(plan).real_s - needs_of(replace(plan, pausing=None)).real_s
    assert more == pytest.approx(needs.PAUSING_S * plan.ideal_last_end_ns / 1e9)
