"""The stages inside hosts: which there are, what they are called, and where they stand on a path."""

from __future__ import annotations

from dataclasses import replace

import pytest

from topologies import LeafSpine, Slower, Stage, build_leaf_spine
from topologies.model import DEST_LANDING, SOURCE_RAIL, Link

GBIT = 1_000_000_000
SPEC = LeafSpine(
    leaves=2,
    spines=2,
    hosts_per_leaf=2,
    host_rate_bps=100 * GBIT,
    host_delay_ns=1_000,
    fabric_rate_bps=200 * GBIT,
    fabric_delay_ns=500,
    prefill_leaves=(1, 1),
    decode_leaves=(2,),
    gpus_per_host=2,
)
OWN = Stage(40 * GBIT, 300, shared=False)
SHARED = Stage(40 * GBIT, 300, shared=True)
CABLES = ("p1-leaf1", "leaf1-spine2", "spine2-leaf2", "leaf2-d1")


def stages(**changes: object) -> dict[str, Link]:
    topology = build_leaf_spine(replace(SPEC, **changes))  # type: ignore[arg-type]
    return {stage.name: stage for stage in topology.stages}


def rates(**changes: object) -> dict[str, int]:
    return {name: stage.rate_bps // GBIT for name, stage in stages(**changes).items()}


def test_hosts_as_fast_inside_as_their_nics_have_no_stages() -> None:
    topology = build_leaf_spine(SPEC)
    assert topology.stages == ()
    assert topology.all_links == topology.links
    assert topology.through_hosts("p1", 1, "d1", 2, CABLES) == CABLES


def test_each_gpu_has_a_stage_of_its_own() -> None:
    found = stages(rail=OWN, landing=replace(OWN, rate_bps=20 * GBIT, delay_ns=700))
    assert list(found) == ["p1g1-p1", "p1g2-p1", "p2g1-p2", "p2g2-p2", "d1-d1g1", "d1-d1g2"]
    assert found["p1g2-p1"] == Link("p1g2-p1", "p1g2", "p1", SOURCE_RAIL, 40 * GBIT, 300, 0)
    assert found["d1-d1g1"] == Link("d1-d1g1", "d1", "d1g1", DEST_LANDING, 20 * GBIT, 700, 0)


def test_a_shared_stage_stands_once_in_each_host() -> None:
    found = stages(rail=SHARED, landing=SHARED)
    assert list(found) == ["p1mem-p1", "p2mem-p2", "d1-d1mem"]
    assert found["p1mem-p1"] == Link("p1mem-p1", "p1mem", "p1", SOURCE_RAIL, 40 * GBIT, 300, 0)
    assert found["d1-d1mem"] == Link("d1-d1mem", "d1", "d1mem", DEST_LANDING, 40 * GBIT, 300, 0)


def test_each_side_is_by_itself() -> None:
    assert list(stages(rail=OWN)) == ["p1g1-p1", "p1g2-p1", "p2g1-p2", "p2g2-p2"]
    assert list(stages(landing=SHARED)) == ["d1-d1mem"]


def test_a_slower_host_has_stages_where_others_have_none() -> None:
    found = stages(slower=(Slower("p2", 0, 25 * GBIT), Slower("d1", 2, 10 * GBIT)))
    assert found == {
        "p2g1-p2": Link("p2g1-p2", "p2g1", "p2", SOURCE_RAIL, 25 * GBIT, 0, 0),
        "p2g2-p2": Link("p2g2-p2", "p2g2", "p2", SOURCE_RAIL, 25 * GBIT, 0, 0),
        "d1-d1g2": Link("d1-d1g2", "d1", "d1g2", DEST_LANDING, 10 * GBIT, 0, 0),
    }


@pytest.mark.parametrize("order", [1, -1])
def test_a_gpus_own_rate_comes_before_its_hosts_and_that_before_the_roles(order: int) -> None:
    slower = (Slower("p1", 0, 25 * GBIT), Slower("p1", 2, 10 * GBIT))[::order]
    assert rates(rail=OWN, slower=slower) == {"p1g1-p1": 25, "p1g2-p1": 10, "p2g1-p2": 40, "p2g2-p2": 40}


def test_a_slower_host_keeps_its_latency_and_its_shared_memory() -> None:
    found = stages(rail=SHARED, slower=(Slower("p2", 0, 25 * GBIT),))
    assert {name: (stage.rate_bps // GBIT, stage.delay_ns) for name, stage in found.items()} == {
        "p1mem-p1": (40, 300),
        "p2mem-p2": (25, 300),
    }


def test_rail_and_landing_of_a_gpu() -> None:
    own = build_leaf_spine(replace(SPEC, rail=OWN, landing=OWN))
    rail, landing = own.rail("p2", 2), own.landing("d1", 1)
    assert (rail and rail.name, landing and landing.name) == ("p2g2-p2", "d1-d1g1")
    # A stage belongs to one direction of one GPU: there is none the other way or further on.
    assert (own.landing("p2", 2), own.rail("d1", 1), own.rail("p2", 3)) == (None, None, None)
    shared = build_leaf_spine(replace(SPEC, rail=SHARED, landing=SHARED))
    assert shared.rail("p1", 1) == shared.rail("p1", 2) == shared.link("p1mem-p1")
    assert shared.landing("d1", 1) == shared.landing("d1", 2) == shared.link("d1-d1mem")


def test_one_slow_gpu_leaves_the_other_without_a_stage() -> None:
    topology = build_leaf_spine(replace(SPEC, slower=(Slower("p1", 2, 10 * GBIT),)))
    assert topology.rail("p1", 1) is None
    assert topology.rail("p1", 2) == topology.link("p1g2-p1")


def test_a_path_has_the_stages_of_its_gpus_around_the_cables() -> None:
    topology = build_leaf_spine(replace(SPEC, rail=OWN, landing=SHARED))
    assert topology.through_hosts("p1", 2, "d1", 1, CABLES) == ("p1g2-p1", *CABLES, "d1-d1mem")
    one_side = build_leaf_spine(replace(SPEC, landing=OWN))
    assert one_side.through_hosts("p1", 2, "d1", 1, CABLES) == (*CABLES, "d1-d1g1")
    assert build_leaf_spine(replace(SPEC, rail=OWN)).through_hosts("p1", 1, "d1", 1, CABLES) == (
        "p1g1-p1",
        *CABLES,
    )


def test_stages_are_no_cables() -> None:
    plain, staged = build_leaf_spine(SPEC), build_leaf_spine(replace(SPEC, rail=OWN, landing=OWN))
    assert staged.links == plain.links
    assert staged.all_links == staged.links + staged.stages
    assert staged.candidate_paths("p1", "d1") == plain.candidate_paths("p1", "d1")
    assert staged.link("d1-d1g2") == staged.stages[-1]
    with pytest.raises(KeyError, match="^'d1-d1g3'$"):
        staged.link("d1-d1g3")
