"""controller.json: all that the controller must know of a fabric, as plain values.

`controller_document` makes it from a plan, by attribute names only, so that this package imports
nothing of the testbed; the lab calls it and writes the file. `read_document` checks what the file
holds and is called by `controller.main`. It computes no rules: that is `controller.rules`.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from controller.errors import DocumentError
from controller.wire import HASH_FIELDS

FORMAT_VERSION = 2
KEYS = {
    *("format_version", "policy", "hash_fields", "hash_seed", "pinned", "least_loaded"),
    *("switches", "hosts", "links"),
}
T = TypeVar("T")

POLICIES = ("ecmp", "pinned", "polarised", "least-loaded")
TIERS = ("leaf", "spine")
CONNECT_LEAD_NS = 2_000_000
"""How long before it sends a transfer's connection is opened, undilated (`traffic.tcp_replay`)."""

NUMBER_MAX = 2**63 - 1
SEED_MAX = 2**64 - 1
INDEX_MAX = 65_535
PORT_MAX = 0xFFFFFF00
"""The largest OpenFlow port number of a real port (OFPP_MAX)."""


@dataclass(frozen=True)
class Switch:
    """A bridge by name, its 64-bit datapath id, its tier, `leaf` or `spine`, and its number there from 1."""

    name: str
    dpid: int
    tier: str
    index: int


@dataclass(frozen=True)
class Host:
    """A host by name, its IPv4 address as text and the name of its leaf; of several NICs each is one."""

    name: str
    ip: str
    leaf: str


@dataclass(frozen=True)
class Port:
    """OpenFlow port `port` of switch `src`, which leads to the switch or host `dst`."""

    src: str
    dst: str
    port: int


@dataclass(frozen=True)
class Pin:
    """What host `src` sends to host `dst` (None: to all) over a spine goes over this one."""

    src: str
    dst: str | None
    spine: str


@dataclass(frozen=True)
class LeastLoaded:
    """Port counters are polled every `poll_ns`; a flow just placed counts `flow_bps` for `hold_ns`.

    Both times are the controller's own clock's.
    """

    poll_ns: int
    hold_ns: int
    flow_bps: int


@dataclass(frozen=True)
class Document:
    """A fabric and how its leaves choose an uplink.

    `hash_seed` is 64 bits, from which each leaf's own seed follows; with `polarised` it is every leaf's.
    `least_loaded` is given for that policy only.
    """

    policy: str
    hash_fields: tuple[str, ...]
    hash_seed: int
    pinned: tuple[Pin, ...]
    least_loaded: LeastLoaded | None
    switches: tuple[Switch, ...]
    hosts: tuple[Host, ...]
    ports: tuple[Port, ...]


def controller_document(plan: Any) -> dict[str, Any]:
    """Return the JSON document for `plan`, in lab time: its `topology`, `routing` and `dilation` are used."""
    topology, routing = plan.topology, plan.routing
    names = {switch.name for switch in topology.switches}
    nics = {host.name: [nic.name for nic in host.nics] for host in topology.hosts}
    return {
        "format_version": FORMAT_VERSION,
        "policy": routing.policy,
        "hash_fields": list(routing.hash_fields),
        "hash_seed": routing.hash_seed,
        "pinned": [
            {"src": src, "dst": dst, "spine": pin.spine}
            for pin in routing.pinned
            for src in nics[pin.src]
            for dst in ([None] if pin.dst is None else nics[pin.dst])
        ],
        "least_loaded": _least_loaded(plan) if routing.policy == "least-loaded" else None,
        "switches": [
            {"name": s.name, "dpid": s.dpid, "tier": s.tier, "index": s.index} for s in topology.switches
        ],
        "hosts": [{"name": n.name, "ip": n.ip, "leaf": n.leaf} for n in topology.nics.values()],
        "links": [
            {"src": link.src, "dst": link.dst, "port": link.port}
            for link in topology.links
            if link.src in names
        ],
    }


def _least_loaded(plan: Any) -> dict[str, int]:
    """A flow is placed when it connects: it counts until it sends and two polls have seen it."""
    poll_ns, hosts = plan.routing.poll_ns, plan.topology.nics
    return {
        "poll_ns": poll_ns,
        "hold_ns": round(CONNECT_LEAD_NS * plan.dilation) + 2 * poll_ns,
        "flow_bps": max(link.rate_bps for link in plan.topology.links if link.src in hosts),
    }


