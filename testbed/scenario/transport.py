"""The scenario's `transport`: TCP as Linux runs it, or RoCEv2 in user space; keys of one are refused with
the other.

The models, what follows from them, and the checks across their keys. Called by `models`, `rules` and
`loader`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

from testbed.scenario.kinds import Choice, Duration, Number, Rate, Size, Whole
from testbed.scenario.problems import Problem
from testbed.scenario.sections import Section, option, section, unset
from testbed.scenario.tree import Leaf, Node, Path, Table, find, put
from testbed.units import format_bytes, format_rate
from traffic.roce.dcqcn import SETS, Parameters

OFF = ("off", "fixed")
"""Two words for one thing."""

MTUS = (4096, 2048, 1024)
HEADERS = 20 + 8 + 12 + 16 + 4 + 4
"""Of IP, UDP, BTH, RETH and immediate data, and the ICRC: the most that one packet has."""

SLOWED = 10
"""A link this many times slower than the one a parameter set is made for is taken for a slowed-down one."""

_OWN = {
    "tcp": ("congestion_control", "ecn", "rto_min"),
    "roce": (
        "dcqcn", "dcqcn_parameters", "mtu", "operation", "recovery", "message", "window",
        "ack_timeout", "tick",
    ),
}  # fmt: skip


class DcqcnParameters(Section):
    """Single parameters of DCQCN in the place of the set's."""

    g: Annotated[float | None, Number(0, 1, above=True, optional=True)] = unset("g", "gain of alpha")
    cnp_interval_ns: Annotated[int | None, Duration("0us", "1s", optional=True)] = unset(
        "cnp_interval", "shortest time between two notifications of one queue pair"
    )
    alpha_timer_ns: Annotated[int | None, Duration("100ns", "1s", optional=True)] = unset(
        "alpha_timer", "after so long without a notification alpha decays"
    )
    rate_timer_ns: Annotated[int | None, Duration("100ns", "1s", optional=True)] = unset(
        "rate_timer", "time between two increases"
    )
    byte_counter: Annotated[int | None, Size("0b", "1tb", optional=True)] = unset(
        "byte_counter", "bytes between two increases; 0b: only the timer counts"
    )
    additive_bps: Annotated[int | None, Rate("1kbit", "1tbit", optional=True)] = unset(
        "additive", "step of an additive increase (R_AI)"
    )
    hyper_bps: Annotated[int | None, Rate("1kbit", "1tbit", optional=True)] = unset(
        "hyper", "step of a hyper increase (R_HAI)"
    )
    fast_recovery: Annotated[int | None, Whole(0, 100, optional=True)] = unset(
        "fast_recovery", "increases half-way back to the old rate before the target rises (F)"
    )
    min_rate_bps: Annotated[int | None, Rate("1kbit", "1tbit", optional=True)] = unset(
        "min_rate", "the rate that is never cut"
    )
    cut_interval_ns: Annotated[int | None, Duration("0us", "1s", optional=True)] = unset(
        "cut_interval", "shortest time between two cuts; 0us: each notification cuts, as in the paper"
    )


_SET_WORDS = {name: item.source for name, item in SETS.items()} | {
    "off": "no congestion control: every queue pair sends at the NIC's rate, or at its transfer's",
    "fixed": "the same as `off`",
}
_OPERATIONS = {
    "write": "the prefill host pushes by RDMA WRITE, the last packet with immediate data",
    "read": "the decode host pulls by RDMA READ",
}
_RECOVERIES = {
    "go-back-n": "the specification's: from the lost packet on everything is sent again",
    "selective-repeat": "the receiver keeps what comes out of order and names each lost packet by "
    "a NAK of its own, "
    "a meaning that the specification does not have",
}


class Transport(Section):
    """TCP as the hosts run it, or RoCEv2 over UDP sockets."""

    kind: Annotated[
        str, Choice({"tcp": "Linux's TCP", "roce": "RoCEv2 reliable connections in user space"})
    ] = option(
        "kind", "tcp", "transport of the transfers; changing it takes away the other kind's inherited keys"
    )
    congestion_control: Annotated[str, Choice(dict.fromkeys(("dctcp", "cubic", "reno", "bbr"), ""))] = option(
        "congestion_control", "dctcp", "tcp: Linux congestion control of the transfers"
    )
    ecn: Annotated[str, Choice({"auto": "true for dctcp, else false", "true": "", "false": ""})] = option(
        "ecn", "auto", "tcp: whether connections negotiate ECN"
    )
    rto_min_ns: Annotated[int, Duration("1ms", "1s")] = option(
        "rto_min", "1ms", "tcp: shortest retransmission timeout"
    )
    dcqcn: Annotated[str, Choice(_SET_WORDS)] = option("dcqcn", "hpcc", "roce: parameter set of DCQCN")
    dcqcn_parameters: DcqcnParameters = section(
        "dcqcn_parameters", DcqcnParameters, "roce: single parameters instead of the set's"
    )
    mtu: Annotated[
        str, Choice({"auto": "the largest that fits fabric.mtu", **{str(mtu): "" for mtu in MTUS}})
    ] = option("mtu", "auto", "roce: payload of a packet in bytes (the path MTU)")
    operation: Annotated[str, Choice(_OPERATIONS)] = option("operation", "write", "roce: who moves the data")
    recovery: Annotated[str, Choice(_RECOVERIES)] = option(
        "recovery", "go-back-n", "roce: what is sent again after a loss"
    )
    message_bytes: Annotated[int, Size("1kib", "1gib")] = option(
        "message", "1mib", "roce: bytes of one WRITE or READ; a transfer is a series of them"
    )
    window_bytes: Annotated[int | None, Size("1kib", "1gib", optional=True)] = unset(
        "window",
        "roce: most bytes of a queue pair that are not acknowledged, or asked for; left out: no limit",
    )
    ack_timeout_ns: Annotated[int, Duration("10us", "10s")] = option(
        "ack_timeout",
        "4ms",
        "roce: wait for an answer before sending again; given up after the eighth in a row",
    )
    tick_ns: Annotated[int, Duration("0ns", "1ms")] = option(
        "tick",
        "1us",
        "roce: what arrives or falls due within so long is handled together; less is more exact and slower",
    )

    @property
    def ecn_on(self) -> bool:
        """Whether packets are ECN-capable, with `auto` resolved."""
        if self.kind == "roce":
            return True
        return self.congestion_control == "dctcp" if self.ecn == "auto" else self.ecn == "true"

    def payload(self, fabric_mtu: int) -> int:
        """Return the payload of a RoCE packet, with `auto` resolved; 0 when none fits."""
        if self.mtu != "auto":
            return int(self.mtu)
        return next((mtu for mtu in MTUS if mtu + HEADERS <= fabric_mtu), 0)

    def parameters(self, link_bps: int) -> Parameters | None:
        """Return DCQCN's parameters at a NIC of this rate, None when it is off."""
        if self.dcqcn in OFF:
            return None
        own = self.dcqcn_parameters
        given = {name: getattr(own, name) for name in type(own).model_fields}
        changes = {name: value for name, value in given.items() if value is not None}
        return replace(SETS[self.dcqcn].on(link_bps), **changes)


