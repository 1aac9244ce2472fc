"""From a scenario with several NICs per host to who uses which: ends, ways, places and the plan."""

from __future__ import annotations

from typing import Any

import pytest

from controller.document import controller_document, parse_document
from testbed.plan.build import build_plan
from testbed.plan.codec import from_json, to_json
from testbed.plan.model import Plan, Transfer
from testbed.report.settings import setting_tables
from testbed.scenario import load_scenario
from testbed.scenario.nics import End, Ends, crossings
from testbed.scenario.placement import leaf_spine
from testbed.terminal import plan_text

HOSTS = ("hosts.prefill.count=2", "hosts.decode.count=2", "hosts.gpus_per_host=4", "hosts.nics_per_host=2")
RAILS = (*HOSTS, "hosts.rail_optimised=true")


def listed(*transfers: str) -> tuple[str, str]:
    return "workload.requests=null", f"workload.transfers=[{', '.join(transfers)}]"


def plan_of(*overrides: str) -> Plan:
    return build_plan(load_scenario("incast", overrides), seed=1, backend="uml", clock="virtual")


def used(plan: Plan) -> list[tuple[Any, ...]]:
    return [(t.src, t.src_gpu, t.src_nic, t.dst, t.dst_gpu, t.dst_nic) for t in plan.transfers]


def test_a_gpu_uses_its_own_nic_and_the_turn_goes_on() -> None:
    ends = Ends((1, 1, 2))
    assert [ends.source("p1") for _ in range(4)] == [
        *(End("p1", 1, 1), End("p1", 2, 1), End("p1", 3, 2), End("p1", 1, 1))
    ]
    assert ends.source("p1", nic=2) == End("p1", 2, 2)
    assert ends.source("p1", gpu=1) == End("p1", 1, 1)
    assert ends.source("p1", gpu=1, nic=2) == End("p1", 1, 2)
    assert ends.target("p1") == End("p1", 1, 1)


def test_requests_go_over_the_nics_of_the_gpus() -> None:
    plan = plan_of(*HOSTS, "hosts.affinity=[1, 2, 2, 2]", "hosts.decode.count=1", "workload.requests.count=4")
    assert used(plan) == [
        ("p1", 1, 1, "d1", 1, 1),
        ("p2", 1, 1, "d1", 2, 2),
        ("p1", 2, 2, "d1", 3, 2),
        ("p2", 2, 2, "d1", 4, 2),
    ]
    assert from_json(to_json(plan)) == plan


def test_a_nic_that_is_written_is_taken() -> None:
    plan = plan_of(
        *RAILS,
        *listed(
            "{from: p1, to: d1, bytes: 1mib, from_nic: 2}",
            "{from: p1, to: d1, bytes: 1mib, from_gpu: 4, to_nic: 2, to_gpu: 1}",
        ),
    )
    assert used(plan) == [("p1", 1, 2, "d1", 1, 1), ("p1", 4, 2, "d1", 1, 2)]


def test_far_ways_are_where_a_transfer_uses_a_nic_that_is_not_its_gpus() -> None:
    scenario = load_scenario(
        "incast",
        (
            *RAILS,
            *("hosts.prefill.gpu_to_far_nic=30gbit", "hosts.decode.nic_to_far_gpu=host-bounce"),
            "fabric.host_link.rate=200gbit",
            *listed(
                "{from: p1, to: d1, bytes: 1mib, from_nic: 2}",
                "{from: p1, to: d2, bytes: 1mib, from_gpu: 1, from_nic: 2, to_gpu: 3, to_nic: 1}",
                "{from: p2, to: d2, bytes: 1mib, from_gpu: 4, from_nic: 2}",
            ),
        ),
    )
    assert crossings(scenario, (1, 1, 2, 2)) == (("p1", 1, 2), ("d2", 3, 1))
    stages = build_plan(scenario, seed=1, backend="uml", clock="virtual").topology.stages
    found = [(stage.name, stage.rate_bps, stage.delay_ns) for stage in stages]
    assert found == [("p1g1-p1n2", 30_000_000_000, 0), ("d2n1-d2far", 133_600_000_000, 7_000)]


