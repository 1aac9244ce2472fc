"""What a host with several NICs is told, and which device each program's socket is bound to."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from testbed.lab import hosts
from testbed.lab.addresses import address, link_up, route
from testbed.lab.hosts import device_to_bind, host_sysctls, sysctls
from testbed.lab.mininet_net import PlanTopo
from testbed.lab.netlink import Command
from testbed.lab.qdiscs import delay_lines
from testbed.lab.stages import landing_lines, priority_of, stages_of
from testbed.run.background import client_command, server_command
from testbed.run.inside import _flow
from tests.support.lab import small_plan
from traffic.tcp_replay import Endpoint, Flow, Replay

TWO = ("fabric.hosts_per_leaf=4", "hosts.gpus_per_host=2", "hosts.nics_per_host=2")
RAILS = (*TWO, "hosts.rail_optimised=true", "hosts.prefill.leaves=[]", "hosts.decode.leaves=[]")
FAR = (
    *RAILS, "workload.requests=null", "hosts.prefill.gpu_to_far_nic=2gbit", "hosts.prefill.gpu_to_nic=4gbit",
    "hosts.decode.nic_to_far_gpu=3gbit",
    "workload.transfers=[{from: p1, to: d1, bytes: 1mib, from_nic: 2, from_gpu: 1},"
    " {from: p1, to: d1, bytes: 1mib, from_gpu: 2, to_gpu: 1, to_nic: 2},"
    " {from: p1, to: d1, bytes: 1mib, from_gpu: 1, to_gpu: 2, to_nic: 2}]",
)  # fmt: skip


def test_each_nic_has_an_address_a_route_and_all_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = small_plan(*RAILS)
    told: list[Command] = []
    switched: list[str] = []
    written: dict[str, str] = {}

    class Setting:
        def __init__(self, folder: str, name: str) -> None:
            self.path = f"{folder}/{name}"

        def write_text(self, text: str) -> None:
            written[self.path.removeprefix("/proc/sys/net/")] = text

    class Kernel:
        def __init__(self, _protocol: int) -> None:
            pass

        def apply(self, asked: list[Command]) -> None:
            told.extend(asked)

        def close(self) -> None:
            pass

    monkeypatch.setattr(hosts, "Netlink", Kernel)
    monkeypatch.setattr(hosts.socket, "if_nametoindex", {"lo": 1, "p2n1-leaf1": 2, "p2n2-leaf2": 3}.get)
    monkeypatch.setattr(hosts, "network_namespace", lambda path: contextlib.nullcontext())
    monkeypatch.setattr(hosts, "namespace", lambda name: tmp_path)
    monkeypatch.setattr(hosts, "switch_off_offloads", switched.append)
    monkeypatch.setattr(hosts, "Path", Setting)
    host = plan.topology.host("p2")
    hosts.configure_host(host, plan)
    assert told.count(link_up("lo", 1)) == 1
    for metric, (device, own) in enumerate((("p2n1-leaf1", "10.0.1.2"), ("p2n2-leaf2", "10.0.2.2"))):
        index = 2 + metric
        assert link_up(device, index, gso_max_segs=1) in told
        assert address(device, index, own) in told
        assert route(device, index, "10.0.0.0/8", source=own, rto_min_ms=1, metric=metric) in told
        neighbours = [item.what for item in told if item.what.startswith("neighbour")]
        assert sum(what.endswith(f"of {device}") for what in neighbours) == 4
        assert not [what for what in neighbours if f" {own} " in what]
    assert switched == ["p2n1-leaf1", "p2n2-leaf2"]
    assert written == host_sysctls(host, plan)


def test_the_way_back_is_checked_on_no_nic_of_several() -> None:
    several, one = small_plan(*RAILS), small_plan()
    assert {
        key: value
        for key, value in host_sysctls(several.topology.host("p1"), several).items()
        if "conf" in key
    } == {
        "ipv4/conf/all/rp_filter": "0",
        "ipv4/conf/p1n1-leaf1/rp_filter": "0",
        "ipv4/conf/p1n2-leaf2/rp_filter": "0",
    }
    assert host_sysctls(one.topology.host("p1"), one) == sysctls(one)


def test_sockets_of_a_host_with_several_nics_are_bound_to_one() -> None:
    plan = small_plan(*RAILS)
    assert device_to_bind(plan.topology.host("p1"), 2) == "p1n2-leaf2"
    assert device_to_bind(small_plan().topology.host("p1"), 1) == ""
    found = [(_flow(plan, item).src, _flow(plan, item).dst) for item in plan.transfers]
    assert found == [
        (Endpoint("p1", "10.0.1.1", 20_000, "p1n1-leaf1"), Endpoint("d1", "10.0.1.3", 5_000, "d1n1-leaf1")),
        (Endpoint("p2", "10.0.1.2", 20_000, "p2n1-leaf1"), Endpoint("d1", "10.0.2.3", 5_001, "d1n2-leaf2")),
    ]
    plain = _flow(small_plan(), small_plan().transfers[0])
    assert {plain.src.device, plain.dst.device} == {""}


def test_the_traffic_program_binds_listeners_and_senders(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[bytes] = []
    real = socket.socket.setsockopt

    def setsockopt(sock: socket.socket, level: int, name: int, value: bytes | int) -> None:
        if (level, name) == (socket.SOL_SOCKET, socket.SO_BINDTODEVICE):
            assert isinstance(value, bytes)
            bound.append(value)
        else:
            real(sock, level, name, value)

    monkeypatch.setattr(socket.socket, "setsockopt", setsockopt)
    flow = Flow(0, Endpoint("p1", "127.0.0.1", 0, "lo-p"), Endpoint("d1", "127.0.0.1", 0, "lo-d"), 1, 0)
    replay = Replay([flow], congestion_control="reno", namespace=lambda _host: contextlib.nullcontext())
    replay.prepare()
    replay._connect(flow)
    assert bound == [b"lo-d", b"lo-p"]
    replay.close_open("over")
    for listener in replay._listeners:
        listener.close()


def test_iperf3_is_bound_to_the_nic() -> None:
    flow = small_plan(
        *RAILS, "workload.background=[{from: p1, to: d1, duration: 1ms, from_nic: 2, to_nic: 1}]"
    ).background[0]
    assert (flow.src_nic, flow.dst_nic) == (2, 1)
    assert server_command(flow, "d1n1-leaf1")[-2:] == ["--bind-dev", "d1n1-leaf1"]
    assert "--bind-dev p1n2-leaf2" in " ".join(client_command(flow, "10.0.1.3", "dctcp", "p1n2-leaf2"))


def test_stages_stand_at_the_nic_they_lead_to() -> None:
    plan = small_plan(*FAR)
    assert [stage.name for stage in stages_of(plan, "p1n1")] == ["p1g1-p1n1"]
    assert [stage.name for stage in stages_of(plan, "p1n2")] == ["p1g2-p1n2", "p1g1-p1n2"]
    assert [priority_of(plan, item) for item in plan.transfers] == [0x20002, 0x20001, 0x20001]
    assert [stage.name for stage in stages_of(plan, "d1n2")] == ["d1n2-d1g1"]


def test_only_what_arrives_at_a_nic_is_led_to_its_landings() -> None:
    plan = small_plan(*FAR)
    nic = plan.topology.nics["d1n2"]
    assert landing_lines(nic, stages_of(plan, "d1n2"), plan) == [
        "qdisc add dev d1n2-leaf2 clsact",
        "filter add dev d1n2-leaf2 ingress protocol ip prio 1 matchall "
        "action mirred egress redirect dev d1n2-landing",
        "filter add dev d1n2-landing parent 2: protocol ip prio 1 u32 match ip dport 5000 0xffff classid 2:1",
    ]


def test_each_nics_port_leads_to_the_delay_of_its_own_leaf() -> None:
    lines = delay_lines(small_plan(*RAILS))
    near = [line.split() for line in lines if "u32" in line]
    assert {words[3]: words[words.index("dst") + 1] for words in near} == {
        f"leaf{nic}-{host}n{nic}": f"10.0.{nic}.0/24" for host in ("p1", "p2", "d1") for nic in (1, 2)
    }


def test_mininet_has_one_host_with_all_its_nics() -> None:
    plan = small_plan(*RAILS)
    topo = PlanTopo(plan=plan)
    assert set(topo.hosts()) == {"p1", "p2", "d1"}
    cables = [info for first, second, info in topo.links(withInfo=True) if "p1" in (first, second)]
    found = sorted((info[f"intfName{end}"], info[f"port{end}"]) for info in cables for end in (1, 2))
    assert found == [("leaf1-p1n1", 3), ("leaf2-p1n2", 3), ("p1n1-leaf1", 0), ("p1n2-leaf2", 1)]
