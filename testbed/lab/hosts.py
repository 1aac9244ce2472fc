"""Hosts inside the lab: their namespaces, addresses, neighbours, TCP settings and offloads."""

from __future__ import annotations

import array
import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

from testbed.errors import LabError
from testbed.lab.addresses import address, link_up, neighbour, route
from testbed.lab.netlink import NETLINK_ROUTE, Command, Netlink
from testbed.lab.system import network_namespace
from testbed.plan.model import Plan
from testbed.plan.served import most_transfers
from topologies.model import Host, Nic
from traffic.pieces import send_start_bytes

IPV6_SETTINGS = Path("/proc/sys/net/ipv6/conf")
"""Not there in a kernel without IPv6."""

NETNS_DIR = Path("/run/netns")

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
_MS_BIND = 4096

_SIOCETHTOOL = 0x8946
_OFFLOADS = {"tso": (0x1E, 0x1F), "gso": (0x23, 0x24), "gro": (0x2B, 0x2C)}
"""ETHTOOL_G... and ETHTOOL_S... of each offload that would put super-packets into the queues."""

EVERY_HOST = "10.0.0.0/8"

TCP_BUFFER_BYTES = 64 << 20
"""Largest socket buffer: above any bandwidth-delay product plus queue of a planned fabric."""

NO_PRESSURE_PAGES = 1 << 40
"""More memory than any machine has, as TCP and UDP count it."""

CONNECTIONS_MAX = 1 << 20
"""Connections that may be opening at one host: more than a process can have descriptors for."""

KERNEL_BACKLOG_PACKETS = 1_000_000
"""Packets that may wait between interfaces at one moment: the kernel's 1000 are lost when more hosts than
that send at once."""

CHILD_TABLE = Path("/proc/sys/net/ipv4/tcp_child_ehash_entries")
CONNECTION_BUCKETS = 256
"""Each host has a table of its own, so large, of its connections (Linux 6.1 and later). In the one table
of all namespaces, whose size goes by the memory, listing a host's connections looks at everybody's."""

TCP_START_BUFFER_BYTES = 32 << 20
"""Receive buffer a connection starts with, so that the window never limits the first round trips."""


def namespace(name: str) -> Path:
    """Return the path of a host's network namespace."""
    return NETNS_DIR / name


def make_namespaces(names: list[str]) -> None:
    """Create a named network namespace for each host, as `ip netns add` would."""
    NETNS_DIR.mkdir(parents=True, exist_ok=True)
    if CHILD_TABLE.exists():
        CHILD_TABLE.write_text(str(CONNECTION_BUCKETS))
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        for name in names:
            _make_namespace(namespace(name))
            switch_off_ipv6()
            _libc.setns(home, _CLONE_NEWNET)
    finally:
        _libc.setns(home, _CLONE_NEWNET)
        os.close(home)


def switch_off_ipv6() -> None:
    """Keep IPv6 out of the calling thread's network namespace: its own packets would be in the queues."""
    for name in ("all", "default"):
        path = IPV6_SETTINGS / name / "disable_ipv6"
        if path.exists():
            path.write_text("1")


def _make_namespace(path: Path) -> None:
    path.touch(exist_ok=False)
    if _libc.unshare(_CLONE_NEWNET):
        raise LabError(f"cannot make a network namespace: {os.strerror(ctypes.get_errno())}")
    own = b"/proc/thread-self/ns/net"
    if _libc.mount(own, str(path).encode(), b"none", _MS_BIND, None):
        raise LabError(f"cannot keep network namespace {path}: {os.strerror(ctypes.get_errno())}")


def sysctls(plan: Plan) -> dict[str, str]:
    """Return the TCP settings of every host, by path below /proc/sys/net.

    On a kernel of its own a lab makes the plan's congestion control the hosts' default. On the
    machine's kernel only the initial namespace may permit that, and the machine's settings are left
    alone: there, the programs choose for each connection, which root may, and report what it got.
    """
    own_kernel = plan.backend != "native"
    default = {"ipv4/tcp_congestion_control": plan.transport.tcp_congestion_control} if own_kernel else {}
    return default | {
        "ipv4/tcp_ecn": "1" if plan.transport.ecn else "0",
        "ipv4/tcp_ecn_fallback": "0",
        "ipv4/tcp_rmem": f"4096 {TCP_START_BUFFER_BYTES} {TCP_BUFFER_BYTES}",
        "ipv4/tcp_wmem": f"4096 {send_start_bytes(most_transfers(plan))} {TCP_BUFFER_BYTES}",
        "ipv4/tcp_slow_start_after_idle": "0",
        "ipv4/tcp_no_metrics_save": "1",
        # A SYN that finds these queues full is dropped, and sent again after a second: by default some
        # hundred connections may open at one moment.
        "core/somaxconn": str(CONNECTIONS_MAX),
        "ipv4/tcp_max_syn_backlog": str(CONNECTIONS_MAX),
        "ipv4/tcp_max_tw_buckets": str(CONNECTIONS_MAX),
        # Those that Linux chooses for itself, as for iperf3, must not be a transfer's.
        "ipv4/ip_local_port_range": "60000 65535",
    }


