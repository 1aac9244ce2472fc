"""The controller against real Open vSwitch switches, on both frameworks.

ovsdb-server and ovs-vswitchd run with the dummy datapath and with every file in a temporary folder: no
root, no kernel module, nothing of the machine's own Open vSwitch. The fabric's cables are patch ports,
so that `ofproto/trace` follows a packet through all switches.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controller.document import parse_document
from controller.ecmp_hash import choose_bucket, leaf_seed
from controller.prediction import Prediction
from controller.wire import HASH_FIELDS as HASH_FIELDS_KNOWN
from topologies import LeafSpine, Topology, build_leaf_spine

pytestmark = pytest.mark.ovs

ROOT = Path(__file__).parents[2]
SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
FLOWS = 1000
SPINES = 4
HASH_FIELDS = ("ipv4_src", "ipv4_dst", "tcp_src", "tcp_dst")

PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17}
OVS_NAMES = {"ipv4_src": "ip_src", "ipv4_dst": "ip_dst"}

PYTHONS = {"os-ken": sys.executable, "ryu": str(ROOT / ".venv-ryu/bin/python")}
"""The interpreter of each framework. One that is missing fails the tests: nothing skips them."""

CHI_SQUARE_BOUND = 21.11
"""1000 flows fall on 4 uplinks less evenly than this in one of 10,000 ideal hashes (3 degrees of freedom)."""


def fabric(leaves: int = 3, spines: int = SPINES) -> Topology:
    placed = tuple(1 + i % leaves for i in range(2 * leaves))
    return build_leaf_spine(
        LeafSpine(leaves, spines, 4, 10**11, 1000, 2 * 10**11, 1000, placed, placed[:leaves])
    )


def document(topology: Topology, seed: int = 1, fields: tuple[str, ...] = HASH_FIELDS) -> dict[str, Any]:
    names = {switch.name for switch in topology.switches}
    return {
        "format_version": 2,
        "policy": "ecmp",
        "hash_fields": list(fields),
        "hash_seed": seed,
        "pinned": [],
        "least_loaded": None,
        "switches": [
            {"name": s.name, "dpid": s.dpid, "tier": s.tier, "index": s.index} for s in topology.switches
        ],
        "hosts": [{"name": h.name, "ip": h.ip, "leaf": h.leaf} for h in topology.hosts],
        "links": [
            {"src": link.src, "dst": link.dst, "port": link.port}
            for link in topology.links
            if link.src in names
        ],
    }


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"after {timeout_s} s still waiting for {what}"
        time.sleep(0.05)


@contextlib.contextmanager
def process(command: list[str], log: Path, env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        running = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=dict(env), cwd=ROOT)
    try:
        yield running
    finally:
        running.terminate()
        running.wait(10)


@dataclass
class OpenVSwitch:
    """A private Open vSwitch; everything it has stands in `folder`."""

    folder: Path

    @property
    def env(self) -> dict[str, str]:
        names = ("OVS_RUNDIR", "OVS_DBDIR", "OVS_SYSCONFDIR", "OVS_LOGDIR")
        return {**os.environ, **dict.fromkeys(names, str(self.folder))}

    def run(self, *command: str) -> str:
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    @contextlib.contextmanager
    def running(self) -> Iterator[OpenVSwitch]:
        self.run("ovsdb-tool", "create", str(self.folder / "conf.db"), SCHEMA)
        database = f"unix:{self.folder}/db.sock"
        common = ["--no-chdir", "-vconsole:warn", "-vsyslog:off", "-vfile:off"]
        ovsdb = ["ovsdb-server", str(self.folder / "conf.db"), f"--remote=p{database}", *common]
        switch = ["ovs-vswitchd", database, "--enable-dummy=override", "--disable-system", *common]
        with process(ovsdb, self.folder / "ovsdb.log", self.env):
            wait_until((self.folder / "db.sock").exists, "ovsdb-server's socket")
            self.run("ovs-vsctl", "--no-wait", "init")
            with process(switch, self.folder / "vswitchd.log", self.env):
                wait_until(lambda: bool(self._control_sockets()), "ovs-vswitchd's socket")
                yield self

    def _control_sockets(self) -> list[Path]:
        return list(self.folder.glob("ovs-vswitchd.*.ctl"))

    def build(self, topology: Topology, protocols: str = "OpenFlow13,OpenFlow15") -> None:
        command = ["ovs-vsctl"]
        for switch in topology.switches:
            command += ["--", "add-br", switch.name, "--", "set", "bridge", switch.name]
            command += ["datapath_type=dummy", "fail_mode=secure", f"protocols={protocols}"]
            command += [f"other-config:datapath-id={switch.dpid:016x}"]
        names = {switch.name for switch in topology.switches}
        for link in topology.links:
            if link.src in names:
                command += ["--", "add-port", link.src, link.name, "--", "set", "interface", link.name]
                command += [f"ofport_request={link.port}"]
                patch = ["type=patch", f"options:peer={link.dst}-{link.src}"]
                command += patch if link.dst in names else ["type=dummy"]
        self.run(*command)

    def connect(self, topology: Topology, port: int) -> None:
        command = ["ovs-vsctl"]
        for switch in topology.switches:
            command += ["--", "set-controller", switch.name, f"tcp:127.0.0.1:{port}"]
            command += ["--", "set", "controller", switch.name, "connection_mode=out-of-band"]
        self.run(*command)

    def silence(self, topology: Topology) -> None:
        """Stop the echo requests of every 5 s; Open vSwitch 3.1 heeds this on standing connections only."""
        command = ["ovs-vsctl"]
        for switch in topology.switches:
            command += ["--", "set", "controller", switch.name, "inactivity_probe=0"]
        self.run(*command)

    def call(self, method: str, *params: str) -> str:
        """Ask ovs-vswitchd over its control socket: a thousand times quicker than ovs-appctl."""
        request = json.dumps({"id": 0, "method": method, "params": list(params)})
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(str(self._control_sockets()[0]))
            control.sendall(request.encode())
            reply, decoder = "", json.JSONDecoder()
            while True:
                reply += control.recv(1 << 16).decode()
                with contextlib.suppress(json.JSONDecodeError):
                    answer = decoder.raw_decode(reply)[0]
                    assert answer["error"] is None, answer["error"]
                    return str(answer["result"])

    def trace(self, bridge: str, flow: str) -> tuple[list[tuple[str, int]], str]:
        """Return the (bridge, output port) hops of a packet and the final datapath actions."""
        text = self.call("ofproto/trace", bridge, flow)
        hops, here = [], bridge
        for line in text.splitlines():
            if found := re.match(r' *bridge\("(.*)"\)', line):
                here = found[1]
            elif found := re.match(r" +output:(\d+)", line):
                hops.append((here, int(found[1])))
        return hops, text.rpartition("Datapath actions: ")[2].strip()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def controller(
    framework: str, folder: Path, data: dict[str, Any], port: int, timeout_s: float = 30
) -> Iterator[subprocess.Popen[bytes]]:
    (folder / "controller.json").write_text(json.dumps(data))
    (folder / "ready.json").unlink(missing_ok=True)
    command = [PYTHONS[framework], "-m", "controller.main", "--framework", framework]
    command += ["--document", str(folder / "controller.json"), "--ready", str(folder / "ready.json")]
    command += ["--port", str(port), "--timeout", str(timeout_s)]
    with process(command, folder / "controller.log", os.environ) as running:
        yield running


def ready(folder: Path) -> dict[str, Any]:
    wait_until((folder / "ready.json").exists, "ready.json")
    answer: dict[str, Any] = json.loads((folder / "ready.json").read_text())
    return answer


@pytest.fixture(params=sorted(PYTHONS))
def framework(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    assert Path(PYTHONS[name]).exists(), f"{name} is not installed: run scripts/setup.sh"
    return name


@pytest.fixture
def ovs(tmp_path: Path) -> Iterator[OpenVSwitch]:
    # A socket's path has room for 107 characters, which pytest's folders may exceed.
    short = Path(f"/tmp/kvt-{os.getpid()}-{time.monotonic_ns() % 10**6}")
    short.symlink_to(tmp_path)
    try:
        with OpenVSwitch(short).running() as switch:
            yield switch
    finally:
        short.unlink()


@contextlib.contextmanager
def installed(
    ovs: OpenVSwitch, framework: str, topology: Topology, data: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    ovs.build(topology)
    port = free_port()
    with controller(framework, ovs.folder, data, port):
        ovs.connect(topology, port)
        yield ready(ovs.folder)


def flow_fields(number: int, src: str, dst: str) -> dict[str, int | str]:
    ports = {"tcp_src": 10000 + number, "tcp_dst": 5000 + number % 7}
    return {"ipv4_src": src, "ipv4_dst": dst, "ip_proto": 6, **ports}


def trace_text(in_port: int, fields: Mapping[str, int | str]) -> str:
    return (
        f"in_port={in_port},tcp,nw_src={fields['ipv4_src']},nw_dst={fields['ipv4_dst']},"
        f"tp_src={fields['tcp_src']},tp_dst={fields['tcp_dst']},nw_ttl=64"
    )


def uplinks(ovs: OpenVSwitch, topology: Topology) -> list[int]:
    """The uplink of leaf1 that each of the thousand flows leaves through."""
    src, dst = topology.host("p1"), topology.host("p2")
    in_port = topology.link("leaf1-p1").port
    flows = (flow_fields(i, src.ip, dst.ip) for i in range(FLOWS))
    return [ovs.trace("leaf1", trace_text(in_port, flow))[0][0][1] for flow in flows]


def predicted(topology: Topology, seed: int) -> list[int]:
    src, dst = topology.host("p1"), topology.host("p2")
    return [
        choose_bucket(flow_fields(i, src.ip, dst.ip), HASH_FIELDS, leaf_seed(seed, 1), range(1, SPINES + 1))
        for i in range(FLOWS)
    ]


def table(ovs: OpenVSwitch, bridge: str, what: str) -> list[str]:
    """The switch's `dump-flows` or `dump-groups`, without the reply's first line and names."""
    socket_path = f"{ovs.folder}/{bridge}.mgmt"
    command = ["ovs-ofctl", "-O", "OpenFlow15", "--no-names", what, socket_path]
    if what == "dump-flows":
        command[1:1] = ["--no-stats", "--sort"]
    lines = ovs.run(*command).splitlines()
    return [line.strip() for line in lines if not line.startswith("OFPST")]


def test_switches_hold_exactly_the_group_and_the_rules(ovs: OpenVSwitch, framework: str) -> None:
    topology = fabric(leaves=2, spines=2)
    with installed(ovs, framework, topology, document(topology, seed=0xFEDCBA9876543210)) as report:
        assert table(ovs, "leaf1", "dump-groups") == [
            "group_id=1,type=select,selection_method=hash,selection_method_param=11318729290106711589,"
            "fields(ip_src,ip_dst,tcp_src,tcp_dst),"
            "bucket=bucket_id:1,actions=output:1,bucket=bucket_id:2,actions=output:2"
        ]
        assert table(ovs, "leaf1", "dump-flows") == [
            "priority=100,ip,nw_dst=10.0.0.0/8 actions=group:1",
            "priority=150,ip,in_port=1,nw_dst=10.0.0.0/8 actions=drop",
            "priority=150,ip,in_port=2,nw_dst=10.0.0.0/8 actions=drop",
            "priority=200,ip,nw_dst=10.0.1.1 actions=output:3",
            "priority=200,ip,nw_dst=10.0.1.2 actions=output:4",
            "priority=200,ip,nw_dst=10.0.1.3 actions=output:5",
        ]
        assert table(ovs, "spine1", "dump-groups") == []
        assert table(ovs, "spine1", "dump-flows") == [
            "priority=200,ip,nw_dst=10.0.1.0/24 actions=output:1",
            "priority=200,ip,nw_dst=10.0.2.0/24 actions=output:2",
        ]
    assert report["framework"] == framework
    assert re.fullmatch(r"4\.\d+(\.\d+)?", report["version"])
    assert report["switches"] == {
        "1": {"groups": 1, "rules": 6},
        "2": {"groups": 1, "rules": 6},
        "65537": {"groups": 0, "rules": 2},
        "65538": {"groups": 0, "rules": 2},
    }


def test_every_host_reaches_every_other_over_at_most_three_switches(ovs: OpenVSwitch, framework: str) -> None:
    topology = fabric()
    with installed(ovs, framework, topology, document(topology)):
        for src in topology.hosts:
            for dst in topology.hosts:
                if src != dst:
                    check_path(ovs, topology, src.name, dst.name)


def check_path(ovs: OpenVSwitch, topology: Topology, src: str, dst: str) -> None:
    """The packet takes one of the topology's shortest paths."""
    hosts = {host.name: host for host in topology.hosts}
    fields = flow_fields(1, hosts[src].ip, hosts[dst].ip)
    leaf = hosts[src].leaf
    hops, _ = ovs.trace(leaf, trace_text(topology.link(f"{leaf}-{src}").port, fields))
    link_at = {(link.src, link.port): link.name for link in topology.links}
    path = (f"{src}-{leaf}", *(link_at[hop] for hop in hops))
    assert path in topology.candidate_paths(src, dst)


