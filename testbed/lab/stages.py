"""The stretches inside hosts: a queue of its own between each GPU and the NIC, on both sides.

A NIC of a prefill host has an HTB of its stages in the place of its one queue: a class for each GPU at
the rate of its rail, under the class that has the rate of the NIC. (A detour over another device would
be simpler, but a redirected packet is a copy whose sender believes it sent: TCP would fill the queue
to its limit.) At a decode host an `ifb` takes what arrives and holds it at the rate of the landing.
What belongs to no transfer (ACKs, background load) passes unshaped. A sender's packets find their
class by the socket's priority, a receiver's by their destination port, one for each GPU, or with RoCE by
their queue pair.
"""

from __future__ import annotations

import socket

from testbed.lab.netlink import TC_H_ROOT, Netlink, fifo_options, htb_options
from testbed.lab.qdiscs import ETHERNET_HEADER, rate_class
from testbed.lab.system import run
from testbed.plan.model import Plan, Transfer
from testbed.plan.served import landings
from topologies.model import Link, Nic

ROOT = 0x00020000
_FIRST_QUEUE = 0x20
_QP_GPU_AT = 20 + 8 + 5
"""Where in a RoCE packet, from its IP header on, the first byte of the queue pair stands: its GPU."""

TCP_HEADERS = 52
"""Headers of IP and TCP with timestamps, part of every packet's mtu."""

TCP_WINDOW_MAX = 65_535 << 14
"""The largest window that TCP's header has room for (RFC 7323)."""


def stages_of(plan: Plan, nic: str) -> list[Link]:
    """Return the stages inside a host that lead to or from a NIC, in the order of their classes."""
    return plan.topology.stages_at.get(nic, [])


def device_of(nic: Nic) -> str:
    """Return the interface whose qdiscs are a NIC's stages: the NIC itself, or the `ifb` behind it."""
    return nic.up if nic.role == "prefill" else f"{nic.name}-landing"


def class_id(index: int) -> int:
    """Return the HTB class of a NIC's stage, `index` from 0; also the priority that leads there."""
    return ROOT | (index + 1)


def queue_handle(index: int) -> int:
    """Return the handle of a stage's queue, `index` from 0."""
    return (_FIRST_QUEUE + index) << 16


def priority_of(plan: Plan, transfer: Transfer) -> int:
    """Return the socket priority of a transfer's sender: the class of its GPU's stage, 0 without one."""
    stage = plan.topology.rail(transfer.src, transfer.src_gpu, transfer.src_nic)
    return class_id(stages_of(plan, stage.dst).index(stage)) if stage else 0


def window_of(plan: Plan, transfer: Transfer) -> int:
    """Return the largest TCP window a transfer's receiver offers, 0 for any.

    That is what the buffer before its GPU holds of payload, as the buffer counts headers too, or the
    descriptors that the connector has on the way, whichever is less. A buffer that pauses sets no limit.
    """
    stage = plan.topology.landing(transfer.dst, transfer.dst_gpu, transfer.dst_nic)
    buffer_bytes = plan.queue(stage.name).limit_bytes if stage else 0
    frames = 0 if plan.pausing else buffer_bytes // (plan.mtu + ETHERNET_HEADER)
    in_flight = plan.serving.handover.window_bytes if plan.serving else 0
    windows = [window for window in (frames * (plan.mtu - TCP_HEADERS), in_flight) if window]
    return min(min(windows, default=0), TCP_WINDOW_MAX)


def landing_lines(nic: Nic, stages: list[Link], plan: Plan) -> list[str]:
    """Return the `tc` lines that lead arriving packets to the stages and give them their GPU's class."""
    device, number = device_of(nic), plan.topology.host(nic.host).nics.index(nic) + 1
    redirect = f"matchall action mirred egress redirect dev {device}"
    lines = [
        f"qdisc add dev {nic.up} clsact",
        f"filter add dev {nic.up} ingress protocol ip prio 1 {redirect}",
    ]
    for port, gpu in landings(plan, nic.host, number):
        stage = plan.topology.landing(nic.host, gpu, number)
        if stage in stages:
            gpu_match = f"match u8 0x{gpu:02x} 0xff at {_QP_GPU_AT} " if plan.transport.roce else ""
            lines.append(
                f"filter add dev {device} parent 2: protocol ip prio 1 u32 "
                f"match ip dport {port} 0xffff {gpu_match}classid 2:{stages.index(stage) + 1:x}"
            )
    return lines


def build_rails(netlink: Netlink, nic: Nic, parent: int, plan: Plan) -> None:
    """Build the stages to a NIC of a prefill host, in the host's namespace, below its rate class or gate
    (`parent`)."""
    index = socket.if_nametoindex(device_of(nic))
    _build(netlink, index, parent, stages_of(plan, nic.name), plan)


def build_landing(netlink: Netlink, nic: Nic, plan: Plan) -> None:
    """Build the stages behind a NIC of a decode host, in the host's namespace, once the NIC is up."""
    stages, device = stages_of(plan, nic.name), device_of(nic)
    run(["ip", "-batch", "-"], stdin=f"link add {device} type ifb\nlink set {device} up\n")
    _build(netlink, socket.if_nametoindex(device), TC_H_ROOT, stages, plan)
    run(["tc", "-batch", "-"], stdin="\n".join(landing_lines(nic, stages, plan)) + "\n")


def _build(netlink: Netlink, index: int, parent: int, stages: list[Link], plan: Plan) -> None:
    netlink.add_qdisc(index, ROOT, parent, "htb", htb_options(default_class=0))
    limits = {queue.link: queue.limit_bytes for queue in plan.queues}
    for number, stage in enumerate(stages):
        netlink.add_class(index, class_id(number), ROOT, "htb", rate_class(stage, plan).options())
        options = fifo_options(limits[stage.name])
        netlink.add_qdisc(index, queue_handle(number), class_id(number), "bfifo", options)