def without_other_kind(tree: Node, wanted: Node | None) -> Node:
    """Return a tree whose `transport.kind` is about to become `wanted`, without the keys of the kind it
    had."""
    section_node, before = find(tree, ("transport",)), find(tree, ("transport", "kind"))
    had = before.text if isinstance(before, Leaf) else "tcp"
    if not isinstance(wanted, Leaf) or not isinstance(section_node, Table) or wanted.text == had:
        return tree
    left = {key: node for key, node in section_node.entries.items() if key not in _OWN.get(had, ())}
    return put(tree, ("transport",), replace(section_node, entries=left))


def transport_problems(
    transport: Transport, fabric_mtu: int, link_bps: int, hash_fields: tuple[str, ...] | None
) -> Iterator[Problem]:
    """Yield what is wrong across the keys of a transport; `hash_fields` are those that a scenario gives."""
    yield from _foreign(transport)
    if transport.kind != "roce":
        return
    yield from _payloads(transport, fabric_mtu)
    yield from _slowed(transport, link_bps)
    if hash_fields and not any(name.startswith(("ipv4_", "udp_")) for name in hash_fields):
        wrong = "has no field that a RoCE packet has"
        yield Problem(("routing", "hash_fields"), wrong, "ipv4_src, ipv4_dst, udp_src, udp_dst", show=False)


def _foreign(transport: Transport) -> Iterator[Problem]:
    other = "roce" if transport.kind == "tcp" else "tcp"
    aliases = {str(field.alias): name for name, field in type(transport).model_fields.items()}
    for key in _OWN[other]:
        if aliases[key] in transport.model_fields_set:
            allowed = f"leave it out, or set transport.kind to {other}"
            yield Problem(("transport", key), f"stands beside kind {transport.kind}", allowed, show=False)


def _payloads(transport: Transport, fabric_mtu: int) -> Iterator[Problem]:
    path: Path = ("transport", "mtu")
    payload = transport.payload(fabric_mtu)
    if not payload or payload + HEADERS > fabric_mtu:
        least = (payload or MTUS[-1]) + HEADERS
        yield Problem(path, "does not fit fabric.mtu", f"fabric.mtu of {least} or more", default="auto")
        return
    for key, size in (("message", transport.message_bytes), ("window", transport.window_bytes)):
        if size is not None and (size < payload or (key == "message" and size % payload)):
            allowed = f"a multiple of {format_bytes(payload)}" if key == "message" else "at least one packet"
            found = f"is no whole number of packets of {payload} B"
            yield Problem(
                ("transport", key), found if key == "message" else "is less than one packet", allowed
            )
    if transport.dcqcn in OFF:
        given = transport.dcqcn_parameters.model_fields_set
        if given:
            allowed = "leave it out, or name a set in transport.dcqcn"
            yield Problem(
                ("transport", "dcqcn_parameters"),
                f"stands beside dcqcn {transport.dcqcn}",
                allowed,
                show=False,
            )


def _slowed(transport: Transport, link_bps: int) -> Iterator[Problem]:
    """Timers that are made for a fast link, on a slow one: marks come ever more rarely than they wait."""
    if transport.dcqcn in OFF:
        return
    made_for = SETS[transport.dcqcn].link_bps
    timers = ("cnp_interval_ns", "alpha_timer_ns", "rate_timer_ns")
    own = transport.dcqcn_parameters
    if link_bps * SLOWED <= made_for and any(getattr(own, name) is None for name in timers):
        factor = made_for / link_bps
        yield Problem(
            ("transport", "dcqcn"),
            f"has timers for links of {format_rate(made_for)}, and host_link.rate is {format_rate(link_bps)}",
            f"keep the rate and use dilation, or give cnp_interval, alpha_timer and rate_timer in "
            f"dcqcn_parameters, {factor:g} times as long",
            default=transport.dcqcn,
            show=False,
        )