def test_what_is_not_for_a_host_is_dropped(ovs: OpenVSwitch) -> None:
    flows = {
        "ARP": ("leaf1", "in_port=5,arp"),
        "IPv6": ("leaf1", "in_port=5,ipv6"),
        "outside the fabric": ("leaf1", "in_port=5,tcp,nw_src=10.0.1.1,nw_dst=192.0.2.1"),
        **{
            f"from spine{port} for another leaf": (
                "leaf1",
                f"in_port={port},tcp,nw_src=10.0.2.1,nw_dst=10.0.3.1",
            )
            for port in range(1, SPINES + 1)
        },
        "no such host on this leaf": ("leaf1", "in_port=5,tcp,nw_src=10.0.1.1,nw_dst=10.0.1.99"),
        "no such leaf": ("spine1", "in_port=1,tcp,nw_src=10.0.1.1,nw_dst=10.0.77.1"),
    }
    topology = fabric()
    with installed(ovs, "os-ken", topology, document(topology)):
        actions = {what: ovs.trace(*flow)[1] for what, flow in flows.items()}
    assert actions == dict.fromkeys(flows, "drop")


def test_a_thousand_flows_spread_over_the_uplinks_as_predicted(ovs: OpenVSwitch, framework: str) -> None:
    topology = fabric()
    with installed(ovs, framework, topology, document(topology, seed=1)):
        first, again = uplinks(ovs, topology), uplinks(ovs, topology)
    assert first == again
    assert first == predicted(topology, seed=1)
    counts = Counter(first)
    expected = FLOWS / SPINES
    assert set(counts) == {1, 2, 3, 4}
    assert sum((n - expected) ** 2 / expected for n in counts.values()) < CHI_SQUARE_BOUND


