"""Which leaf each host hangs on, and which transfers the workload asks for. Pure functions of a scenario."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from testbed.scenario.models import Scenario, SlowRail
from testbed.scenario.nics import crossings
from testbed.scenario.rails import RailPreset, effective_rate_bps
from topologies import LeafSpine, Slower, Stage


@dataclass(frozen=True)
class Placement:
    """The leaf number (from 1) of every host, in the order of the hosts' numbers."""

    prefill_leaves: tuple[int, ...]
    decode_leaves: tuple[int, ...]
    store_leaves: tuple[int, ...] = ()


def place_hosts(scenario: Scenario) -> Placement:
    """Return where the hosts hang. A role without room gets fewer leaves than it has hosts.

    Roles with `leaves` of their own fill those in order. Otherwise prefill hosts fill leaf 1 onwards;
    decode hosts start on the first leaf without a prefill host if all of them fit from there on, and
    take the next free ports otherwise. Store hosts take what is left. Where NIC i of every host hangs on
    leaf i, its leaf is the first.
    """
    fabric, hosts = scenario.fabric, scenario.hosts
    if hosts.on_rails:
        return Placement((1,) * hosts.prefill.count, (1,) * hosts.decode.count, (1,) * hosts.store.count)
    free = dict.fromkeys(range(1, fabric.leaves + 1), fabric.hosts_per_leaf // hosts.nics)
    layouts = hosts.prefill.layout, hosts.decode.layout
    prefill = _take(free, hosts.prefill.leaves, hosts.prefill.count, layouts[0])
    decode = _take(free, hosts.decode.leaves, hosts.decode.count, layouts[1])
    if not hosts.prefill.leaves:
        prefill = _take(free, free, hosts.prefill.count, layouts[0])
    if not hosts.decode.leaves:
        leaves = _decode_leaves(free, prefill, hosts.decode.count)
        decode = _take(free, leaves, hosts.decode.count, layouts[1])
    store = _take(free, hosts.store.leaves or free, hosts.store.count, hosts.store.layout)
    return Placement(prefill, decode, store)


def leaf_spine(scenario: Scenario) -> LeafSpine:
    """Return what `topologies.build_leaf_spine` needs."""
    fabric, placement, hosts = scenario.fabric, place_hosts(scenario), scenario.hosts
    spec = LeafSpine(
        leaves=fabric.leaves,
        spines=fabric.spines,
        hosts_per_leaf=fabric.hosts_per_leaf,
        host_rate_bps=fabric.host_link.rate_bps,
        host_delay_ns=fabric.host_link.delay_ns,
        fabric_rate_bps=fabric.fabric_link.rate_bps,
        fabric_delay_ns=fabric.fabric_link.delay_ns,
        prefill_leaves=placement.prefill_leaves,
        decode_leaves=placement.decode_leaves,
        store_leaves=placement.store_leaves,
        gpus_per_host=hosts.gpus,
        rail=_rail(scenario, hosts.prefill.gpu_to_nic, hosts.prefill.latency_ns),
        landing=_landing(scenario, hosts.decode.nic_to_gpu, hosts.decode.latency_ns),
        slower=tuple(_slower(scenario, item) for item in hosts.slow_rails),
        nics_per_host=hosts.nics,
        rail_optimised=hosts.on_rails,
        affinity=hosts.affinity,
        far_rail=_rail(scenario, hosts.prefill.far),
        far_landing=_landing(scenario, hosts.decode.far),
    )
    return replace(spec, crossings=crossings(scenario, spec.nic_of_gpu))


def _slower(scenario: Scenario, item: SlowRail) -> Slower:
    landing = item.host.startswith("d")
    rate_bps = landing_rate_bps(scenario, item.rate_bps) if landing else item.rate_bps
    return Slower(item.host, item.gpu, rate_bps)


def landing_rate_bps(scenario: Scenario, rate_bps: int) -> int:
    """Return what placing blocks in a decode host's GPU leaves of `rate_bps`."""
    decode = scenario.hosts.decode
    return effective_rate_bps(rate_bps, decode.block_bytes, decode.block_cost_ns)


def _rail(scenario: Scenario, path: RailPreset, latency_ns: int | None = None) -> Stage | None:
    """Return the stage of a way in a prefill host, None where it is as fast as the NIC."""
    return _stage(scenario, path, path.rate_bps, latency_ns)


def _landing(scenario: Scenario, path: RailPreset, latency_ns: int | None = None) -> Stage | None:
    """Return the stage of a way in a decode host; placing blocks takes its part of the rate."""
    return _stage(scenario, path, landing_rate_bps(scenario, path.rate_bps), latency_ns)


def _stage(scenario: Scenario, path: RailPreset, rate_bps: int, latency_ns: int | None) -> Stage | None:
    if rate_bps >= scenario.fabric.host_link.rate_bps:
        return None
    return Stage(rate_bps, path.latency_ns if latency_ns is None else latency_ns, path.shared)


def _decode_leaves(free: dict[int, int], prefill: tuple[int, ...], count: int) -> list[int]:
    taken = set(prefill)
    start = next((leaf for leaf in free if leaf not in taken), None)
    if start is not None:
        rest = [leaf for leaf in free if leaf >= start]
        if sum(free[leaf] for leaf in rest) >= count:
            return rest
    return list(free)


def _take(free: dict[int, int], leaves: Iterable[int], count: int, layout: str) -> tuple[int, ...]:
    ports = _in_turn(free, leaves) if layout == "spread" else _one_by_one(free, leaves)
    taken = tuple(islice(ports, count))
    for leaf in taken:
        free[leaf] -= 1
    return taken


def _one_by_one(free: dict[int, int], leaves: Iterable[int]) -> Iterator[int]:
    for leaf in leaves:
        for _ in range(free.get(leaf, 0)):
            yield leaf


def _in_turn(free: dict[int, int], leaves: Iterable[int]) -> Iterator[int]:
    listed = tuple(leaves)
    for port in range(max((free.get(leaf, 0) for leaf in listed), default=0)):
        for leaf in listed:
            if port < free.get(leaf, 0):
                yield leaf
