"""Checks across the keys of the serving system. Called by `testbed.scenario.rules`.

Above all: a key that would have no effect is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from testbed.scenario.models import Scenario
from testbed.scenario.problems import Problem
from testbed.scenario.tree import Leaf, Path, find
from traffic.connectors import CONNECTORS, PULL, Connector

WORKLOAD: Path = ("workload",)
CONNECTOR: Path = ("workload", "connector")
PLACEMENT: Path = ("workload", "placement")
PREFILL: Path = ("workload", "prefill")

OF_REQUESTS = ("connector", "placement", "prefill", "decode", "slo")
"""Keys of the workload that say what is done with requests."""


def problems(scenario: Scenario) -> Iterator[Problem]:
    """Yield what is wrong with the serving system."""
    if scenario.workload.requests is None:
        yield from _without_requests(scenario)
        return
    connector = scenario.workload.connector.connector
    yield from _connector(scenario, connector)
    yield from _store(scenario, connector)
    yield from _placement(scenario)
    yield from _prefill(scenario)


def _written(scenario: Scenario, path: Path) -> bool:
    node = find(scenario.tree, path)
    return node is not None and not (isinstance(node, Leaf) and node.null)


def _without_requests(scenario: Scenario) -> Iterator[Problem]:
    for key in OF_REQUESTS:
        if _written(scenario, (*WORKLOAD, key)) and scenario.workload.transfers:
            wrong = "is for requests: transfers that are written out pass through no serving system"
            yield Problem((*WORKLOAD, key), wrong, "leave it out, or give requests", show=False)


def _connector(scenario: Scenario, connector: Connector) -> Iterator[Problem]:
    keys = scenario.workload.connector
    if connector.needs_model and scenario.workload.model is None:
        allowed = "the connector counts in tokens or layers, and the model tells how large they are"
        yield Problem((*WORKLOAD, "model"), "is missing", allowed)
    if keys.unit_bytes is not None and keys.unit_tokens is not None:
        yield Problem((*CONNECTOR, "unit"), "stands beside unit_tokens", "give one of the two")
    if connector.overlap and connector.starts == PULL:
        yield _at(
            scenario, "overlap", "pull", "begins with prefill, but the decode host asks after it", "push"
        )
    if connector.store and connector.starts == PULL:
        yield _at(scenario, "store", "pull", "is filled by the prefill host, which is not asked", "push")
    if connector.store and connector.overlap:
        yield _at(scenario, "store", "overlap", "stands beside overlap", "false, or without overlap")
    if keys.per_layer == "true" and not connector.unit_tokens:
        yield Problem((*CONNECTOR, "per_layer"), "has no tokens to cut", "give unit_tokens, or leave it out")
    for key, value in (("in_flight", keys.in_flight), ("descriptor_cost", keys.cost_ns)):
        if value and not (connector.unit_bytes or connector.unit_tokens):
            wrong, allowed = (
                "counts descriptors, and a stream is one",
                "give unit or unit_tokens, or leave it out",
            )
            yield Problem((*CONNECTOR, key), wrong, allowed)


def _at(scenario: Scenario, key: str, other: str, wrong: str, allowed: str) -> Problem:
    """Return a problem at the key that is written, or at the preset."""
    names = {"pull": "starts", "overlap": "overlap"}
    written = [name for name in (key, names[other]) if _written(scenario, (*CONNECTOR, name))]
    return Problem(
        (*CONNECTOR, (written or ["preset"])[0]), f"does not fit: {key} {wrong}", f"{allowed}", show=False
    )


def _store(scenario: Scenario, connector: Connector) -> Iterator[Problem]:
    count = scenario.hosts.store.count
    if connector.store and not count:
        allowed = (
            f"at least 1: connector {scenario.workload.connector.preset} hands KV over by way of a store host"
        )
        yield Problem(("hosts", "store", "count"), "is none", allowed, default="0", beside=(CONNECTOR,))
    if count and not connector.store:
        users = ", ".join(name for name, row in CONNECTORS.items() if row.store)
        wrong = f"serves no purpose: connector {scenario.workload.connector.preset} has no store"
        yield Problem(("hosts", "store", "count"), wrong, f"0, or a connector with one: {users}")


def _placement(scenario: Scenario) -> Iterator[Problem]:
    policy = scenario.workload.placement.policy
    for key, owner in (("skew", "skewed"), ("staleness", "network-aware")):
        if policy != owner and _written(scenario, (*PLACEMENT, key)):
            allowed = f"leave it out, or set placement to {owner}"
            yield Problem((*PLACEMENT, key), f"is not for {policy}", allowed, show=False)


def _prefill(scenario: Scenario) -> Iterator[Problem]:
    workload, prefill = scenario.workload, scenario.workload.prefill
    timed = prefill.tokens_per_second is not None or prefill.profile is not None
    if prefill.tokens_per_second is not None and prefill.profile is not None:
        yield Problem((*PREFILL, "profile"), "stands beside tokens_per_second", "give one of the two")
    if timed and workload.model is None:
        allowed = "it tells how many tokens the KV of a request is"
        yield Problem((*WORKLOAD, "model"), "is missing", allowed)
    if not timed and _written(scenario, (*PREFILL, "slots")):
        yield Problem(
            (*PREFILL, "slots"), "limits nothing: prefill takes no time", "give tokens_per_second or profile"
        )