def read_document(path: Path) -> Document:
    """Read and check controller.json at `path`; DocumentError names the file and what is wrong."""
    try:
        return parse_document(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DocumentError(f"{path}: is not JSON: {error}") from error
    except DocumentError as error:
        raise DocumentError(f"{path}: {error}") from error


def parse_document(data: Any) -> Document:
    """Check a JSON value and return the document it holds; DocumentError says what is wrong where."""
    fields = _mapping(data, "document", KEYS)
    if fields["format_version"] != FORMAT_VERSION:
        raise DocumentError(
            f"format_version: {fields['format_version']!r} is not known, expected {FORMAT_VERSION}"
        )
    document = Document(
        policy=_one_of(fields["policy"], "policy", POLICIES),
        hash_fields=_hash_fields(fields["hash_fields"]),
        hash_seed=_integer(fields["hash_seed"], "hash_seed", 0, SEED_MAX),
        pinned=_items(fields["pinned"], "pinned", _pin),
        least_loaded=_balancing(fields["least_loaded"], fields["policy"]),
        switches=_items(fields["switches"], "switches", _switch),
        hosts=_items(fields["hosts"], "hosts", _host),
        ports=_items(fields["links"], "links", _port),
    )
    _check_names(document)
    return document


def _check_names(document: Document) -> None:
    switches = {switch.name: switch for switch in document.switches}
    _unique("switch name", [switch.name for switch in document.switches])
    _unique("dpid", [switch.dpid for switch in document.switches])
    _unique("switch number", [(switch.tier, switch.index) for switch in document.switches])
    _unique("host address", [host.ip for host in document.hosts])
    _unique("port", [(port.src, port.port) for port in document.ports])
    _unique("link", [(port.src, port.dst) for port in document.ports])
    for host in document.hosts:
        if host.leaf not in switches or switches[host.leaf].tier != "leaf":
            raise DocumentError(f"hosts: {host.name} hangs on {host.leaf!r}, which is no leaf")
    ends = switches.keys() | {host.name for host in document.hosts}
    for port in document.ports:
        if port.src not in switches or port.dst not in ends:
            raise DocumentError(f"links: {port.src!r} to {port.dst!r} does not join known names")
    _check_pins(document)


def _check_pins(document: Document) -> None:
    hosts = {host.name for host in document.hosts}
    spines = {switch.name for switch in document.switches if switch.tier == "spine"}
    _unique("pinned path", [(pin.src, pin.dst) for pin in document.pinned])
    for pin in document.pinned:
        for name in (pin.src, pin.dst):
            if name is not None and name not in hosts:
                raise DocumentError(f"pinned: {name!r} is no host")
        if pin.spine not in spines:
            raise DocumentError(f"pinned: {pin.spine!r} is no spine")


def _switch(data: Any, where: str) -> Switch:
    fields = _mapping(data, where, {"name", "dpid", "tier", "index"})
    return Switch(
        name=_text(fields["name"], f"{where}.name"),
        dpid=_integer(fields["dpid"], f"{where}.dpid", 1, SEED_MAX),
        tier=_one_of(fields["tier"], f"{where}.tier", TIERS),
        index=_integer(fields["index"], f"{where}.index", 1, INDEX_MAX),
    )


def _pin(data: Any, where: str) -> Pin:
    fields = _mapping(data, where, {"src", "dst", "spine"})
    return Pin(
        src=_text(fields["src"], f"{where}.src"),
        dst=None if fields["dst"] is None else _text(fields["dst"], f"{where}.dst"),
        spine=_text(fields["spine"], f"{where}.spine"),
    )


def _host(data: Any, where: str) -> Host:
    fields = _mapping(data, where, {"name", "ip", "leaf"})
    return Host(
        name=_text(fields["name"], f"{where}.name"),
        ip=_address(fields["ip"], f"{where}.ip"),
        leaf=_text(fields["leaf"], f"{where}.leaf"),
    )


def _port(data: Any, where: str) -> Port:
    fields = _mapping(data, where, {"src", "dst", "port"})
    return Port(
        src=_text(fields["src"], f"{where}.src"),
        dst=_text(fields["dst"], f"{where}.dst"),
        port=_integer(fields["port"], f"{where}.port", 1, PORT_MAX),
    )


def _balancing(data: Any, policy: str) -> LeastLoaded | None:
    if (data is None) != (policy != "least-loaded"):
        raise DocumentError(f"least_loaded: is {'missing' if data is None else 'not'} for policy {policy}")
    if data is None:
        return None
    names = ("poll_ns", "hold_ns", "flow_bps")
    fields = _mapping(data, "least_loaded", set(names))
    return LeastLoaded(*(_integer(fields[name], f"least_loaded.{name}", 1, NUMBER_MAX) for name in names))


def _hash_fields(data: Any) -> tuple[str, ...]:
    names = _items(data, "hash_fields", lambda item, where: _one_of(item, where, tuple(HASH_FIELDS)))
    _unique("hash field", list(names))
    if not names:
        raise DocumentError(f"hash_fields: is empty, expected some of {', '.join(HASH_FIELDS)}")
    return names


def _items(data: Any, where: str, parse: Callable[[Any, str], T]) -> tuple[T, ...]:
    if not isinstance(data, list):
        raise DocumentError(f"{where}: expected a list, found {type(data).__name__}")
    return tuple(parse(item, f"{where}[{i}]") for i, item in enumerate(data))


def _mapping(data: Any, where: str, keys: set[str]) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise DocumentError(f"{where}: expected an object, found {type(data).__name__}")
    for problem, names in (("unknown", data.keys() - keys), ("missing", keys - data.keys())):
        if names:
            raise DocumentError(f"{where}: {problem} {', '.join(sorted(names))}")
    return data


def _text(data: Any, where: str) -> str:
    if not isinstance(data, str) or not data:
        raise DocumentError(f"{where}: expected a name, found {data!r}")
    return data


def _integer(data: Any, where: str, low: int, high: int) -> int:
    if not isinstance(data, int) or isinstance(data, bool) or not low <= data <= high:
        raise DocumentError(f"{where}: expected a whole number from {low} to {high}, found {data!r}")
    return data


def _one_of(data: Any, where: str, allowed: tuple[str, ...]) -> str:
    if data not in allowed:
        raise DocumentError(f"{where}: {data!r} is not known, expected {', '.join(allowed)}")
    return str(data)


def _address(data: Any, where: str) -> str:
    try:
        return socket.inet_ntoa(socket.inet_pton(socket.AF_INET, data))
    except (OSError, TypeError):
        raise DocumentError(f"{where}: expected an IPv4 address, found {data!r}") from None


def _unique(what: str, values: list[Any]) -> None:
    seen = set()
    for value in values:
        if value in seen:
            raise DocumentError(f"{what} {value!r} stands twice")
        seen.add(value)
