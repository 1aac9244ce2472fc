"""A plan of a record is one of testbed's: names, numbers and references are such as a builder makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from testbed.errors import InputError
from testbed.plan.build import build_plan
from testbed.plan.codec import from_json, to_json
from testbed.plan.model import Plan
from testbed.record.sound import check_plan
from testbed.scenario import load_scenario, shipped_scenarios

BASE = ("incast", "workload.requests.count=3")
LOSSLESS = ("pfc-victim",)
SERVED = ("incast", "workload.connector=distserve", "expect=[]")


def planned(name: str, *sets: str, clock: str = "virtual") -> Plan:
    return build_plan(load_scenario(name, sets), seed=1, backend="uml", clock=clock)


def refusal(edit: Callable[[Any], None], base: tuple[str, ...] = BASE) -> str:
    data = json.loads(to_json(planned(*base)))
    edit(data)
    with pytest.raises(InputError) as caught:
        check_plan(from_json(json.dumps(data)))
    return str(caught.value)


@pytest.mark.parametrize("name", [name for name, _ in shipped_scenarios()])
def test_plans_that_were_built_are_sound(name: str) -> None:
    check_plan(planned(name))
    check_plan(planned(name, clock="real"))


def at(path: str, value: Any) -> Callable[[Any], None]:
    """An edit that puts `value` at a dotted path."""

    def edit(data: Any) -> None:
        *steps, last = path.split(".")
        for step in steps:
            data = data[int(step) if isinstance(data, list) else step]
        data[int(last) if isinstance(data, list) else last] = value

    return edit


@pytest.mark.parametrize(
    ("path", "value", "wrong"),
    [
        ("transfers.0.bytes", 2**63, "plan.transfers[0].bytes is 9.22337e+18"),
        ("transfers.0.start_ns", -2, "plan.transfers[0].start_ns is -2"),
        ("scenario", "../x", "plan.scenario is '../x'"),
        ("backend", "", "plan.backend is ''"),
        ("clock", "sand", "plan.clock is 'sand'"),
        ("framework", "/bin/sh", "plan.framework is '/bin/sh'"),
        ("dilation", 0.0, "plan.dilation is 0"),
        ("mtu", 10_000, "plan.mtu is 10000"),
        ("transport.kind", "roce", "plan.transport.kind is 'roce'"),
        ("transport.congestion_control", "; id", "plan has the word '; id'"),
        ("routing.policy", "", "plan has the word ''"),
        ("routing.hash_fields.0", "$x", "plan has the word '$x'"),
        ("measure.interval_ns", 0, "plan.measure has an interval of 0"),
        ("topology.switches.1.name", "leaf1", "there are two of switch 'leaf1'"),
        ("topology.hosts.1.name", "p1", "there are two of host 'p1'"),
        ("topology.hosts.0.nics.0.name", "P 1", "there is a NIC called 'P 1'"),
        ("topology.hosts.0.nics", [], "host p1 has 0 NICs and the affinity (1,)"),
        ("topology.hosts.0.affinity", [2], "host p1 has 1 NICs and the affinity (2,)"),
        ("topology.hosts.0.role", "king", "host p1 has the role 'king'"),
        ("topology.hosts.0.nics.0.leaf", "spine1", "NIC p1 has the leaf 'spine1' and the addresses "),
        ("topology.hosts.0.nics.0.ip", "10.0.1.256", "and the addresses '10.0.1.256'"),
        ("topology.hosts.0.nics.0.mac", "x", "NIC p1 has the leaf 'leaf1' and the addresses '10.0.1.1', 'x'"),
        ("topology.links.0.name", "a-b", "link 'a-b' leads from 'p1' to 'leaf1'"),
        ("topology.links.0.segment", "moon", "link 'p1-leaf1' leads from 'p1' to 'leaf1'"),
        ("topology.links.0.rate_bps", 0, "link p1-leaf1 has no rate"),
        ("topology.links", [], "NIC p1 has no cable"),
        ("queues.0.link", "leaf1-p1", "there are two of queue 'leaf1-p1'"),
        ("queues", [], "has no queue"),
        ("measure.departures", ["nowhere"], "there is no link 'nowhere'"),
        ("transfers.0.src", "q9", "there is no NIC 1 of host 'q9'"),
        ("transfers.0.dst_nic", 2, "there is no NIC 2 of host 'd1'"),
        ("transfers.0.id", 1, "there are two of transfer '1'"),
        ("transfers.0.dst", "p1", "transfer 0 goes from p1:20000 to p1:5000"),
        ("transfers.0.src_port", 0, "transfer 0 goes from p1:0 to d1:5000"),
        ("transfers.0.dst_port", 70_000, "transfer 0 goes from p1:20000 to d1:70000"),
        ("transfers.0.ideal_ns", 0, "transfer 0 has 67108864 bytes in 0 ns"),
        ("transfers.0.src_gpu", 2, "there is no GPU 2 of host p1"),
        ("routing.pinned", [{"src": "p1", "dst": "d9", "spine": "spine1"}], "there is no host 'd9'"),
    ],
)  # fmt: skip
def test_what_no_builder_makes_is_named(path: str, value: Any, wrong: str) -> None:
    message = refusal(at(path, value))
    assert wrong in message
    assert message.endswith("; no plan of testbed's has that")


def test_a_link_that_ends_nowhere() -> None:
    def edit(data: Any) -> None:
        link = data["topology"]["links"][0]
        link |= {"src": "p77", "name": "p77-leaf1"}

    assert refusal(edit).startswith("link p77-leaf1 ends at no node")


def test_what_pauses_is_a_link() -> None:
    assert refusal(at("pausing.points.0.link", "x-y"), LOSSLESS).startswith("there is no link 'x-y'")
    assert refusal(at("pausing.points.0.feeders", ["x-y"]), LOSSLESS).startswith("there is no link 'x-y'")


def test_who_serves_is_a_host() -> None:
    for key in ("prefill_hosts", "decode_hosts", "store_hosts"):
        assert refusal(at(f"serving.{key}", ["x1"]), SERVED).startswith("there is no host 'x1'")


def test_background_flows() -> None:
    flow = {
        "id": 0, "src": "p1", "dst": "d1", "protocol": "icmp", "rate_bps": 0, "start_ns": 0, "duration_ns": 1,
        "port": 7000, "src_nic": 1, "dst_nic": 1,
    }  # fmt: skip
    assert refusal(at("background", [flow])).startswith("background flow 0 has the protocol 'icmp'")
    assert refusal(at("background", [flow | {"dst": "x"}])).startswith("there is no NIC 1 of host 'x'")
