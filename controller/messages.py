"""Rules as OpenFlow 1.5 messages, the same bytes from os-ken and from Ryu.

It uses only what both frameworks' `ofproto` and `ofproto_parser` modules offer, through the datapath
it is handed, and imports neither. It sends nothing. `controller.app` calls it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Any

from controller.rules import TO_CONTROLLER, Group, Rule, SwitchRules
from controller.wire import selection_property

OPENFLOW_15 = 0x06
"""The version on the wire; the only one in which a group can name its hash."""

ETH_TYPE_IPV4 = 0x0800
TCP_SYN = 0x002
L4_NAMES = {socket.IPPROTO_TCP: "tcp", socket.IPPROTO_UDP: "udp"}


class SelectionProperty:
    """A group property as the frameworks see one: an object with `serialize`."""

    def __init__(self, hash_seed: int, hash_fields: Sequence[str]) -> None:
        self._bytes = selection_property(hash_seed, hash_fields)

    def serialize(self) -> bytearray:
        """Return the property's bytes, padded."""
        return bytearray(self._bytes)


def switch_messages(datapath: Any, wanted: SwitchRules) -> list[Any]:
    """Return, in order, what makes a switch forward as `wanted` and in no other way.

    Three stages, each closed by a barrier request: nothing is left of before, the groups, the rules
    that refer to them. The caller sends them and waits for the barriers' replies.
    """
    barrier = datapath.ofproto_parser.OFPBarrierRequest
    return [
        *_clean(datapath),
        barrier(datapath),
        *(_group_mod(datapath, group) for group in wanted.groups),
        barrier(datapath),
        *(rule_message(datapath, rule) for rule in wanted.rules),
        barrier(datapath),
    ]


def packet_out(datapath: Any, frame: bytes, in_port: int, out_port: int) -> Any:
    """Return the message that sends a frame which came in through `in_port` out of `out_port`."""
    ofproto, parser = datapath.ofproto, datapath.ofproto_parser
    return parser.OFPPacketOut(
        datapath,
        buffer_id=ofproto.OFP_NO_BUFFER,
        match=parser.OFPMatch(in_port=in_port),
        actions=[parser.OFPActionOutput(out_port, 0)],
        data=frame,
    )


def counters_request(datapath: Any) -> Any:
    """Return the message that asks a switch for the counters of all its ports."""
    return datapath.ofproto_parser.OFPPortStatsRequest(datapath, 0, datapath.ofproto.OFPP_ANY)


def is_barrier(datapath: Any, message: Any) -> bool:
    """Return whether `message` is a barrier request."""
    return isinstance(message, datapath.ofproto_parser.OFPBarrierRequest)


def error_text(message: Any) -> str:
    """Return a switch's error message in words: type, code, and the bytes it complains of."""
    ofproto = message.datapath.ofproto
    kind = ofproto.ofp_error_type_to_str(message.type)
    code = ofproto.ofp_error_code_to_str(message.type, message.code)
    return f"{kind} {code}, data {bytes(message.data).hex()}"


def _clean(datapath: Any) -> list[Any]:
    ofproto, parser = datapath.ofproto, datapath.ofproto_parser
    rules = parser.OFPFlowMod(
        datapath,
        table_id=ofproto.OFPTT_ALL,
        command=ofproto.OFPFC_DELETE,
        out_port=ofproto.OFPP_ANY,
        out_group=ofproto.OFPG_ANY,
        match=parser.OFPMatch(),
    )
    groups = parser.OFPGroupMod(
        datapath, command=ofproto.OFPGC_DELETE, type_=ofproto.OFPGT_SELECT, group_id=ofproto.OFPG_ALL
    )
    return [rules, groups]


def _group_mod(datapath: Any, group: Group) -> Any:
    ofproto, parser = datapath.ofproto, datapath.ofproto_parser
    weight = parser.OFPGroupBucketPropWeight(type_=ofproto.OFPGBPT_WEIGHT, weight=1)
    buckets = [
        parser.OFPBucket(bucket.bucket_id, [parser.OFPActionOutput(bucket.port, 0)], [weight])
        for bucket in group.buckets
    ]
    return parser.OFPGroupMod(
        datapath,
        command=ofproto.OFPGC_ADD,
        type_=ofproto.OFPGT_SELECT,
        group_id=group.group_id,
        buckets=buckets,
        properties=[SelectionProperty(group.hash_seed, group.hash_fields)],
    )


def rule_message(datapath: Any, rule: Rule) -> Any:
    """Return the message that gives a switch one rule more."""
    parser = datapath.ofproto_parser
    match: dict[str, Any] = {"eth_type": ETH_TYPE_IPV4, "ipv4_dst": _masked(rule.ipv4_dst)}
    if rule.in_port is not None:
        match["in_port"] = rule.in_port
    if rule.ipv4_src is not None:
        match["ipv4_src"] = _masked(rule.ipv4_src)
    if rule.ip_proto is not None:
        match["ip_proto"] = rule.ip_proto
        match |= {"tcp_flags": (TCP_SYN, TCP_SYN)} if rule.syn else {}
        name = L4_NAMES.get(rule.ip_proto)
        ports = {f"{name}_src": rule.l4_src, f"{name}_dst": rule.l4_dst}
        match |= ports if rule.l4_src is not None else {}
    return parser.OFPFlowMod(
        datapath,
        command=datapath.ofproto.OFPFC_ADD,
        priority=rule.priority,
        match=parser.OFPMatch(**match),
        instructions=_instructions(datapath, rule),
    )


def _instructions(datapath: Any, rule: Rule) -> list[Any]:
    parser = datapath.ofproto_parser
    if rule.out_port is not None:
        # The length counts for the controller's port only, which gets whole packets.
        whole = datapath.ofproto.OFPCML_NO_BUFFER if rule.out_port == TO_CONTROLLER else 0
        action = parser.OFPActionOutput(rule.out_port, whole)
    elif rule.group_id is not None:
        action = parser.OFPActionGroup(rule.group_id)
    else:
        return []
    return [parser.OFPInstructionActions(datapath.ofproto.OFPIT_APPLY_ACTIONS, [action])]


def _masked(network: str) -> Any:
    address, _, length = network.partition("/")
    if length == "32":
        return address
    mask = struct.pack("!I", 0xFFFFFFFF << (32 - int(length)) & 0xFFFFFFFF)
    return address, socket.inet_ntoa(mask)