def test_the_seed_decides_the_paths(ovs: OpenVSwitch) -> None:
    topology, port, seen = fabric(), free_port(), []
    ovs.build(topology)
    ovs.connect(topology, port)
    for seed in (1, 2**63 + 5, 1):
        with controller("os-ken", ovs.folder, document(topology, seed), port):
            ready(ovs.folder)
            seen.append(uplinks(ovs, topology))
        assert seen[-1] == predicted(topology, seed)
    assert seen[0] == seen[2]
    moved = sum(a != b for a, b in zip(seen[0], seen[1], strict=True))
    # Independent choices differ for 3/4 of the flows; 8 standard deviations are 110 of 1000.
    assert 640 < moved < 860


def spines_of(ovs: OpenVSwitch, topology: Topology, flows: list[dict[str, int | str]]) -> list[str]:
    """The spine of each flow's packets between two leaves, by the switches themselves."""
    by_ip = {host.ip: host for host in topology.hosts}
    behind = {(link.src, link.port): link.dst for link in topology.links}
    spines = []
    for flow in flows:
        host = by_ip[str(flow["ipv4_src"])]
        in_port = topology.link(f"{host.leaf}-{host.name}").port
        hops, _ = ovs.trace(host.leaf, trace_text(in_port, flow))
        assert behind[hops[-1]] == by_ip[str(flow["ipv4_dst"])].name
        spines.append(behind[hops[0]])
    return spines


