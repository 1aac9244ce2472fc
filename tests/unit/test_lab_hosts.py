"""What hosts are told, with the commands and files caught before they reach the machine."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.errors import LabError
from testbed.lab import hosts
from testbed.lab.addresses import address, link_up, neighbour, route
from testbed.lab.netlink import Command
from testbed.plan.model import SERVED_PORT_FIRST, SERVED_PORTS
from testbed.scenario.models import SOURCE_PORT_FIRST, SOURCE_PORTS
from tests.support.lab import small_plan
from traffic.pieces import piece_bytes, send_start_bytes


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the root of the file system."""
    monkeypatch.setattr(hosts, "Path", lambda *parts: tmp_path.joinpath(*parts[0].split("/"), *parts[1:]))
    return tmp_path


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ((), {"ipv4/tcp_congestion_control": "dctcp", "ipv4/tcp_ecn": "1"}),
        (
            ("transport.congestion_control=cubic", "transport.ecn=false"),
            {"ipv4/tcp_congestion_control": "cubic", "ipv4/tcp_ecn": "0"},
        ),
    ],
)
def test_tcp_settings_follow_the_transport(overrides: tuple[str, ...], expected: dict[str, str]) -> None:
    settings = hosts.sysctls(small_plan(*overrides))
    assert {key: settings[key] for key in expected} == expected
    assert settings["ipv4/tcp_rmem"] == "4096 33554432 67108864"
    assert settings["ipv4/tcp_wmem"] == "4096 16777216 67108864"
    assert settings["ipv4/tcp_ecn_fallback"] == settings["ipv4/tcp_slow_start_after_idle"] == "0"


