"""Which spine a flow will take, foretold from the rules that its leaf is given.

For whoever wants to know paths without a switch: scenarios, tests, statistics over many seeds. Pure.
It holds where rules alone decide: not for least-loaded, which places flows while traffic runs.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from controller.document import Document
from controller.ecmp_hash import choose_bucket
from controller.rules import TO_CONTROLLER, Rule, SwitchRules, build_rules


class Prediction:
    """The paths of one fabric; built once, asked for each flow."""

    def __init__(self, document: Document) -> None:
        rules = {switch.name: switch for switch in build_rules(document).values()}
        self._leaf_of = {host.ip: rules[host.leaf] for host in document.hosts}
        self._behind = {(port.src, port.port): port.dst for port in document.ports}
        self._spines = {switch.name for switch in document.switches if switch.tier == "spine"}

    def spine_of(self, fields: Mapping[str, int | str]) -> str | None:
        """Return the spine of a flow between two hosts, None where it stays within its leaf.

        `fields` are header fields as `choose_bucket` takes them, addresses as text. KeyError for a source
        address that is no host's; ValueError for a destination to which no rule leads, or over which the
        controller decides as traffic runs.
        """
        leaf = self._leaf_of[str(fields["ipv4_src"])]
        behind = self._behind[leaf.name, _output(leaf, fields)]
        return behind if behind in self._spines else None


def _output(leaf: SwitchRules, fields: Mapping[str, int | str]) -> int:
    """Return the port of the first rule, by priority, that takes a packet which came from a host."""
    matching = [rule for rule in leaf.rules if rule.in_port is None and _takes(rule, fields)]
    if not matching:
        raise ValueError(f"no rule of {leaf.name} leads to {fields['ipv4_dst']}")
    rule = max(matching, key=lambda rule: rule.priority)
    if rule.out_port == TO_CONTROLLER:
        raise ValueError(f"what {leaf.name} sends up is placed while traffic runs")
    if rule.out_port is not None:
        return rule.out_port
    group = next(group for group in leaf.groups if group.group_id == rule.group_id)
    ports = {bucket.bucket_id: bucket.port for bucket in group.buckets}
    return ports[choose_bucket(fields, group.hash_fields, group.hash_seed, list(ports))]


def _takes(rule: Rule, fields: Mapping[str, int | str]) -> bool:
    wanted = ((rule.ipv4_dst, "ipv4_dst"), (rule.ipv4_src, "ipv4_src"))
    return all(network is None or _within(str(fields[name]), network) for network, name in wanted)


def _within(address: str, network: str) -> bool:
    return ipaddress.IPv4Address(address) in ipaddress.IPv4Network(network)