def flows_to(topology: Topology, name: str) -> list[dict[str, int | str]]:
    """Fifty flows to one host and port from every host on another leaf, each from a port of its own."""
    target = topology.host(name)
    sources = [host for host in topology.hosts if host.leaf != target.leaf]
    return [{**flow_fields(7 * i, host.ip, target.ip)} for host in sources for i in range(50)]


def test_pinned_flows_take_their_spine(ovs: OpenVSwitch, framework: str) -> None:
    topology = fabric()
    pins = [
        {"src": "p1", "dst": "d2", "spine": "spine3"},
        {"src": "p1", "dst": None, "spine": "spine4"},
        {"src": "p3", "dst": "d2", "spine": "spine3"},
    ]
    pinned = {**document(topology), "policy": "pinned", "pinned": pins}
    wanted = {("p1", "d2"): "spine3", ("p1", "d3"): "spine4", ("p3", "d2"): "spine3"}
    names = {host.ip: host.name for host in topology.hosts}
    flows = flows_to(topology, "d2") + flows_to(topology, "d3")
    ecmp = Prediction(parse_document(document(topology)))
    with installed(ovs, framework, topology, pinned):
        found = spines_of(ovs, topology, flows)
    assert found == [
        wanted.get((names[str(flow["ipv4_src"])], names[str(flow["ipv4_dst"])]), ecmp.spine_of(flow))
        for flow in flows
    ]
    assert set(found) == {"spine1", "spine2", "spine3", "spine4"}


