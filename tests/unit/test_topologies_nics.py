"""Hosts with several NICs: names, addresses, where they hang, whose they are, and the ways between."""

from __future__ import annotations

from dataclasses import replace

import pytest

from topologies import LeafSpine, Slower, Stage, build_leaf_spine

GBIT = 1_000_000_000
SPEC = LeafSpine(
    leaves=2,
    spines=2,
    hosts_per_leaf=4,
    host_rate_bps=100 * GBIT,
    host_delay_ns=1_000,
    fabric_rate_bps=200 * GBIT,
    fabric_delay_ns=500,
    prefill_leaves=(1, 1),
    decode_leaves=(2,),
    gpus_per_host=4,
    nics_per_host=2,
)
RAILS = replace(SPEC, prefill_leaves=(1, 1), decode_leaves=(1,), rail_optimised=True)
OWN = Stage(40 * GBIT, 300, shared=False)
SHARED = Stage(40 * GBIT, 300, shared=True)
FAR = Stage(10 * GBIT, 900, shared=False)


def stages(spec: LeafSpine) -> dict[str, int]:
    return {stage.name: stage.rate_bps // GBIT for stage in build_leaf_spine(spec).stages}


def test_the_nics_of_a_host_hang_on_its_leaf() -> None:
    topology = build_leaf_spine(SPEC)
    found = [(nic.name, nic.leaf, nic.ip, nic.mac) for nic in topology.nics.values()]
    assert found == [
        ("p1n1", "leaf1", "10.0.1.1", "02:00:0a:00:01:01"),
        ("p1n2", "leaf1", "10.0.1.2", "02:00:0a:00:01:02"),
        ("p2n1", "leaf1", "10.0.1.3", "02:00:0a:00:01:03"),
        ("p2n2", "leaf1", "10.0.1.4", "02:00:0a:00:01:04"),
        ("d1n1", "leaf2", "10.0.2.1", "02:00:0a:00:02:01"),
        ("d1n2", "leaf2", "10.0.2.2", "02:00:0a:00:02:02"),
    ]
    assert [link.name for link in topology.links[:4]] == [
        *("p1n1-leaf1", "leaf1-p1n1", "p1n2-leaf1", "leaf1-p1n2"),
    ]
    assert [topology.link(f"leaf1-{name}").port for name in ("p1n1", "p1n2", "p2n1")] == [3, 4, 5]


def test_on_rails_nic_i_of_every_host_hangs_on_leaf_i() -> None:
    topology = build_leaf_spine(RAILS)
    assert {nic.name: (nic.leaf, nic.ip) for nic in topology.nics.values()} == {
        "p1n1": ("leaf1", "10.0.1.1"),
        "p1n2": ("leaf2", "10.0.2.1"),
        "p2n1": ("leaf1", "10.0.1.2"),
        "p2n2": ("leaf2", "10.0.2.2"),
        "d1n1": ("leaf1", "10.0.1.3"),
        "d1n2": ("leaf2", "10.0.2.3"),
    }


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (replace(SPEC, hosts_per_leaf=3), "leaf1 has no free port for p2n2: hosts_per_leaf is 3"),
        (replace(RAILS, hosts_per_leaf=2), "leaf1 has no free port for d1n1: hosts_per_leaf is 2"),
        (replace(RAILS, nics_per_host=3), "there is no leaf 3: the fabric has leaves 1 to 2"),
    ],
)
def test_where_there_is_no_port(spec: LeafSpine, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        build_leaf_spine(spec)


@pytest.mark.parametrize(
    ("gpus", "nics", "nic_of_gpu"),
    [
        (4, 2, (1, 1, 2, 2)),
        (8, 4, (1, 1, 2, 2, 3, 3, 4, 4)),
        (3, 2, (1, 1, 2)),
        (2, 4, (1, 3)),
        (3, 1, (1, 1, 1)),
    ],
)
def test_gpus_share_the_nics_in_equal_blocks(gpus: int, nics: int, nic_of_gpu: tuple[int, ...]) -> None:
    spec = replace(SPEC, gpus_per_host=gpus, nics_per_host=nics, leaves=2, hosts_per_leaf=8)
    assert {host.affinity for host in build_leaf_spine(spec).hosts} == {nic_of_gpu}
    assert replace(spec, affinity=(1,) * gpus).nic_of_gpu == (1,) * gpus


def test_a_path_leads_from_nic_to_nic() -> None:
    topology = build_leaf_spine(RAILS)
    assert topology.candidate_paths("p1", "d1") == (("p1n1-leaf1", "leaf1-d1n1"),)
    assert topology.candidate_paths("p1", "d1", 2, 2) == (("p1n2-leaf2", "leaf2-d1n2"),)
    assert topology.candidate_paths("p1", "d1", 2, 1) == (
        ("p1n2-leaf2", "leaf2-spine1", "spine1-leaf1", "leaf1-d1n1"),
        ("p1n2-leaf2", "leaf2-spine2", "spine2-leaf1", "leaf1-d1n1"),
    )


def test_each_gpu_has_a_stage_to_its_own_nic() -> None:
    spec = replace(SPEC, prefill_leaves=(1,), rail=OWN, landing=OWN)
    assert list(stages(spec)) == [
        *("p1g1-p1n1", "p1g2-p1n1", "p1g3-p1n2", "p1g4-p1n2"),
        *("d1n1-d1g1", "d1n1-d1g2", "d1n2-d1g3", "d1n2-d1g4"),
    ]


def test_gpus_of_one_nic_share_a_way_through_memory() -> None:
    spec = replace(SPEC, prefill_leaves=(1,), rail=SHARED, affinity=(1, 1, 1, 1))
    assert list(stages(spec)) == ["p1mem-p1n1"]
    assert list(stages(replace(spec, affinity=()))) == ["p1mem-p1n1", "p1mem-p1n2"]


def test_a_far_way_stands_where_a_gpu_crosses() -> None:
    spec = replace(SPEC, far_rail=FAR, far_landing=FAR, crossings=(("p1", 1, 2), ("d1", 4, 1)))
    assert stages(spec) == {"p1g1-p1n2": 10, "d1n1-d1g4": 10}
    assert stages(replace(spec, crossings=())) == {}
    shared = replace(FAR, shared=True)
    crossing = (("p1", 2, 2), ("p1", 1, 2), ("p2", 3, 1))
    assert stages(replace(spec, far_rail=shared, crossings=crossing)) == {"p1far-p1n2": 10, "p2far-p2n1": 10}


@pytest.mark.parametrize(
    ("slower", "rates"),
    [
        (Slower("p1", 1, 5 * GBIT), {"p1g1-p1n1": 5, "p1g1-p1n2": 5}),
        (Slower("p1", 1, 20 * GBIT), {"p1g1-p1n1": 20, "p1g1-p1n2": 10}),
        (
            Slower("p2", 0, 5 * GBIT),
            {"p1g1-p1n2": 10, **{f"p2g{gpu}-p2n{(gpu + 1) // 2}": 5 for gpu in (1, 2, 3, 4)}},
        ),
    ],
)
def test_a_far_way_is_no_faster_than_the_gpus_own(slower: Slower, rates: dict[str, int]) -> None:
    spec = replace(SPEC, far_rail=FAR, crossings=(("p1", 1, 2),), slower=(slower,))
    assert stages(spec) == rates


def test_a_path_has_the_stages_of_the_gpu_and_the_nic_it_uses() -> None:
    topology = build_leaf_spine(
        replace(RAILS, rail=OWN, landing=OWN, far_rail=replace(FAR, shared=True), crossings=(("p1", 1, 2),))
    )
    own = topology.candidate_paths("p1", "d1")[0]
    assert topology.through_hosts("p1", 1, "d1", 2, own) == ("p1g1-p1n1", *own, "d1n1-d1g2")
    far = topology.candidate_paths("p1", "d1", 2, 2)[0]
    assert topology.through_hosts("p1", 1, "d1", 4, far) == ("p1far-p1n2", *far, "d1n2-d1g4")
    assert topology.through_hosts("p1", 3, "d1", 4, far) == ("p1g3-p1n2", *far, "d1n2-d1g4")
    assert topology.through_hosts("p1", 2, "d1", 1, far) == ("p1far-p1n2", *far)


def test_own_and_far_ways_that_are_shared_are_not_mixed_up() -> None:
    spec = replace(SPEC, rail=SHARED, far_rail=replace(FAR, shared=True), crossings=(("p1", 1, 2),))
    topology = build_leaf_spine(spec)
    found = {(gpu, nic): topology.rail("p1", gpu, nic) for gpu in (1, 3) for nic in (1, 2)}
    assert {pair: stage and stage.name for pair, stage in found.items()} == {
        (1, 1): "p1mem-p1n1",
        (1, 2): "p1far-p1n2",
        (3, 2): "p1mem-p1n2",
        (3, 1): None,
    }


def test_names_stay_within_what_linux_takes() -> None:
    spec = replace(SPEC, prefill_leaves=(1,), hosts_per_leaf=250)
    names = [link.name for link in build_leaf_spine(spec).links]
    assert max(map(len, names)) <= 15
    many = replace(
        SPEC, leaves=100, prefill_leaves=tuple(i // 100 + 1 for i in range(10_000)), hosts_per_leaf=200
    )
    with pytest.raises(
        ValueError, match=r"^the interface name 'p9900n1-leaf100' is 15|'p10000n1-leaf100' is 16"
    ):
        build_leaf_spine(replace(many, decode_leaves=()))
