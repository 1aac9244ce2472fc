"""How evenly hosts use their NICs: which one carried most, and which nothing at all.

A NIC that stands idle beside a full one is invisible in every mean. Pure functions of the topology and the
links' figures; called by `summary`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topologies.model import Host, Topology


def nic_use(topology: Topology, links: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return, for each host with several NICs, how its KV was spread over them.

    `busiest` is a NIC's name and `share` its part of what all of them carried, towards the fabric at a
    prefill host, out of it at a decode host, and both at a store. `idle` names those that carried
    nothing. A host that carried nothing at all, or was not sampled, has no entry.
    """
    several = [host for host in topology.hosts if len(host.nics) > 1]
    found = {host.name: _use(host, links) for host in several}
    return {name: use for name, use in found.items() if use is not None}


def _use(host: Host, links: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    ways = {"prefill": ("up",), "decode": ("down",)}.get(host.role, ("up", "down"))
    carried = {nic.name: sum(links[getattr(nic, way)]["bytes"] or 0 for way in ways) for nic in host.nics}
    total = sum(carried.values())
    if not total:
        return None
    busiest = max(carried, key=lambda name: carried[name])
    idle = [name for name, count in carried.items() if not count]
    return {"busiest": busiest, "share": carried[busiest] / total, "idle": idle}
