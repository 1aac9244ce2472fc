"""The links each transfer's packets really took, read from Open vSwitch's datapath flows.

Parses the text of `ovs-appctl dpctl/dump-flows -m --names`. All switches share one kernel datapath, and a
port is named after the link that leaves through it: `leaf1-p1` is port `p1` of `leaf1`. A packet that
arrives through `in_port(leaf1-p1)` therefore came over link `p1-leaf1`, and `actions:leaf1-spine2` sends it
over that link.

Pure functions of text and plan; called by `testbed.record.reader`. It runs no command.
"""

from __future__ import annotations

import ipaddress
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from testbed.plan.model import Plan, Transfer
from topologies.model import Link

Header = tuple[int, int, int, int, int]
"""Source address, destination address, protocol, source port, destination port."""

_PROTOCOLS = {"tcp": 6, "udp": 17}
_EXACT: Header = (0xFFFFFFFF, 0xFFFFFFFF, 0xFF, 0xFFFF, 0xFFFF)

MAIN_SHARE = 0.9
"""Several megaflows can match one transfer (its SYN differs in the ECN bits). Where they disagree, the
output that carried at least this share of their bytes is the path of the data; below that, there is no one
path."""


@dataclass(frozen=True)
class Megaflow:
    """One datapath flow: packets from `in_port` that equal `value` under `mask` went to `outputs`."""

    in_port: str
    value: Header
    mask: Header
    bytes: int
    outputs: tuple[str, ...]


def parse_flows(text: str) -> list[Megaflow]:
    """Return the IPv4 flows of a dump; lines that are none (ARP, recirculated, cut short) are left out."""
    flows = (_parse_line(line) for line in text.splitlines())
    return [flow for flow in flows if flow is not None]


def measured_paths(text: str, plan: Plan) -> dict[int, tuple[str, ...] | None]:
    """Return, for each transfer id, the names of the links its data took in order.

    None where the flows do not give one whole path from source to destination NIC.
    """
    index = _Index(parse_flows(text), plan)
    return {transfer.id: index.path(transfer) for transfer in plan.transfers}


class _Index:
    """Finds a header's output at a port by one look-up for each mask in use, as Open vSwitch itself does."""

    def __init__(self, flows: Iterable[Megaflow], plan: Plan) -> None:
        self._links = {link.name: link for link in plan.topology.links}
        self._reverse = {(link.src, link.dst): link.name for link in plan.topology.links}
        self._nics = {
            (host.name, number): nic
            for host in plan.topology.hosts
            for number, nic in enumerate(host.nics, start=1)
        }
        self._protocol = _PROTOCOLS.get(plan.transport.kind, _PROTOCOLS["udp"])
        self._tables: dict[str, dict[Header, dict[Header, list[Megaflow]]]] = defaultdict(dict)
        for flow in flows:
            table = self._tables[flow.in_port].setdefault(flow.mask, defaultdict(list))
            table[_masked(flow.value, flow.mask)].append(flow)

    def path(self, transfer: Transfer) -> tuple[str, ...] | None:
        source = self._nics[transfer.src, transfer.src_nic]
        target = self._nics[transfer.dst, transfer.dst_nic]
        header = (
            _number(source.ip),
            _number(target.ip),
            self._protocol,
            transfer.src_port,
            transfer.dst_port,
        )
        path = [self._links[source.up]]
        while path[-1].dst != target.name:
            following = self._next(path[-1], header)
            if following is None or following in path:
                return None
            path.append(following)
        return tuple(link.name for link in path)

    def _next(self, arrived: Link, header: Header) -> Link | None:
        in_port = self._reverse.get((arrived.dst, arrived.src))
        carried: dict[tuple[str, ...], int] = defaultdict(int)
        for mask, table in self._tables.get(in_port or "", {}).items():
            for flow in table.get(_masked(header, mask), ()):
                carried[flow.outputs] += flow.bytes
        outputs = _main_output(carried)
        link = self._links.get(outputs[0]) if outputs is not None and len(outputs) == 1 else None
        return link if link is not None and link.src == arrived.dst else None


def _main_output(carried: dict[tuple[str, ...], int]) -> tuple[str, ...] | None:
    if not carried:
        return None
    outputs, most = max(carried.items(), key=lambda item: item[1])
    return outputs if len(carried) == 1 or most >= MAIN_SHARE * sum(carried.values()) > 0 else None


def _masked(header: Header, mask: Header) -> Header:
    return (
        header[0] & mask[0],
        header[1] & mask[1],
        header[2] & mask[2],
        header[3] & mask[3],
        header[4] & mask[4],
    )


# No part of these can be tried from two places: a line of any length takes time in proportion to it.
_IN_PORT = re.compile(r"\bin_port\(([^()]+)\)")
_IPV4 = re.compile(r"\bipv4\(([^()]*)\)")
_PORTS = re.compile(r"\b(tcp|udp)\(([^()]*)\)")
_BYTES = re.compile(r"\bbytes:(\d+)")
_ACTIONS = re.compile(r"\bactions:(\S+)")
_RECIRCULATED = re.compile(r"\brecirc_id\((?!0\)|0x0\))")
_NESTED = re.compile(r"(?<!\w)\w+\([^()]*(?:\([^()]*(?:\([^()]*\)[^()]*)*\)[^()]*)*\)")


def _parse_line(line: str) -> Megaflow | None:
    in_port, actions = _IN_PORT.search(line), _ACTIONS.search(line)
    if in_port is None or actions is None or _RECIRCULATED.search(line):
        return None
    network, ports, carried = _IPV4.search(line), _PORTS.search(line), _BYTES.search(line)
    if network is None and "eth_type(0x0800)" not in line:
        return None
    addresses = _fields(network.group(1)) if network else {}
    transport = _fields(ports.group(2)) if ports else {}
    terms = (
        _term(addresses.get("src"), _EXACT[0]),
        _term(addresses.get("dst"), _EXACT[1]),
        _term(addresses.get("proto"), _EXACT[2]),
        _term(transport.get("src"), _EXACT[3]),
        _term(transport.get("dst"), _EXACT[4]),
    )
    value: Header = (terms[0][0], terms[1][0], terms[2][0], terms[3][0], terms[4][0])
    mask: Header = (terms[0][1], terms[1][1], terms[2][1], terms[3][1], terms[4][1])
    return Megaflow(in_port.group(1), value, mask, int(carried.group(1)) if carried else 0, _outputs(actions))


def _fields(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(","))
    return {key.strip(): value for key, equals, value in pairs if equals}


def _term(text: str | None, exact: int) -> tuple[int, int]:
    """Return value and mask of `10.0.1.1/255.255.255.0`, `6`, `5001/0xffff`; an absent field matches all."""
    if text is None:
        return 0, 0
    value, slash, mask = text.partition("/")
    return _number(value), _number(mask) if slash else exact


@cache
def _number(text: str) -> int:
    return int(ipaddress.IPv4Address(text)) if "." in text else int(text, 0)


def _outputs(actions: re.Match[str]) -> tuple[str, ...]:
    """Return the ports among the actions: what is left once `set(...)`, `hash(...)` and the like are gone."""
    plain = _NESTED.sub("", actions.group(1)).split(",")
    return tuple(name for name in plain if name and name != "drop")