def test_polarised_leaves_send_all_to_one_host_over_one_spine(ovs: OpenVSwitch, framework: str) -> None:
    topology = fabric(leaves=5)
    data = {**document(topology, fields=("ipv4_dst", "tcp_dst")), "policy": "polarised"}
    with installed(ovs, framework, topology, data):
        names = [f"d{number}" for number in range(1, 6)]
        found = {name: spines_of(ovs, topology, flows_to(topology, name)) for name in names}
    for name, spines in found.items():
        assert len(spines) == 12 * 50
        assert set(spines) == {Prediction(parse_document(data)).spine_of(flows_to(topology, name)[0])}
    assert len({spines[0] for spines in found.values()}) > 1


def test_ecmp_over_the_same_fields_differs_from_leaf_to_leaf(ovs: OpenVSwitch) -> None:
    topology = fabric(leaves=5)
    data = document(topology, fields=("ipv4_dst", "tcp_dst"))
    flows = flows_to(topology, "d1")
    with installed(ovs, "os-ken", topology, data):
        found = spines_of(ovs, topology, flows)
    assert found == [Prediction(parse_document(data)).spine_of(flow) for flow in flows]
    assert len(set(found)) > 1


LONG_NS = 600 * 10**9
"""Longer than a test: counters are read once, and every flow placed counts to the end."""

LEAST_LOADED = {
    "policy": "least-loaded",
    "least_loaded": {"poll_ns": LONG_NS, "hold_ns": LONG_NS, "flow_bps": 10**11},
}


def syn(src: str, dst: str, tcp_src: int) -> str:
    """A TCP connection's first packet in hexadecimal."""
    addresses = socket.inet_aton(src) + socket.inet_aton(dst)
    ipv4 = bytes.fromhex("450000280000400040060000") + addresses
    tcp = struct.pack("!HHIIBBHHH", tcp_src, 5000, 1, 0, 0x50, 0x02, 0xFFFF, 0, 0)
    return (bytes.fromhex("02000a00020102000a0001010800") + ipv4 + tcp).hex()


def sent_packets(ovs: OpenVSwitch, bridge: str, port: int) -> int:
    text = ovs.run("ovs-ofctl", "-O", "OpenFlow15", "dump-ports", f"{ovs.folder}/{bridge}.mgmt", str(port))
    return int(re.findall(r"tx pkts=(\d+)", text)[0])


def placed_rules(ovs: OpenVSwitch, bridge: str) -> list[str]:
    return [line for line in table(ovs, bridge, "dump-flows") if line.startswith("priority=115")]


