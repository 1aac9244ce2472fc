"""What was lost in the lab outside the queues that may drop. Runs inside the lab, at the end of a run.

A packet can be lost where no queue counts it: in the kernel's own backlog between interfaces, at an
interface, in a delay stage that is full, or on its way to the part of Open vSwitch that decides. None of them
is a switch's buffer, so each is the lab's fault.
"""

from __future__ import annotations

import socket
import struct
from pathlib import Path

from testbed.lab.counters import locate_qdiscs
from testbed.lab.hosts import namespace
from testbed.lab.netlink import NETLINK_ROUTE, Netlink, qdisc_dump_request
from testbed.lab.system import network_namespace, run

SOFTNET_DROPPED = 1
RECEIVED_DROPPED, SENT_DROPPED = 3, 11
"""Columns of /proc/net/softnet_stat and, behind the name, of /proc/net/dev."""


def kernel_drops() -> int:
    """Return what the kernel dropped between interfaces since it started (it may be the machine's own)."""
    return softnet_drops(Path("/proc/net/softnet_stat").read_text())


def stray_drops(hosts: list[str], before: int) -> dict[str, int]:
    """Return how many packets were lost where none may be, by place; places without a loss are left out.

    `before` is what `kernel_drops` said when the run began.
    """
    found = {"the kernel's backlog": kernel_drops() - before}
    found |= interface_drops(Path("/proc/thread-self/net/dev").read_text())
    for host in hosts:
        with network_namespace(namespace(host)):
            found |= interface_drops(Path("/proc/thread-self/net/dev").read_text())
    found |= _delay_drops()
    found["upcalls"] = lost_upcalls(run(["ovs-appctl", "dpctl/show"]))
    return {place: count for place, count in sorted(found.items()) if count}


def softnet_drops(text: str) -> int:
    """Return what the kernel dropped between interfaces, of all processors, from /proc/net/softnet_stat."""
    return sum(int(line.split()[SOFTNET_DROPPED], 16) for line in text.splitlines())


def interface_drops(text: str) -> dict[str, int]:
    """Return what each interface dropped in either direction, from a /proc/net/dev."""
    found = {}
    for line in text.splitlines()[2:]:
        name, _, columns = line.partition(":")
        values = columns.split()
        found[f"interface {name.strip()}"] = int(values[RECEIVED_DROPPED]) + int(values[SENT_DROPPED])
    return found


def lost_upcalls(text: str) -> int:
    """Return how many packets Open vSwitch's kernel part could not ask about, from `dpctl/show`."""
    words = text.replace("\n", " ").split()
    return sum(int(word.removeprefix("lost:")) for word in words if word.startswith("lost:"))


def _delay_drops() -> dict[str, int]:
    netlink = Netlink(NETLINK_ROUTE)
    found = {}
    for view, length in netlink.request(qdisc_dump_request()):
        for place in locate_qdiscs(view, length):
            if place.kind == "netem" and place.drops >= 0:
                name = socket.if_indextoname(place.ifindex)
                found[f"delay stage {name}"] = int(struct.unpack_from("=I", view, place.drops)[0])
    netlink.close()
    return found
