"""The bytes on the wire: those of ovs-ofctl 3.1, and the same from os-ken and from Ryu."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from controller.wire import selection_property

ROOT = Path(__file__).parents[2]
PYTHONS = {"os-ken": sys.executable, "ryu": str(ROOT / ".venv-ryu/bin/python")}

# Sent by `ovs-ofctl -O OpenFlow15 add-group` (3.1.0), captured from its connection; xid 2.
GROUP_MOD = (
    "060f00a800000002000001000000000100400000ffffffff002000100000000100000010000000010000000000000000"
    "000000080001000000200010000000020000001000000002000000000000000000000008000100"
    "00ffff00490000154d000000010000000068617368000000000000000000000000000000000000000780001604ffffffff"
    "80001804ffffffff80001401ff80001a02ffff80001c02ffff00000000000000"
)
PROPERTY = GROUP_MOD[GROUP_MOD.index("ffff0049") :]
ALL_FIELDS = (
    "ffff00690000154d00000001000000006861736800000000000000000000000000000000000000078000"
    "0806ffffffffffff80000606ffffffffffff80001604ffffffff80001804ffffffff80001401ff80001a02ffff"
    "80001c02ffff80001e02ffff80002002ffff00000000000000"
)

ENCODE = """
import sys
from controller.framework import prepare, selected
from controller.messages import is_barrier, switch_messages
from controller.rules import Bucket, Group, Rule, SwitchRules
framework = selected()
prepare(framework)
framework.module("ofproto.ofproto_protocol")
class Datapath:
    ofproto = framework.module("ofproto.ofproto_v1_5")
    ofproto_parser = framework.module("ofproto.ofproto_v1_5_parser")
fields = ("tcp_dst", "tcp_src", "ip_proto", "ipv4_dst", "ipv4_src")
rules = SwitchRules("leaf1", 1, (Group(1, (Bucket(1, 1), Bucket(2, 2)), fields, 7),), (
    Rule(200, "10.0.1.1/32", out_port=3), Rule(150, "10.0.0.0/8", in_port=1),
    Rule(100, "10.0.0.0/8", group_id=1), Rule(130, "10.0.2.1/32", ipv4_src="10.0.1.1/32", out_port=4)))
for message in switch_messages(Datapath, rules):
    message.set_xid(2)
    message.serialize()
    print(is_barrier(Datapath, message), bytes(message.buf).hex())
"""

ENCODE_PLACED = """
from controller.framework import prepare, selected
from controller.messages import counters_request, packet_out, rule_message
from controller.rules import TO_CONTROLLER, Rule
framework = selected()
prepare(framework)
framework.module("ofproto.ofproto_protocol")
class Datapath:
    ofproto = framework.module("ofproto.ofproto_v1_5")
    ofproto_parser = framework.module("ofproto.ofproto_v1_5_parser")
ends = {"ipv4_src": "10.0.1.1/32", "out_port": 2}
rules = (
    Rule(105, "10.0.0.0/8", out_port=TO_CONTROLLER, ip_proto=6, syn=True),
    Rule(115, "10.0.2.1/32", ip_proto=6, l4_src=20000, l4_dst=5000, **ends),
    Rule(115, "10.0.2.1/32", ip_proto=17, l4_src=7, l4_dst=9, **ends),
    Rule(110, "10.0.2.1/32", ip_proto=1, **ends))
for message in (*(rule_message(Datapath, rule) for rule in rules),
                packet_out(Datapath, bytes(range(20)), 5, 2), counters_request(Datapath)):
    message.set_xid(2)
    message.serialize()
    print(bytes(message.buf).hex())