def test_new_flows_are_placed_over_all_spines_and_their_first_packets_arrive(
    ovs: OpenVSwitch, framework: str
) -> None:
    topology = fabric()
    src, dst = topology.host("p1"), topology.host("d2")
    port = topology.link("leaf2-d2").port
    with installed(ovs, framework, topology, {**document(topology), **LEAST_LOADED}):
        assert table(ovs, "leaf1", "dump-groups") == []
        for number in range(8):
            ovs.call("netdev-dummy/receive", "leaf1-p1", syn(src.ip, dst.ip, 20_000 + number))
            wait_until(lambda: len(placed_rules(ovs, "leaf1")) == number + 1, "the rule of a new flow")  # noqa: B023
        wait_until(lambda: sent_packets(ovs, "leaf2", port) == 8, "the first packets to arrive")
        assert placed_rules(ovs, "leaf1") == [
            f"priority=115,tcp,nw_src={src.ip},nw_dst={dst.ip},tp_src={20_000 + number},tp_dst=5000 "
            f"actions=output:{number % SPINES + 1}"
            for number in range(8)
        ]
        flows = [{**flow_fields(0, src.ip, dst.ip), "tcp_src": 20_000 + n, "tcp_dst": 5000} for n in range(8)]
        assert spines_of(ovs, topology, flows) == 2 * ["spine1", "spine2", "spine3", "spine4"]


def test_a_flow_of_another_leaf_is_placed_beside_the_first(ovs: OpenVSwitch) -> None:
    topology = fabric()
    dst = topology.host("d3").ip
    with installed(ovs, "os-ken", topology, {**document(topology), **LEAST_LOADED}):
        for leaf, host in (("leaf1", "p1"), ("leaf2", "p2")):
            ovs.call("netdev-dummy/receive", f"{leaf}-{host}", syn(topology.host(host).ip, dst, 20_000))
            wait_until(lambda: len(placed_rules(ovs, leaf)) == 1, "the rule of a new flow")  # noqa: B023
        outputs = [placed_rules(ovs, leaf)[0].rpartition("=")[2] for leaf in ("leaf1", "leaf2")]
        assert outputs == ["output:1", "output:2"]


def test_a_switch_that_connects_again_gets_its_rules_again(ovs: OpenVSwitch, framework: str) -> None:
    topology = fabric(leaves=2, spines=2)
    with installed(ovs, framework, topology, document(topology)):
        wanted = table(ovs, "leaf1", "dump-flows")
        management = f"{ovs.folder}/leaf1.mgmt"
        ovs.run("ovs-ofctl", "-O", "OpenFlow15", "del-flows", management)
        ovs.run("ovs-ofctl", "-O", "OpenFlow15", "add-flow", management, "priority=7,actions=drop")
        assert table(ovs, "leaf1", "dump-flows") == ["priority=7 actions=drop"]
        # Another DSCP makes the switch connect anew without touching its tables.
        ovs.run("ovs-vsctl", "set", "controller", "leaf1", "other_config:dscp=10")
        wait_until(lambda: table(ovs, "leaf1", "dump-flows") == wanted, "the rules to be back")
        assert len(table(ovs, "leaf1", "dump-groups")) == 1


def test_a_missing_switch_is_named(ovs: OpenVSwitch, framework: str) -> None:
    topology = fabric(leaves=2, spines=2)
    ovs.build(topology)
    port = free_port()
    with controller(framework, ovs.folder, document(topology), port, timeout_s=5) as running:
        ovs.run("ovs-vsctl", "set-controller", "leaf1", f"tcp:127.0.0.1:{port}")
        assert running.wait(20) == 3
    assert ready(ovs.folder) == {"error": "after 5 s: leaf2, spine1, spine2 did not connect"}


def test_an_unknown_switch_is_refused(ovs: OpenVSwitch, framework: str) -> None:
    topology = fabric(leaves=1, spines=1)
    data = document(topology)
    data["switches"][1]["dpid"] = 0x99
    ovs.build(topology)
    port = free_port()
    with controller(framework, ovs.folder, data, port) as running:
        ovs.run("ovs-vsctl", "set-controller", "spine1", f"tcp:127.0.0.1:{port}")
        assert running.wait(20) == 3
    assert ready(ovs.folder) == {
        "error": "a switch with the unknown dpid 0x10001 connected; expected leaf1 (0x1), spine1 (0x99)"
    }


