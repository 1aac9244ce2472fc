"""Carries out pauses (PFC) while a run goes on: looks at the queues, closes and opens gates, notes it down.

A process of its own inside the lab; what is to be done is decided by `testbed.run.pauses`. It reads all
queues in one system call where the kernel has io_uring. In virtual time looking costs nothing, and a gate
moves at exactly its moment; on a real clock both come as late as the machine makes them.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from testbed.lab.bringup import host_interface_index
from testbed.lab.gates import gate_message
from testbed.lab.hosts import namespace
from testbed.lab.netlink import NETLINK_ROUTE, Netlink, qdisc_dump_request, qdisc_request
from testbed.lab.stages import device_of, queue_handle, stages_of
from testbed.lab.system import go_first, network_namespace
from testbed.plan.model import Plan
from testbed.record import layout
from testbed.run.pauses import Order, Pauses
from testbed.run.probe import Probe
from testbed.run.queues import QueueReader, reading
from testbed.run.rows import RowFile
from traffic.exact_time import exact_timers, sleep_until_ns

BACKLOG = layout.SAMPLE_FIELDS.index("backlog_bytes")
SENT = layout.SAMPLE_FIELDS.index("bytes")


class Gates:
    """The gates of all ports of a plan's lab."""

    def __init__(self, plan: Plan) -> None:
        limits = {queue.link: queue.limit_bytes for queue in plan.queues}
        switches = Netlink(NETLINK_ROUTE)
        self._netlinks = {"": switches}
        self._messages: dict[str, tuple[Netlink, bytes, bytes]] = {}
        for link in plan.topology.links:
            nic = plan.topology.nics.get(link.src)
            if nic:
                netlink, index = self._of_host(nic.host), host_interface_index(nic.host, link.name)
            else:
                netlink, index = switches, socket.if_nametoindex(link.name)
            limit = limits[link.name]
            both = (gate_message(index, limit, closed=False), gate_message(index, limit, closed=True))
            self._messages[link.name] = (netlink, *both)
        self._held: dict[str, set[str]] = {name: set() for name in self._messages}

    def _of_host(self, host: str) -> Netlink:
        if host not in self._netlinks:
            with network_namespace(namespace(host)):
                self._netlinks[host] = Netlink(NETLINK_ROUTE)
        return self._netlinks[host]

    def obey(self, order: Order) -> None:
        """Close or open a gate, unless another queue holds it too."""
        held = self._held[order.link]
        before = bool(held)
        (held.add if order.held else held.discard)(order.by)
        if bool(held) != before:
            netlink, opened, closed = self._messages[order.link]
            netlink.tell(closed if held else opened)

    def check(self) -> None:
        """Raise LabError when the kernel has refused to move a gate."""
        for netlink in self._netlinks.values():
            netlink.require_no_answer()


class Pauser:
    """All pauses of one run. `run` works until SIGTERM."""

    def __init__(self, plan: Plan, record: Path) -> None:
        self._plan = plan
        self._record = record
        self._pauses = Pauses(plan)
        self._gates = Gates(plan)
        self._readers = readers = list(_readers(plan, set(self._pauses.watched)))
        self._names = [name for reader in readers for name in reader.names]
        self._read = reading(readers)  # by their sockets, which end with them
        self._numbers = {link.name: number for number, link in enumerate(plan.topology.all_links)}
        self._due: list[tuple[int, int, Order]] = []
        self._rows = RowFile(record / layout.PAUSES)
        self._count = 0
        self._stop = False
        self._deadlocked = False

    def run(self, epoch_ns: int) -> None:
        """Look and act until SIGTERM."""
        signal.signal(signal.SIGTERM, self._on_signal)
        exact_timers()
        virtual = self._plan.clock == "virtual"
        if virtual:
            go_first()
        look_ns = now = time.monotonic_ns()
        while not self._stop:
            wake_ns = min(look_ns, self._due[0][0]) if self._due else look_ns
            sleep_until_ns(wake_ns)
            # In virtual time it is just that moment, and reading the clock would move it.
            now = wake_ns if virtual else time.monotonic_ns()
            self._act(now, epoch_ns)
            look_ns = self._look(now, epoch_ns)
        self._rows.close()
        self._gates.check()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._stop = True

    def _act(self, now_ns: int, epoch_ns: int) -> None:
        while self._due and self._due[0][0] <= now_ns:
            order = heapq.heappop(self._due)[-1]
            self._gates.obey(order)
            self._rows.add(
                (now_ns - epoch_ns, self._numbers[order.link], self._numbers[order.by], int(order.held))
            )

    def _look(self, now_ns: int, epoch_ns: int) -> int:
        values, width = self._read(), len(layout.SAMPLE_FIELDS)
        backlogs = dict(zip(self._names, values[BACKLOG::width], strict=True))
        sent = dict(zip(self._names, values[SENT::width], strict=True))
        for order in self._pauses.look(now_ns, backlogs, sent):
            self._count += 1  # of equal moments the earlier order first
            heapq.heappush(self._due, (order.time_ns, self._count, order))
        self._act(now_ns, epoch_ns)
        circle = self._pauses.deadlock(now_ns)
        if circle and not self._deadlocked:
            self._deadlocked = True
            self._rows.flush()
            found = {"time_ns": now_ns - epoch_ns, "links": list(circle)}
            (self._record / layout.DEADLOCK).write_text(json.dumps(found) + "\n")
        return self._pauses.next_look_ns(now_ns, backlogs)


def _readers(plan: Plan, watched: set[str]) -> Iterator[QueueReader]:
    """Yield what reads the switch ports, the NICs, and each landing that is watched."""
    switches = {switch.name for switch in plan.topology.switches}
    ports = {
        socket.if_nametoindex(link.name): link.name for link in plan.topology.links if link.src in switches
    }
    yield QueueReader(Netlink(NETLINK_ROUTE), "red", ports, qdisc_dump_request())
    for nic in plan.topology.nics.values():
        yield Probe.nic_reader(nic, plan.topology.stages)
        for number, stage in enumerate(stages_of(plan, nic.name)):
            if stage.name in watched:
                index = host_interface_index(nic.host, device_of(nic))
                with network_namespace(namespace(nic.host)):
                    request = qdisc_request(index, queue_handle(number))
                    yield QueueReader(Netlink(NETLINK_ROUTE), "bfifo", {index: stage.name}, request)


def pauser_main(plan: Plan, record: Path, ready: Callable[[], None], epoch: Callable[[], int]) -> None:
    """Open everything, say `ready`, wait for the `epoch`, pause until SIGTERM."""
    pauser = Pauser(plan, record)
    ready()
    with contextlib.suppress(KeyboardInterrupt):
        pauser.run(epoch())
