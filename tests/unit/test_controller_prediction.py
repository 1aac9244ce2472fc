"""The spine foretold from a plan: what the rules say, without a switch."""

from __future__ import annotations

from collections import Counter

import pytest

from controller.document import controller_document, parse_document
from controller.ecmp_hash import choose_bucket, leaf_seed
from controller.prediction import Prediction
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.scenario import load_scenario


def plan_of(*overrides: str, seed: int = 1) -> Plan:
    wide = ("fabric.spines=4", "workload.requests.count=64", *overrides)
    return build_plan(load_scenario("incast", wide), seed=seed, backend="uml", clock="virtual")


def prediction(plan: Plan) -> Prediction:
    return Prediction(parse_document(controller_document(plan)))


def spines(plan: Plan) -> list[str | None]:
    foretold = prediction(plan)
    return [foretold.spine_of(fields(plan, number)) for number in range(len(plan.transfers))]


def fields(plan: Plan, number: int) -> dict[str, int | str]:
    transfer = plan.transfers[number]
    src, dst = plan.topology.host(transfer.src), plan.topology.host(transfer.dst)
    ports = {"tcp_src": transfer.src_port, "tcp_dst": transfer.dst_port}
    return {"ipv4_src": src.ip, "ipv4_dst": dst.ip, "ip_proto": 6, **ports}


def test_ecmp_is_the_hash_with_the_leafs_seed() -> None:
    plan = plan_of()
    routing = plan.routing
    for number, spine in enumerate(spines(plan)):
        leaf = int(plan.topology.host(plan.transfers[number].src).leaf.removeprefix("leaf"))
        seed = leaf_seed(routing.hash_seed, leaf)
        chosen = choose_bucket(fields(plan, number), routing.hash_fields, seed, (1, 2, 3, 4))
        assert spine == f"spine{chosen}"
    assert set(spines(plan)) == {"spine1", "spine2", "spine3", "spine4"}


def test_pinned_is_the_pinned_spine_and_ecmp_elsewhere() -> None:
    plan = plan_of(
        "routing.policy=pinned", "routing.pinned=[{from: p1, to: d1, spine: 3}, {from: p6, spine: 2}]"
    )
    ecmp = spines(plan_of())
    for transfer, spine in zip(plan.transfers, spines(plan), strict=True):
        assert spine == {"p1": "spine3", "p6": "spine2"}.get(transfer.src, ecmp[transfer.id])


@pytest.mark.parametrize("seed", range(1, 6))
def test_polarised_sends_all_to_one_host_over_one_spine(seed: int) -> None:
    plan = plan_of("routing.policy=polarised", seed=seed)
    assert plan.routing.hash_fields == ("ipv4_dst", "tcp_dst")
    assert len(set(spines(plan))) == 1


def test_polarised_runs_differ_in_which_spine() -> None:
    used = Counter(spines(plan_of("routing.policy=polarised", seed=seed))[0] for seed in range(1, 41))
    assert set(used) == {"spine1", "spine2", "spine3", "spine4"}


def test_within_a_leaf_there_is_no_spine() -> None:
    plan = plan_of()
    p1, p2 = plan.topology.host("p1"), plan.topology.host("p2")
    flow = {**fields(plan, 0), "ipv4_src": p1.ip, "ipv4_dst": p2.ip}
    assert prediction(plan).spine_of(flow) is None


def test_what_load_decides_is_not_foretold() -> None:
    plan = plan_of("routing.policy=least-loaded")
    with pytest.raises(ValueError, match="^what leaf1 sends up is placed while traffic runs$"):
        prediction(plan).spine_of(fields(plan, 0))


def test_what_is_for_no_host_is_refused() -> None:
    plan = plan_of()
    with pytest.raises(ValueError, match=r"^no rule of leaf1 leads to 192\.0\.2\.1$"):
        prediction(plan).spine_of({**fields(plan, 0), "ipv4_dst": "192.0.2.1"})
