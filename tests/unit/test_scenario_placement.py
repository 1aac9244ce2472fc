"""Hosts laid over the leaves, packed or spread, and the stages that a scenario's presets and rates become."""

from __future__ import annotations

import pytest

from testbed.errors import InputError
from testbed.scenario import load_scenario
from testbed.scenario.models import Scenario
from testbed.scenario.placement import leaf_spine, place_hosts
from testbed.scenario.rails import PRESETS, effective_rate_bps
from topologies import Slower, Stage

GBIT = 1_000_000_000


def scenario(*overrides: str) -> Scenario:
    return load_scenario("incast", overrides)


def placed(*overrides: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    placement = place_hosts(scenario(*overrides))
    return placement.prefill_leaves, placement.decode_leaves


# ---- layout ---------------------------------------------------------------------------


def test_packed_fills_one_leaf_after_the_other() -> None:
    assert placed() == ((1, 1, 1, 1, 2, 2, 2, 2), (3,))


def test_spread_gives_each_leaf_a_host_in_turn() -> None:
    spread = "hosts.prefill.layout=spread"
    assert placed(spread)[0] == (1, 2, 3, 1, 2, 3, 1, 2)
    assert placed(spread, "hosts.prefill.leaves=[3, 1]")[0] == (3, 1, 3, 1, 3, 1, 3, 1)


def test_a_full_leaf_is_passed_over() -> None:
    # Prefill hosts have taken leaf 1 and half of leaf 2.
    sets = ("hosts.prefill.count=6", "hosts.decode.count=5", "hosts.decode.layout=spread")
    leaves = ("hosts.prefill.leaves=[1, 2]", "hosts.decode.leaves=[1, 2, 3]")
    assert placed(*sets, *leaves) == ((1, 1, 1, 1, 2, 2), (2, 3, 2, 3, 3))


def test_spread_decode_hosts_begin_beside_the_prefill_hosts() -> None:
    sets = ("fabric.leaves=4", "hosts.prefill.count=3", "hosts.decode.count=4", "hosts.decode.layout=spread")
    assert placed(*sets) == ((1, 1, 1), (2, 3, 4, 2))


def test_each_role_has_a_layout_of_its_own() -> None:
    sets = ("fabric.leaves=4", "hosts.prefill.leaves=[1, 2]", "hosts.prefill.layout=spread")
    assert placed(*sets, "hosts.decode.count=3") == ((1, 2, 1, 2, 1, 2, 1, 2), (3, 3, 3))


def test_spreading_makes_no_room() -> None:
    sets = ("fabric.hosts_per_leaf=1", "hosts.prefill.layout=spread", "hosts.decode.count=1")
    assert placed(*sets, "hosts.prefill.count=2") == ((1, 2), (3,))
    with pytest.raises(InputError, match=r"hosts\.prefill\.count: is more than there are free slots"):
        scenario(*sets, "hosts.prefill.count=4")


# ---- stages ---------------------------------------------------------------------------


def test_a_path_as_fast_as_the_nic_is_no_stage() -> None:
    # gdr-same-switch carries 454.42 Gbit/s.
    spec = leaf_spine(scenario())
    assert (spec.rail, spec.landing, spec.slower, spec.gpus_per_host) == (None, None, (), 1)
    assert leaf_spine(scenario("fabric.host_link.rate=454.42gbit")).rail is None
    slower = leaf_spine(scenario("fabric.host_link.rate=454.43gbit"))
    assert slower.rail == slower.landing == Stage(454_420_000_000, 230, shared=False)
    assert leaf_spine(scenario("hosts.prefill.gpu_to_nic=100gbit")).rail is None
    assert leaf_spine(scenario("hosts.prefill.gpu_to_nic=99.999gbit")).rail == Stage(99_999_000_000, 0, False)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_its_stage(name: str) -> None:
    sets = (f"hosts.prefill.gpu_to_nic={name}", f"hosts.decode.nic_to_gpu={name}")
    spec = leaf_spine(scenario("fabric.host_link.rate=800gbit", *sets))
    preset = PRESETS[name]
    assert spec.rail == spec.landing == Stage(preset.rate_bps, preset.latency_ns, preset.shared)


def test_a_rate_of_the_scenarios_own_has_no_latency_and_is_not_shared() -> None:
    spec = leaf_spine(scenario("hosts.prefill.gpu_to_nic=40gbit", "hosts.decode.nic_to_gpu=25gbit"))
    assert spec.rail == Stage(40 * GBIT, 0, shared=False)
    assert spec.landing == Stage(25 * GBIT, 0, shared=False)


@pytest.mark.parametrize(("written", "latency_ns"), [("0us", 0), ("12us", 12_000)])
def test_a_latency_that_is_written_replaces_the_presets(written: str, latency_ns: int) -> None:
    sets = ("hosts.prefill.gpu_to_nic=host-bounce", "hosts.decode.nic_to_gpu=host-bounce")
    at = (f"hosts.prefill.latency={written}", f"hosts.decode.latency={written}")
    spec = leaf_spine(scenario("fabric.host_link.rate=200gbit", *sets, *at))
    assert spec.rail == spec.landing == Stage(133_600_000_000, latency_ns, shared=True)


def test_placing_blocks_takes_its_part_of_the_landings_rate() -> None:
    # A block of 64 KiB arrives in 13.1072 us at 40 Gbit/s; 13.1072 us more to place it halve the rate.
    sets = ("hosts.decode.nic_to_gpu=40gbit", "hosts.decode.block=64kib")
    landing = leaf_spine(scenario(*sets, "hosts.decode.block_cost=13107ns")).landing
    assert landing == Stage(20_000_152_589, 0, shared=False)
    assert landing.rate_bps == effective_rate_bps(40 * GBIT, 65_536, 13_107)
    larger = leaf_spine(scenario(*sets[:1], "hosts.decode.block=1mib", "hosts.decode.block_cost=13107ns"))
    assert larger.landing == Stage(effective_rate_bps(40 * GBIT, 1 << 20, 13_107), 0, shared=False)


def test_a_fast_landing_becomes_a_stage_by_the_cost_of_its_blocks() -> None:
    # 454.42 Gbit/s need 1.1538 us for 64 KiB; with 10 us to place it, 47.0053 Gbit/s are left.
    landing = leaf_spine(scenario("hosts.decode.block_cost=10us")).landing
    assert landing == Stage(effective_rate_bps(454_420_000_000, 65_536, 10_000), 230, shared=False)
    assert landing.rate_bps == pytest.approx(65_536 * 8 / 11.1538e-6, rel=1e-5)
    assert leaf_spine(scenario("hosts.decode.block_cost=1us")).landing is None


def test_gpus_and_slow_rails_reach_the_topology() -> None:
    slow = "hosts.slow_rails=[{host: p3, rate: 25gbit}, {host: d1, gpu: 2, rate: 10gbit}]"
    spec = leaf_spine(scenario("hosts.gpus_per_host=4", slow))
    assert spec.gpus_per_host == 4
    assert spec.slower == (Slower("p3", 0, 25 * GBIT), Slower("d1", 2, 10 * GBIT))
