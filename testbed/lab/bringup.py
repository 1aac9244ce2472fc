"""From a plan to a running, verified lab. Runs inside the lab's own kernel or namespaces.

The order matters: switches know their controller before they have ports, shaping comes after the
ports (Open vSwitch clears a port's qdisc when it takes it), and reading back comes last.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.lab import readback
from testbed.lab.control import ControllerProcess, start_controller
from testbed.lab.gates import add_gate
from testbed.lab.hosts import configure_host, namespace, switch_off_ipv6, tune_own_kernel
from testbed.lab.mininet_net import build_network
from testbed.lab.netlink import (
    NETLINK_ROUTE,
    TC_H_ROOT,
    Netlink,
    fifo_options,
    htb_options,
    netem_options,
    red_options,
)
from testbed.lab.ovs import Daemons, allow_flows, start_daemons, stop_inactivity_probes, version
from testbed.lab.qdiscs import (
    CLASS_ID,
    NETEM_LIMIT,
    QUEUE_HANDLE,
    ROOT_HANDLE,
    delay_lines,
    delays_ns,
    ramp_probability,
    rate_class,
)
from testbed.lab.stages import build_landing, build_rails, stages_of
from testbed.lab.system import network_namespace, run
from testbed.plan.model import Plan, Queue
from testbed.plan.served import most_transfers
from topologies.model import Link, Nic

FLOWS_OF_TRANSFER = 6
"""Datapath flows of a connection: one in each of three switches, in both directions."""


@dataclass(frozen=True)
class Lab:
    """A running lab and what was read back from it."""

    plan: Plan
    net: Any
    daemons: Daemons
    controller: ControllerProcess
    facts: dict[str, Any]

    def check(self) -> None:
        """Raise LabError when a part of the lab has died."""
        self.daemons.check()
        self.controller.check()

    def stop(self) -> None:
        """End the lab's own processes; interfaces go with the kernel or the namespaces."""
        self.controller.stop()
        self.daemons.stop()


def bring_up(
    plan: Plan, *, controller_python: str, work_dir: Path, log_dir: Path, progress: Callable[[str], None]
) -> Lab:
    """Bring `plan` (in lab time) up and return the verified lab.

    Raises LabError when a step fails and ReadbackError when the lab differs from the plan.
    """
    progress("open vswitch")
    daemons = start_daemons(log_dir)
    try:
        with daemons.watched():
            return _build(plan, daemons, controller_python, work_dir, log_dir, progress)
    except Exception:
        daemons.check()  # one that has died is the reason, whatever failed for want of it
        raise


def _build(
    plan: Plan,
    daemons: Daemons,
    controller_python: str,
    work_dir: Path,
    log_dir: Path,
    progress: Callable[[str], None],
) -> Lab:
    progress("controller")
    controller = start_controller(plan, controller_python, work_dir, log_dir)
    progress(f"{len(plan.topology.hosts)} hosts, {len(plan.topology.switches)} switches")
    if plan.backend != "native":
        tune_own_kernel(plan.transport.tcp_congestion_control)
    switch_off_ipv6()
    net = build_network(plan)
    net.start()
    allow_flows(FLOWS_OF_TRANSFER * most_transfers(plan))
    progress("addresses and queues")
    _shape(plan)
    for host in plan.topology.hosts:
        configure_host(host, plan)
    progress("forwarding rules")
    report = controller.wait_ready()
    stop_inactivity_probes([switch.name for switch in plan.topology.switches])
    progress("reading back")
    facts = {
        "readback": _read_back(plan, report),
        "controller": report,
        "versions": {"kernel": os.uname().release, "openvswitch": version()},
    }
    return Lab(plan, net, daemons, controller, facts)


def _shape(plan: Plan) -> None:
    run(["tc", "-batch", "-"], stdin="\n".join(delay_lines(plan)) + "\n")
    netlink = Netlink(NETLINK_ROUTE)
    _add_delays(netlink, plan)
    switches = {switch.name for switch in plan.topology.switches}
    queues = {queue.link: queue for queue in plan.queues}
    for link in plan.topology.links:
        if link.src in switches:
            _shape_link(netlink, link, queues[link.name], plan)
        else:
            nic = plan.topology.nics[link.src]
            with network_namespace(namespace(nic.host)):
                own = Netlink(NETLINK_ROUTE)
                _shape_nic(own, nic, link, queues[link.name], plan)
                own.close()
    netlink.close()


def _shape_nic(netlink: Netlink, nic: Nic, link: Link, queue: Queue, plan: Plan) -> None:
    """Shape a host's NIC and build the stages between it and the GPUs, in the host's namespace."""
    stages = stages_of(plan, nic.name)
    if stages and nic.role == "prefill":
        _, parent = _add_rate(netlink, link, queue, plan)
        build_rails(netlink, nic, parent, plan)
        return
    _shape_link(netlink, link, queue, plan)
    if stages:
        build_landing(netlink, nic, plan)


def _add_rate(netlink: Netlink, link: Link, queue: Queue, plan: Plan) -> tuple[int, int]:
    """Give an interface its rate and, where links pause, its gate; return index and parent of its queue."""
    index = socket.if_nametoindex(link.name)
    netlink.add_qdisc(index, ROOT_HANDLE, TC_H_ROOT, "htb", htb_options(default_class=1))
    netlink.add_class(index, CLASS_ID, ROOT_HANDLE, "htb", rate_class(link, plan).options())
    return index, add_gate(netlink, index, queue.limit_bytes) if plan.pausing else CLASS_ID


def _shape_link(netlink: Netlink, link: Link, queue: Queue, plan: Plan) -> None:
    """Give the link's interface, in the calling thread's namespace, its rate and its queue."""
    index, parent = _add_rate(netlink, link, queue, plan)
    kind, options = ("red", _marking(queue)) if queue.marking else ("bfifo", fifo_options(queue.limit_bytes))
    netlink.add_qdisc(index, QUEUE_HANDLE, parent, kind, options)


def _marking(queue: Queue) -> bytes:
    return red_options(
        kmin_bytes=queue.kmin_bytes,
        kmax_bytes=queue.kmax_bytes,
        max_p=ramp_probability(queue.pmax),
        limit_bytes=queue.limit_bytes,
    )


def _add_delays(netlink: Netlink, plan: Plan) -> None:
    for name, delay_ns in delays_ns(plan).items():
        options = netem_options(delay_ns=delay_ns, limit_packets=NETEM_LIMIT, loss=plan.loss)
        netlink.add_qdisc(socket.if_nametoindex(name), ROOT_HANDLE, TC_H_ROOT, "netem", options)


def _read_back(plan: Plan, report: dict[str, Any]) -> list[dict[str, Any]]:
    switches = {switch.name for switch in plan.topology.switches}
    ports = [link for link in plan.topology.links if link.src in switches]
    items = readback.port_items(ports, plan) + readback.delay_items(plan)
    for link in ports:
        items += readback.offload_items(link.name)
    for host in plan.topology.hosts:
        items += readback.host_items(host, plan)
    for switch in plan.topology.switches:
        sent = report["switches"][str(switch.dpid)]
        items += readback.switch_items(switch.name, (sent["groups"], sent["rules"]))
    return readback.require(items)


def host_interface_index(host: str, device: str) -> int:
    """Return the interface index of a host's NIC in its own namespace."""
    with network_namespace(namespace(host)):
        return socket.if_nametoindex(device)