def test_the_default_far_way_is_across_the_sockets() -> None:
    fast, nic = "fabric.host_link.rate=400gbit", "{from: p1, to: d1, bytes: 1mib, from_nic: 2, to_nic: 2}"
    stages = {stage.name: stage for stage in plan_of(*RAILS, fast, *listed(nic)).topology.stages}
    assert list(stages) == ["p1far-p1n2", "d1n2-d1far"]
    assert {(stage.rate_bps, stage.delay_ns) for stage in stages.values()} == {(123_000_000_000, 1_430)}


def test_a_host_takes_a_port_for_each_nic() -> None:
    spec = leaf_spine(load_scenario("incast", HOSTS))
    assert (spec.prefill_leaves, spec.decode_leaves) == ((1, 1), (2, 2))
    rails = leaf_spine(load_scenario("incast", RAILS))
    assert (rails.prefill_leaves, rails.decode_leaves, rails.rail_optimised) == ((1, 1), (1, 1), True)


def test_who_uses_a_nic_that_is_not_his_gpus_is_told() -> None:
    plan = plan_of(
        *RAILS,
        *listed(
            "{from: p1, to: d1, bytes: 1mib, from_gpu: 1}",
            "{from: p1, to: d1, bytes: 1mib, from_gpu: 1, from_nic: 2}",
            "{from: p1, to: d1, bytes: 1mib, from_gpu: 3, to_gpu: 4, to_nic: 1}",
        ),
    )
    assert plan.crossing == (1, 2)
    assert "  2 of them over a NIC that is not their GPU's own" in plan_text(plan).splitlines()
    rows = {name: value for table in setting_tables(plan) for name, value in table.rows}
    assert rows["over another GPU's NIC"] == "2: 1, 2"
    assert rows["NICs of each host"] == "2: GPU 1 NIC 1, GPU 2 NIC 1, GPU 3 NIC 2, GPU 4 NIC 2"
    assert "over a NIC" not in plan_text(plan_of(*RAILS))


def test_alone_a_transfer_has_the_delays_of_the_way_between_its_nics() -> None:
    plan = plan_of(
        *RAILS,
        *listed(
            "{from: p1, to: d1, bytes: 1mib}",
            "{from: p2, to: d2, bytes: 1mib, to_nic: 2}",
        ),
    )
    within, across = plan.transfers
    assert across.ideal_ns - within.ideal_ns == 2_000


def last_end_ns(*nics: int) -> tuple[int, Transfer]:
    plan = plan_of(
        *RAILS, *listed(*(f"{{from: p1, to: d1, bytes: 8mib, from_nic: {n}, to_nic: {n}}}" for n in nics))
    )
    return plan.ideal_last_end_ns, plan.transfers[0]


def test_transfers_of_one_nic_share_it_and_those_of_two_do_not() -> None:
    alone, transfer = last_end_ns(1)
    assert alone == transfer.ideal_ns
    assert last_end_ns(1, 2)[0] == alone
    wire_ns = transfer.wire_bytes * 8 / 100  # at 100 Gbit/s; two cables of 1 us come on top once
    assert last_end_ns(2, 2)[0] == pytest.approx(2 * wire_ns + 2_000, abs=1)


def test_a_pin_holds_for_all_nics_of_its_hosts() -> None:
    pinned = ("routing.policy=pinned", "routing.pinned=[{from: p1, to: d2, spine: 2}, {from: p2, spine: 1}]")
    document = parse_document(controller_document(plan_of(*RAILS, *pinned)))
    assert [(pin.src, pin.dst, pin.spine) for pin in document.pinned] == [
        *(("p1n1", "d2n1", "spine2"), ("p1n1", "d2n2", "spine2")),
        *(("p1n2", "d2n1", "spine2"), ("p1n2", "d2n2", "spine2")),
        *(("p2n1", None, "spine1"), ("p2n2", None, "spine1")),
    ]
    assert [(host.name, host.leaf) for host in document.hosts[:3]] == [
        *(("p1n1", "leaf1"), ("p1n2", "leaf2"), ("p2n1", "leaf1")),
    ]