"""

BARRIER = "True 0614000800000002"
DELETE_ALL = [
    "False 060e003800000002" + "00" * 16 + "ff03000000008000" + "ffffffff" * 3 + "000000000001000400000000",
    "False 060f00180000000200020100fffffffc00000000ffffffff",
]
# Table 0, no timeouts, no buffer; then priority, match and instructions as below.
FLOW_MOD = "00000002" + "00" * 22
FLOW_MODS = [
    # priority 200: eth_type 0x0800, ipv4_dst 10.0.1.1; apply output to port 3
    f"False 060e0060{FLOW_MOD}00c8" + "ffffffff00000000000000000000000000010012"
    "80000a0208008000" + "18040a0001010000000000000004001800000000" + "00000010000000030000000000000000",
    # priority 150: in_port 1, eth_type, ipv4_dst 10.0.0.0/8; no instruction, which drops
    f"False 060e0050{FLOW_MOD}0096" + "ffffffff0000000000000000000000000001001e"
    "800000040000000180000a020800800019080a000000ff0000000000",
    # priority 100: eth_type, ipv4_dst 10.0.0.0/8; apply group 1
    f"False 060e0058{FLOW_MOD}0064" + "ffffffff00000000000000000000000000010016"
    "80000a020800800019080a000000ff000000000000040010000000000016000800000001",
    # priority 130: eth_type, ipv4_src 10.0.1.1, ipv4_dst 10.0.2.1; apply output to port 4
    f"False 060e0068{FLOW_MOD}0082" + "ffffffff0000000000000000000000000001001a"
    "80000a020800800016040a000101800018040a000201000000000000"
    "000400180000000000000010000000040000000000000000",
]


# What `ovs-ofctl ofp-print` reads in each stands above it.
PLACED = [
    # tcp,nw_dst=10.0.0.0/8,tcp_flags=+syn actions=CONTROLLER:65535
    f"060e0070{FLOW_MOD}"
    "0069ffffffff0000000000000000000000000001002380000a0208008000140106800019080a0000"
    "00ff00000080005504000200020000000000000400180000000000000010fffffffdffff00000000"
    "0000",
    # tcp,nw_src=10.0.1.1,nw_dst=10.0.2.1,tp_src=20000,tp_dst=5000 actions=output:2
    f"060e0078{FLOW_MOD}"
    "0073ffffffff0000000000000000000000000001002b80000a0208008000140106800016040a0001"
    "01800018040a00020180001a024e2080001c02138800000000000004001800000000000000100000"
    "00020000000000000000",
    # udp,nw_src=10.0.1.1,nw_dst=10.0.2.1,tp_src=7,tp_dst=9 actions=output:2
    f"060e0078{FLOW_MOD}"
    "0073ffffffff0000000000000000000000000001002b80000a0208008000140111800016040a0001"
    "01800018040a00020180001e02000780002002000900000000000004001800000000000000100000"
    "00020000000000000000",
    # icmp,nw_src=10.0.1.1,nw_dst=10.0.2.1 actions=output:2
    f"060e0068{FLOW_MOD}"
    "006effffffff0000000000000000000000000001001f80000a0208008000140101800016040a0001"
    "01800018040a00020100000400180000000000000010000000020000000000000000",
    # a packet out: in_port=5 actions=output:2, 20 bytes of data
    "060d004400000002ffffffff001000000001000c8000000400000005000000000000001000000002"
    "0000000000000000000102030405060708090a0b0c0d0e0f10111213",
    # a request for the counters of all ports
    "06120018000000020004000000000000ffffffff00000000",
]


def encoded(framework: str, program: str = ENCODE) -> list[str]:
    env = {**os.environ, "KV_TESTBED_FRAMEWORK": framework, "PYTHONPATH": str(ROOT)}
    command = [PYTHONS[framework], "-W", "ignore", "-c", program]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("framework", sorted(PYTHONS))
def test_a_switch_is_cleaned_then_given_the_group_then_the_rules(framework: str) -> None:
    assert encoded(framework) == [
        *DELETE_ALL,
        BARRIER,
        f"False {GROUP_MOD}",
        BARRIER,
        *FLOW_MODS,
        BARRIER,
    ]


@pytest.mark.parametrize("framework", sorted(PYTHONS))
def test_the_messages_of_flows_that_are_placed(framework: str) -> None:
    assert encoded(framework, ENCODE_PLACED) == PLACED


def test_both_frameworks_send_the_same_bytes() -> None:
    assert encoded("os-ken") == encoded("ryu")


def test_the_property_is_in_the_switchs_field_order_and_padded() -> None:
    assert selection_property(7, ("tcp_dst", "ipv4_dst", "tcp_src", "ip_proto", "ipv4_src")).hex() == PROPERTY


def test_every_field_ovs_ofctl_can_name_has_its_bytes() -> None:
    fields = ("eth_src", "eth_dst", "ipv4_src", "ipv4_dst", "ip_proto")
    fields += ("tcp_src", "tcp_dst", "udp_src", "udp_dst")
    assert selection_property(7, fields).hex() == ALL_FIELDS


@pytest.mark.parametrize("count", range(1, 6))
def test_the_length_leaves_out_the_padding(count: int) -> None:
    fields = ("ip_proto", "tcp_src", "ipv4_src", "eth_src", "udp_dst")[:count]
    data = selection_property(0, fields)
    sizes = {"ip_proto": 5, "tcp_src": 6, "ipv4_src": 8, "eth_src": 10, "udp_dst": 6}
    length = 40 + sum(sizes[name] for name in fields)
    assert int.from_bytes(data[2:4], "big") == length
    assert len(data) == -(-length // 8) * 8
    assert data[length:] == bytes(len(data) - length)