def configure_host(host: Host, plan: Plan) -> None:
    """Give a host its addresses, its static neighbours and its TCP settings, and start its NICs."""
    with network_namespace(namespace(host.name)):
        netlink = Netlink(NETLINK_ROUTE)
        netlink.apply([link_up("lo", socket.if_nametoindex("lo"))])
        for metric, nic in enumerate(host.nics):
            netlink.apply(_nic_commands(nic, metric, plan))
        netlink.close()
        for key, value in host_sysctls(host, plan).items():
            Path("/proc/sys/net", key).write_text(value)
        for nic in host.nics:
            switch_off_offloads(nic.up)


def _nic_commands(nic: Nic, metric: int, plan: Plan) -> list[Command]:
    """Return what one NIC is told.

    Each has a route to everywhere, and the metric only tells them apart: a socket that is bound to a device
    takes that device's.
    """
    device, index = nic.up, socket.if_nametoindex(nic.up)
    rto_ms = max(1, round(plan.transport.rto_min_ns / 1_000_000))
    return [
        # TCP makes super-packets whatever the device's offloads say (Linux 4.17 and later), unless
        # one segment is the most the device takes.
        link_up(device, index, gso_max_segs=1),
        address(device, index, nic.ip),
        route(device, index, EVERY_HOST, source=nic.ip, rto_min_ms=rto_ms, metric=metric),
        *(
            neighbour(device, index, other.ip, other.mac)
            for other in plan.topology.nics.values()
            if other.host != nic.host
        ),
    ]


def host_sysctls(host: Host, plan: Plan) -> dict[str, str]:
    """Return the settings of one host, by path below /proc/sys/net.

    With several NICs, what comes in by one may be from where the route with the least metric leads by
    another: that is no reason to drop it.
    """
    if len(host.nics) == 1:
        return sysctls(plan)
    names = ["all", *(nic.up for nic in host.nics)]
    return sysctls(plan) | {f"ipv4/conf/{name}/rp_filter": "0" for name in names}


def device_to_bind(host: Host, nic: int) -> str:
    """Return the interface that a program's socket must be bound to for it to use a NIC (from 1).

    Empty where the host has only one: there is nothing to choose.
    """
    return host.nic(nic).up if len(host.nics) > 1 else ""


def tune_own_kernel(congestion_control: str) -> None:
    """Make the kernel-wide settings fit the lab; only for a kernel that is the lab's own.

    Hosts may choose `congestion_control` (only the initial namespace may permit that). TCP and UDP never
    believe to be short of memory: by default they do at a sixteenth of it, counting pages that many packets
    share (`sendfile`) once for each, and a TCP under pressure cuts its buffers and sends at a fraction of
    its window. Memory that really runs out ends the run.
    """
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
    names = allowed.read_text().split()
    if congestion_control not in names:
        allowed.write_text(" ".join([*names, congestion_control]))
    for name in ("tcp_mem", "udp_mem"):
        Path("/proc/sys/net/ipv4", name).write_text(f"{NO_PRESSURE_PAGES} " * 3)
    Path("/proc/sys/net/core/netdev_max_backlog").write_text(str(KERNEL_BACKLOG_PACKETS))


def tcp_counters(host: str) -> dict[str, int]:
    """Return what a host's TCP has counted so far (TcpExt of /proc/net/netstat), without the zeros."""
    with network_namespace(namespace(host)):
        lines = Path("/proc/thread-self/net/netstat").read_text().splitlines()
    pairs = zip(lines[0].split()[1:], lines[1].split()[1:], strict=True)
    return {name: int(value) for name, value in pairs if value != "0"}


def switch_off_offloads(device: str) -> None:
    """Switch off TSO, GSO and GRO of an interface in the calling thread's namespace."""
    for _, command in _OFFLOADS.values():
        _ethtool(device, command, 0)


def offloads(device: str) -> dict[str, bool]:
    """Return the state of TSO, GSO and GRO of an interface."""
    return {name: bool(_ethtool(device, get, 0)) for name, (get, _) in _OFFLOADS.items()}


def _ethtool(device: str, command: int, value: int) -> int:
    request = array.array("I", [command, value])
    address, _ = request.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        try:
            fcntl.ioctl(control, _SIOCETHTOOL, struct.pack("16sP16x", device.encode(), address))
        except OSError as error:
            raise LabError(f"offloads of {device}: {error.strerror}") from error
    return request[1]
