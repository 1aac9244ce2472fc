"""Checks across keys of hosts with several NICs: who has which, and where they hang.

Called by `testbed.scenario.rules`.
"""

from __future__ import annotations

from collections.abc import Iterator

from testbed.scenario.models import Background, Scenario, Transfer
from testbed.scenario.placement import place_hosts
from testbed.scenario.problems import Problem
from testbed.scenario.tree import Path, find

AFFINITY: Path = ("hosts", "affinity")


def nic_problems(scenario: Scenario) -> Iterator[Problem]:
    """Yield what is wrong with the NICs of hosts and with whose they are."""
    yield from _affinity(scenario)
    yield from _without_effect(scenario)
    if scenario.hosts.on_rails:
        yield from _rails(scenario)


def nic_number_problems(path: Path, flow: Transfer | Background, scenario: Scenario) -> Iterator[Problem]:
    """Yield the NICs of a transfer or a background flow that its hosts do not have."""
    nics = scenario.hosts.nics
    for key, number in (("from_nic", flow.source_nic), ("to_nic", flow.destination_nic)):
        if number is not None and number > nics:
            yield Problem((*path, key), "is no NIC", f"1 to nics_per_host, {nics}")


def leaves_of(scenario: Scenario) -> dict[str, set[int]]:
    """Return the leaves of each host that has a place."""
    placement, rails = place_hosts(scenario), set(range(1, scenario.hosts.nics + 1))
    placed = {f"p{number}": leaf for number, leaf in enumerate(placement.prefill_leaves, 1)}
    placed |= {f"d{number}": leaf for number, leaf in enumerate(placement.decode_leaves, 1)}
    placed |= {f"s{number}": leaf for number, leaf in enumerate(placement.store_leaves, 1)}
    return {name: rails if scenario.hosts.on_rails else {leaf} for name, leaf in placed.items()}


def _affinity(scenario: Scenario) -> Iterator[Problem]:
    hosts = scenario.hosts
    for index, number in enumerate(hosts.affinity):
        if number > hosts.nics:
            wrong = f"gives GPU {index + 1} a NIC that no host has"
            yield Problem((*AFFINITY, index), wrong, f"1 to nics_per_host, {hosts.nics}")
    count = len(hosts.affinity)
    allowed = f"name a NIC for each of gpus_per_host, {hosts.gpus}"
    if 0 < count < hosts.gpus:
        yield Problem(AFFINITY, f"leaves GPU {count + 1} without a NIC", allowed)
    if count > hosts.gpus:
        yield Problem(AFFINITY, f"names a NIC for GPU {hosts.gpus + 1}, which no host has", allowed)


def _without_effect(scenario: Scenario) -> Iterator[Problem]:
    """With one NIC there is none that is another GPU's."""
    if scenario.hosts.nics > 1:
        return
    for path in (("hosts", "prefill", "gpu_to_far_nic"), ("hosts", "decode", "nic_to_far_gpu")):
        if find(scenario.tree, path) is not None:
            allowed = "leave it out, or set nics_per_host"
            yield Problem(path, "is the way to no NIC: hosts have one", allowed, show=False)


def _rails(scenario: Scenario) -> Iterator[Problem]:
    fabric, hosts = scenario.fabric, scenario.hosts
    if hosts.nics > fabric.leaves:
        allowed = f"at most fabric.leaves, {fabric.leaves}: NIC i of every host hangs on leaf i"
        yield Problem(("hosts", "nics_per_host"), "is more than there are leaves", allowed)
    count = hosts.prefill.count + hosts.decode.count + hosts.store.count
    if count > fabric.hosts_per_leaf:
        yield Problem(
            ("fabric", "hosts_per_leaf"),
            "is less than there are hosts",
            f"at least {count}: every host has a NIC on each of the leaves",
            default=str(fabric.hosts_per_leaf),
            beside=(("hosts", "rail_optimised"),),
        )
    wrong = "has no meaning beside rail_optimised: NIC i of every host hangs on leaf i"
    for role, section in (("prefill", hosts.prefill), ("decode", hosts.decode), ("store", hosts.store)):
        if section.leaves:
            yield Problem(("hosts", role, "leaves"), wrong, "leave it out", show=False)
        if section.layout != "packed":
            yield Problem(("hosts", role, "layout"), wrong, "leave it out")