@pytest.mark.parametrize(
    ("transfers", "piece", "start"),
    [
        (0, 4 << 20, 16 << 20),
        (16, 4 << 20, 16 << 20),
        (17, (64 << 20) // 17, (256 << 20) // 17 // 4 * 4),
        (255, (64 << 20) // 255, 4 * ((64 << 20) // 255)),
        (256, 256 << 10, 87380),  # what Linux has by itself
        (10_000, 256 << 10, 87380),
    ],
)
def test_pieces_and_send_buffers_share_what_there_is(transfers: int, piece: int, start: int) -> None:
    assert piece_bytes(transfers) == piece
    assert send_start_bytes(transfers) == start


@pytest.mark.parametrize("there", [True, False])
def test_each_host_has_a_table_of_its_own_where_the_kernel_knows_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    table, made = tmp_path / "tcp_child_ehash_entries", list[str]()
    if there:
        table.write_text("0")
    monkeypatch.setattr(hosts, "CHILD_TABLE", table)
    monkeypatch.setattr(hosts, "NETNS_DIR", tmp_path)
    monkeypatch.setattr(hosts, "_libc", SimpleNamespace(setns=lambda *_: 0))
    monkeypatch.setattr(hosts, "switch_off_ipv6", lambda: None)
    monkeypatch.setattr(
        hosts, "_make_namespace", lambda path: made.append(table.read_text() if there else path.name)
    )
    hosts.make_namespaces(["p1"])
    assert made == (["256"] if there else ["p1"])
    assert table.exists() == there


def test_many_connections_may_open_at_one_moment_and_no_port_is_taken_twice() -> None:
    settings = hosts.sysctls(small_plan())
    keys = ("core/somaxconn", "ipv4/tcp_max_syn_backlog", "ipv4/tcp_max_tw_buckets")
    assert [settings[key] for key in keys] == ["1048576"] * 3
    first = int(settings["ipv4/ip_local_port_range"].split()[0])
    assert first == SOURCE_PORT_FIRST + SOURCE_PORTS == SERVED_PORT_FIRST + SERVED_PORTS


@pytest.fixture
def told(machine: Path, monkeypatch: pytest.MonkeyPatch) -> list[Command]:
    """What the kernel is told; entering a host's namespace and its interfaces are left out."""
    commands: list[Command] = []

    class Kernel:
        def __init__(self, _protocol: int) -> None:
            pass

        def apply(self, asked: list[Command]) -> None:
            commands.extend(asked)

        def close(self) -> None:
            pass

    for name in ("ipv4", "core"):
        (machine / "proc/sys/net" / name).mkdir(parents=True)
    monkeypatch.setattr(hosts, "Netlink", Kernel)
    monkeypatch.setattr(hosts.socket, "if_nametoindex", len)
    monkeypatch.setattr(hosts, "network_namespace", lambda path: contextlib.nullcontext())
    monkeypatch.setattr(hosts, "switch_off_offloads", lambda device: None)
    return commands


def test_a_host_gets_address_route_and_every_neighbour(
    told: list[Command], machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[Any] = []
    switched: list[str] = []
    plan = small_plan("transport.rto_min=5ms")
    monkeypatch.setattr(
        hosts, "network_namespace", lambda path: entered.append(path) or contextlib.nullcontext()
    )
    monkeypatch.setattr(hosts, "switch_off_offloads", switched.append)
    hosts.configure_host(plan.topology.host("p2"), plan)
    d1, p1 = plan.topology.nics["d1"], plan.topology.nics["p1"]
    name, index = "p2-leaf1", len("p2-leaf1")
    assert told == [
        link_up("lo", len("lo")),
        link_up(name, index, gso_max_segs=1),
        address(name, index, "10.0.1.2"),
        route(name, index, "10.0.0.0/8", source="10.0.1.2", rto_min_ms=5, metric=0),
        neighbour(name, index, p1.ip, p1.mac),
        neighbour(name, index, d1.ip, d1.mac),
    ]
    assert (entered, switched) == ([hosts.namespace("p2")], ["p2-leaf1"])
    for key, value in hosts.sysctls(plan).items():
        assert (machine / "proc/sys/net" / key).read_text() == value


def test_the_shortest_timeout_is_never_rounded_to_none(told: list[Command]) -> None:
    plan = small_plan()
    short = replace(plan, transport=replace(plan.transport, rto_min_ns=1_000))
    hosts.configure_host(short.topology.host("p1"), short)
    name = "p1-leaf1"
    assert route(name, len(name), "10.0.0.0/8", source="10.0.1.1", rto_min_ms=1, metric=0) in told


@pytest.mark.parametrize(
    ("allowed", "afterwards"), [("reno cubic", "reno cubic dctcp"), ("reno dctcp cubic", "reno dctcp cubic")]
)
def test_the_labs_own_kernel_allows_the_congestion_control_and_has_memory(
    machine: Path, allowed: str, afterwards: str
) -> None:
    folder = machine / "proc/sys/net/ipv4"
    folder.mkdir(parents=True)
    (folder.parent / "core").mkdir()
    (folder / "tcp_allowed_congestion_control").write_text(allowed)
    hosts.tune_own_kernel("dctcp")
    assert (folder / "tcp_allowed_congestion_control").read_text() == afterwards
    unlimited = (str(1 << 40),) * 3
    assert tuple((folder / "tcp_mem").read_text().split()) == unlimited
    assert tuple((folder / "udp_mem").read_text().split()) == unlimited
    assert (folder.parent / "core/netdev_max_backlog").read_text() == "1000000"


def test_tcp_counters_without_the_zeros(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "network_namespace", lambda path: contextlib.nullcontext())
    netstat = machine / "proc/thread-self/net/netstat"
    netstat.parent.mkdir(parents=True)
    netstat.write_text("TcpExt: SyncookiesSent TCPDelivered\nTcpExt: 0 97\nIpExt: InOctets\nIpExt: 5\n")
    assert hosts.tcp_counters("p1") == {"TCPDelivered": 97}


def test_offloads_of_an_interface_that_is_not_there() -> None:
    with pytest.raises(LabError, match=r"^offloads of no-such-port: No such device$"):
        hosts.offloads("no-such-port")


def test_every_offload_is_asked_and_switched_off_by_its_own_number(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int, int]] = []

    def ethtool(device: str, command: int, value: int) -> int:
        calls.append((device, command, value))
        return int(command == 0x23)

    monkeypatch.setattr(hosts, "_ethtool", ethtool)
    # linux/ethtool.h: ETHTOOL_GTSO 0x1e, GGSO 0x23, GGRO 0x2b, and each S... the next number.
    assert hosts.offloads("leaf1-p1") == {"tso": False, "gso": True, "gro": False}
    assert [command for _, command, _ in calls] == [0x1E, 0x23, 0x2B]
    calls.clear()
    hosts.switch_off_offloads("leaf1-p1")
    assert calls == [("leaf1-p1", 0x1F, 0), ("leaf1-p1", 0x24, 0), ("leaf1-p1", 0x2C, 0)]


def test_ipv6_is_switched_off_where_there_is_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "IPV6_SETTINGS", tmp_path)
    hosts.switch_off_ipv6()
    for name in ("all", "default"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "disable_ipv6").write_text("0")
    hosts.switch_off_ipv6()
    written = [(tmp_path / name / "disable_ipv6").read_text() for name in ("all", "default")]
    assert written == ["1", "1"]
