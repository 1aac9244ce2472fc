"""Where a lossless fabric pauses (PFC): thresholds of every queue with their defaults, and their checks.

A queue at XOFF has the ports that fill it stop, until it is down to XON. What arrives after XOFF must fit:
that is the headroom. Called by `rules` and by `testbed.plan.build`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from testbed.scenario.models import Layer, Queue, Scenario
from testbed.scenario.placement import leaf_spine
from testbed.scenario.problems import Problem
from testbed.scenario.tree import Path
from testbed.units import format_bytes
from topologies import Topology, build_leaf_spine
from topologies.model import DEST_LANDING, Link

REACTION_NS = 1_000
"""How long a queue can be at XOFF before the program that pauses sees it."""

XOFF_PART = 4
"""XOFF where a scenario gives none: this part of the limit. The rest is headroom, for many ports."""
XON_PART = 2
"""XON where a scenario gives none: this part of XOFF."""
LANDING_PART = 2
"""XOFF of a landing: this part of hosts.decode.buffer."""

ETHERNET_BYTES = 14
"""The Ethernet header, which queues count; preamble, gap and FCS they do not."""

FRAMES = 2
"""A frame that has begun is sent to its end, both where the pause is sent and where it arrives."""


@dataclass(frozen=True)
class Pause:
    """When one queue pauses those that fill it, in bytes; `headroom_bytes` is for all of them together.

    `path` is where the scenario says it.
    """

    link: str
    xoff_bytes: int
    xon_bytes: int
    headroom_bytes: int
    limit_bytes: int
    path: Path


def pauses(scenario: Scenario, topology: Topology) -> list[Pause]:
    """Return the thresholds of every queue that can pause: of switch ports and landings."""
    switches = {switch.name for switch in topology.switches}
    into: dict[str, list[Link]] = {}
    for link in topology.links:
        into.setdefault(link.dst, []).append(link)
    ports = [link for link in topology.links if link.src in switches]
    found = [_of_port(link, into[link.src], scenario, topology) for link in ports]
    landings = [stage for stage in topology.stages if stage.segment == DEST_LANDING]
    return found + [_of_landing(stage, into[stage.src], scenario, topology) for stage in landings]


def problems(scenario: Scenario) -> Iterator[Problem]:
    """Yield what is wrong with the thresholds of a lossless fabric."""
    if not scenario.fabric.is_lossless:
        return
    try:
        topology = build_leaf_spine(leaf_spine(scenario))
    except ValueError:
        return  # said elsewhere
    seen: set[Path] = set()
    needed = _needed_per_port(scenario, topology)
    for pause in sorted(pauses(scenario, topology), key=lambda pause: -pause.headroom_bytes):
        if pause.path not in seen:
            seen.add(pause.path)
            yield from _problems(pause, scenario, needed)


def _problems(pause: Pause, scenario: Scenario, needed: int) -> Iterator[Problem]:
    landing = pause.path[0] == "hosts"
    queue = _queue_at(scenario, pause.path)
    if queue and pause.xon_bytes >= pause.xoff_bytes:
        allowed = f"below xoff, {format_bytes(pause.xoff_bytes)}"
        yield Problem((*pause.path, "xon"), "is not below xoff", allowed, beside=((*pause.path, "xoff"),))
    if queue and queue.headroom_bytes is not None and queue.headroom_bytes < needed:
        wrong = "is less than what still arrives after a pause"
        allowed = f"at least {needed}b: the fastest link's rate over its delay both ways, and two frames"
        yield Problem((*pause.path, "headroom"), wrong, allowed)
    least = pause.xoff_bytes + pause.headroom_bytes
    if landing:
        # XOFF is a part of the buffer: what is left of it must hold the headroom.
        least = -(-pause.headroom_bytes * LANDING_PART // (LANDING_PART - 1))
    if pause.limit_bytes < least:
        key, wrong = (
            ("buffer", "is too small to lose nothing") if landing else ("limit", "leaves no headroom")
        )
        allowed = f"at least {least}b: XOFF and {pause.headroom_bytes}b for the links that fill {pause.link}"
        yield Problem(
            (*pause.path, key),
            wrong,
            allowed,
            default=format_bytes(pause.limit_bytes),
            beside=((*pause.path, "xoff"), ("fabric", "lossless")),
        )


def _queue_at(scenario: Scenario, path: Path) -> Queue | None:
    """Return the thresholds that stand at `path`, None for a landing, which has none of its own."""
    fabric = scenario.fabric
    layers = {"host_link": fabric.host_link.queue, "fabric_link": fabric.fabric_link.queue}
    return None if path[0] == "hosts" else layers.get(str(path[1]), fabric.queue)


def xoff_bytes(queue: Queue) -> int:
    """Return the backlog from which a queue of a lossless fabric pauses."""
    return queue.limit_bytes // XOFF_PART if queue.xoff_bytes is None else queue.xoff_bytes


def _of_port(link: Link, into: list[Link], scenario: Scenario, topology: Topology) -> Pause:
    fabric, at_host = scenario.fabric, link.dst in topology.nics
    layer, key = (fabric.host_link, "host_link") if at_host else (fabric.fabric_link, "fabric_link")
    queue = fabric.queue_of(layer)
    xoff = xoff_bytes(queue)
    # Up-down routing: what came down from a spine does not go up again.
    up = link.src.startswith("leaf") and not at_host
    fillers = [one for one in into if one.src != link.dst and not (up and one.src not in topology.nics)]
    return Pause(
        link=link.name,
        xoff_bytes=xoff,
        xon_bytes=xoff // XON_PART if queue.xon_bytes is None else queue.xon_bytes,
        headroom_bytes=sum(_headroom(one, queue, scenario, topology) for one in fillers),
        limit_bytes=queue.limit_bytes,
        path=("fabric", key, "queue") if layer.queue else ("fabric", "queue"),
    )


def _of_landing(stage: Link, into: list[Link], scenario: Scenario, topology: Topology) -> Pause:
    limit = scenario.hosts.decode.buffer_bytes
    xoff = limit // LANDING_PART
    headroom = sum(_arriving(link, scenario, topology) for link in into if link.src.startswith("leaf"))
    return Pause(stage.name, xoff, xoff // XON_PART, headroom, limit, ("hosts", "decode"))


def _headroom(link: Link, queue: Queue, scenario: Scenario, topology: Topology) -> int:
    if queue.headroom_bytes is not None:
        return queue.headroom_bytes
    return _arriving(link, scenario, topology)


def _needed_per_port(scenario: Scenario, topology: Topology) -> int:
    return max(_arriving(link, scenario, topology) for link in topology.links)


def _arriving(link: Link, scenario: Scenario, topology: Topology) -> int:
    """Return the bytes that arrive over a link after the queue behind it has reached XOFF.

    The rate over the time until it stops: the pause's way, the data's way, and REACTION_NS. A host's
    packets spend the delay of their whole way on its link (see docs/lab.md).
    """
    around_ns = _whole_way_ns(scenario, topology) if link.src in topology.nics else 2 * link.delay_ns
    bits_ns = link.rate_bps * (around_ns + REACTION_NS)
    return -(-bits_ns // 8_000_000_000) + FRAMES * (scenario.fabric.mtu + ETHERNET_BYTES)


def _whole_way_ns(scenario: Scenario, topology: Topology) -> int:
    def way_ns(layer: Layer) -> int:
        return 2 * layer.delay_ns

    fabric = scenario.fabric
    inside: dict[str, int] = {}
    for stage in topology.stages:
        inside[stage.segment] = max(inside.get(stage.segment, 0), stage.delay_ns)
    across = way_ns(fabric.fabric_link) if len({nic.leaf for nic in topology.nics.values()}) > 1 else 0
    return way_ns(fabric.host_link) + across + sum(inside.values())