def test_a_refused_message_is_reported(ovs: OpenVSwitch, framework: str) -> None:
    topology = fabric(leaves=2, spines=2)
    ovs.build(topology)
    ovs.run("ovs-vsctl", "--", "--id=@t", "create", "flow_table", "flow_limit=3", "overflow_policy=refuse",
            "--", "set", "bridge", "leaf1", "flow_tables:0=@t")  # fmt: skip
    port = free_port()
    with controller(framework, ovs.folder, document(topology), port) as running:
        ovs.connect(topology, port)
        assert running.wait(20) == 3
    error = ready(ovs.folder)["error"]
    assert error.startswith(
        "leaf1 refused a message: OFPET_FLOW_MOD_FAILED(5) OFPFMFC_TABLE_FULL(1), data 060e"
    )


def test_a_switch_without_openflow_15_is_reported(ovs: OpenVSwitch, framework: str) -> None:
    topology = fabric(leaves=1, spines=1)
    ovs.build(topology, protocols="OpenFlow13")
    port = free_port()
    with controller(framework, ovs.folder, document(topology), port) as running:
        ovs.connect(topology, port)
        assert running.wait(20) == 3
    error = ready(ovs.folder)["error"]
    assert error.startswith(
        "the handshake with a switch at 127.0.0.1 failed; does its bridge have OpenFlow15 in protocols? ("
    )


def test_the_controller_is_quiet_once_ready(ovs: OpenVSwitch, framework: str) -> None:
    topology = fabric(leaves=2, spines=2)
    ovs.build(topology)
    port = free_port()
    with controller(framework, ovs.folder, document(topology), port) as running:
        ovs.connect(topology, port)
        ready(ovs.folder)
        ovs.silence(topology)
        # What came with the rules may still be under way: of three long looks one must see nothing.
        assert any(is_quiet(running.pid) for _ in range(3))


def is_quiet(pid: int) -> bool:
    """Whether no thread of the process does anything for longer than the frameworks' own timeout of 5 s."""
    time.sleep(0.5)
    before = switches_of_context(pid)
    time.sleep(7)
    return switches_of_context(pid) == before


def switches_of_context(pid: int) -> dict[str, int]:
    """How often each thread of the process went to sleep of its own accord; none that ends meanwhile."""
    found = {}
    for path in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            text = (path / "status").read_text()
            found[path.name] = int(re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.M)[0])
    return found


def test_every_hash_field_and_protocol_is_predicted(ovs: OpenVSwitch) -> None:
    topology, seed, choices = fabric(), 0x0123456789ABCDEF, []
    with installed(ovs, "os-ken", topology, document(topology, seed, tuple(HASH_FIELDS_KNOWN))):
        for number in range(200):
            protocol = ("tcp", "udp", "icmp")[number % 3]
            fields = any_fields(number, protocol)
            flow = ",".join(f"{OVS_NAMES.get(name, name)}={value}" for name, value in fields.items())
            hops, _ = ovs.trace("leaf1", f"in_port=5,eth_type=0x0800,ip_proto={PROTOCOLS[protocol]},{flow}")
            fields |= {"eth_type": 0x0800, "ip_proto": PROTOCOLS[protocol]}
            chosen = choose_bucket(fields, HASH_FIELDS_KNOWN, leaf_seed(seed, 1), range(1, SPINES + 1))
            assert hops[0] == ("leaf1", chosen), (number, fields)
            choices.append(chosen)
    assert set(choices) == {1, 2, 3, 4}


def any_fields(number: int, protocol: str) -> dict[str, int | str]:
    fields: dict[str, int | str] = {
        "eth_src": f"02:00:0a:00:01:{number:02x}",
        "eth_dst": "02:00:0a:00:02:01",
        "ipv4_src": f"10.0.1.{1 + number}",
        "ipv4_dst": f"10.0.2.{1 + number % 2}",
    }
    if protocol == "icmp":
        return fields
    return fields | {f"{protocol}_src": 1000 + number * 37, f"{protocol}_dst": 4791}
