"""The plan's topology in Mininet's terms, without a live network."""

from __future__ import annotations

import pytest

from testbed.lab import mininet_net
from testbed.lab.mininet_net import LabController, LazyNode, PlanTopo
from tests.support.lab import small_plan

PLAN = small_plan()


def test_nodes_have_the_names_and_numbers_of_the_plan() -> None:
    topo = PlanTopo(plan=PLAN)
    assert set(topo.hosts()) == {"p1", "p2", "d1"}
    assert set(topo.switches()) == {"leaf1", "leaf2", "spine1", "spine2"}
    dpids = {name: int(topo.nodeInfo(name)["dpid"], 16) for name in topo.switches()}
    assert dpids == {switch.name: switch.dpid for switch in PLAN.topology.switches}
    assert topo.nodeInfo("d1")["ip"] == "10.0.2.1/8"
    assert topo.nodeInfo("d1")["mac"] == PLAN.topology.host("d1").mac


def test_each_cable_has_the_interfaces_and_ports_of_its_two_links() -> None:
    topo = PlanTopo(plan=PLAN)
    cables = [info for _, _, info in topo.links(withInfo=True)]
    found = {info[f"intfName{end}"]: info[f"port{end}"] for info in cables for end in (1, 2)}
    assert found == {link.name: link.port for link in PLAN.topology.links}


def test_cables_are_made_in_one_batch_and_offloads_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[str] = []
    switched: list[str] = []
    monkeypatch.setattr(mininet_net, "run", lambda command, *, stdin: batches.append(stdin))
    monkeypatch.setattr(mininet_net, "switch_off_offloads", switched.append)
    mininet_net._make_cables(PLAN)
    (batch,) = batches
    lines = batch.splitlines()
    mac = PLAN.topology.host("d1").mac
    assert lines[:2] == ["link add delay-near type ifb", "link add delay-far type ifb"]
    assert f"link add d1-leaf2 mtu 4200 address {mac} netns d1 type veth peer name leaf2-d1 mtu 4200" in lines
    assert "link add leaf1-spine2 mtu 4200 type veth peer name spine2-leaf1 mtu 4200" in lines
    # A host's own end is started inside its namespace.
    fabric = [link.name for link in PLAN.topology.links if link.src not in ("p1", "p2", "d1")]
    assert sorted(switched) == sorted(["delay-near", "delay-far", *fabric])
    assert [line for line in lines if line.startswith("link set")] == [
        f"link set {name} up" for name in switched
    ]


def test_without_delay_there_are_no_delay_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[str] = []
    monkeypatch.setattr(mininet_net, "run", lambda command, *, stdin: batches.append(stdin))
    monkeypatch.setattr(mininet_net, "switch_off_offloads", lambda name: None)
    mininet_net._make_cables(small_plan("fabric.host_link.delay=0us", "fabric.fabric_link.delay=0us"))
    assert "ifb" not in batches[0]


def test_a_node_has_no_shell_until_somebody_types() -> None:
    node = LazyNode("p1", inNamespace=False)
    assert node.shell is None
    assert node.cmd("ifconfig lo up") == ""
    assert node.shell is None
    node.terminate()


def test_the_controller_is_where_the_switches_look_for_it() -> None:
    controller = LabController("c0")
    assert (controller.IP(), controller.port, controller.shell) == ("127.0.0.1", 6653, None)
