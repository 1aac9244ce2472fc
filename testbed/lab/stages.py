"""The stretches inside hosts: a queue of its own between each GPU and the NIC, on both sides.

A prefill host's NIC has an HTB of its stages in the place of its one queue: a class for each GPU at
the rate of its rail, under the class that has the rate of the NIC. (A detour over another device would
be simpler, but a redirected packet is a copy whose sender believes it sent: TCP would fill the queue
to its limit.) At a decode host an `ifb` takes what arrives and holds it at the rate of the landing.
What belongs to no transfer (ACKs, background load) passes unshaped. A sender's packets find their
class by the socket's priority, a receiver's by their destination port, one for each GPU.
"""

from __future__ import annotations

import socket

from testbed.lab.netlink import TC_H_ROOT, Netlink, fifo_options, htb_options
from testbed.lab.qdiscs import CLASS_ID, ETHERNET_HEADER, rate_class
from testbed.lab.system import run
from testbed.plan.model import Plan, Transfer
from topologies.model import Host, Link

ROOT = 0x00020000
_FIRST_QUEUE = 0x20
TCP_HEADERS = 52
"""Headers of IP and TCP with timestamps, part of every packet's mtu."""


def stages_of(plan: Plan, host: str) -> list[Link]:
    """Return the stages inside a host, in the order of their classes."""
    return [stage for stage in plan.topology.stages if host in (stage.src, stage.dst)]


def device_of(host: Host) -> str:
    """Return the interface whose qdiscs are a host's stages: its NIC, or the `ifb` behind it."""
    return f"{host.name}-{host.leaf}" if host.role == "prefill" else f"{host.name}-landing"


def class_id(index: int) -> int:
    """Return the HTB class of a host's stage, `index` from 0; also the priority that leads there."""
    return ROOT | (index + 1)


def queue_handle(index: int) -> int:
    """Return the handle of a stage's queue, `index` from 0."""
    return (_FIRST_QUEUE + index) << 16


def priority_of(plan: Plan, transfer: Transfer) -> int:
    """Return the socket priority of a transfer's sender: the class of its GPU's stage, 0 without one."""
    stage = plan.topology.rail(transfer.src, transfer.src_gpu)
    return class_id(stages_of(plan, transfer.src).index(stage)) if stage else 0


def window_of(plan: Plan, transfer: Transfer) -> int:
    """Return the largest TCP window a transfer's receiver offers, 0 for any.

    That is what the buffer before its GPU holds of payload: the buffer counts headers too.
    """
    stage = plan.topology.landing(transfer.dst, transfer.dst_gpu)
    buffer_bytes = next((queue.limit_bytes for queue in plan.queues if stage and queue.link == stage.name), 0)
    frames = buffer_bytes // (plan.mtu + ETHERNET_HEADER)
    return frames * (plan.mtu - TCP_HEADERS)


def landing_lines(host: Host, stages: list[Link], plan: Plan) -> list[str]:
    """Return the `tc` lines that lead arriving packets to the stages and give them their GPU's class."""
    nic, device = f"{host.name}-{host.leaf}", device_of(host)
    redirect = f"matchall action mirred egress redirect dev {device}"
    lines = [
        f"qdisc add dev {nic} clsact",
        f"filter add dev {nic} ingress protocol ip prio 1 {redirect}",
    ]
    for port, gpu in sorted({(t.dst_port, t.dst_gpu) for t in plan.transfers if t.dst == host.name}):
        stage = plan.topology.landing(host.name, gpu)
        if stage in stages:
            lines.append(
                f"filter add dev {device} parent 2: protocol ip prio 1 u32 "
                f"match ip dport {port} 0xffff classid 2:{stages.index(stage) + 1:x}"
            )
    return lines


def build_rails(netlink: Netlink, host: Host, plan: Plan) -> None:
    """Build the stages of a prefill host below its NIC's rate class, in the host's namespace."""
    index = socket.if_nametoindex(device_of(host))
    _build(netlink, index, CLASS_ID, stages_of(plan, host.name), plan)


def build_landing(netlink: Netlink, host: Host, plan: Plan) -> None:
    """Build the stages of a decode host, in the host's namespace, once its NIC is up."""
    stages, device = stages_of(plan, host.name), device_of(host)
    run(["ip", "-batch", "-"], stdin=f"link add {device} type ifb\nlink set {device} up\n")
    _build(netlink, socket.if_nametoindex(device), TC_H_ROOT, stages, plan)
    run(["tc", "-batch", "-"], stdin="\n".join(landing_lines(host, stages, plan)) + "\n")


def _build(netlink: Netlink, index: int, parent: int, stages: list[Link], plan: Plan) -> None:
    netlink.add_qdisc(index, ROOT, parent, "htb", htb_options(default_class=0))
    limits = {queue.link: queue.limit_bytes for queue in plan.queues}
    for number, stage in enumerate(stages):
        netlink.add_class(index, class_id(number), ROOT, "htb", rate_class(stage, plan).options())
        options = fifo_options(limits[stage.name])
        netlink.add_qdisc(index, queue_handle(number), class_id(number), "bfifo", options)
