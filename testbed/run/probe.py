"""Samples every queue and every receiver's progress while a run goes on.

Runs as a process of its own inside the lab. The queues are read by `testbed.run.queues`; one dump of TCP
sockets at each destination says how many bytes have arrived. No packet is touched and no traffic program is
asked. Values are kept as rows of integers (the layout of `testbed.record.layout`) and written by
`testbed.run.rows`.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from testbed.errors import LabError
from testbed.lab.bringup import host_interface_index
from testbed.lab.counters import NETLINK_SOCK_DIAG, Received, tcp_dump_request
from testbed.lab.hosts import namespace
from testbed.lab.netlink import NETLINK_ROUTE, Netlink, ends_answer, qdisc_dump_request, qdisc_request
from testbed.lab.qdiscs import QUEUE_HANDLE
from testbed.lab.stages import ROOT as STAGES_ROOT
from testbed.lab.stages import device_of, queue_handle, stages_of
from testbed.lab.system import go_first, network_namespace
from testbed.lab.uring import NoUring, Questions
from testbed.plan.model import Plan
from testbed.plan.served import receivers, transfer_of_port
from testbed.record import layout
from testbed.run.queues import CHANGED, QueueReader
from testbed.run.rows import Place, RowFile, SampleFiles
from testbed.run.sampler import sampler
from topologies.model import Link, Nic
from traffic.exact_time import exact_timers, sleep_until_ns


class ProgressReader:
    """Reads how much every TCP socket of some namespaces has received, all in one system call or a few.

    LabError when a question cannot be sent.
    """

    def __init__(self, netlinks: Sequence[Netlink]) -> None:
        self._netlinks = netlinks
        self._received = Received()
        self._request = tcp_dump_request()
        self._questions: Questions | None = None
        if netlinks:  # RoCE has none, and asks nothing
            with contextlib.suppress(NoUring):
                self._questions = Questions([(netlink.fileno(), self._request) for netlink in netlinks])

    def read(self) -> Iterator[tuple[bytes, int, int]]:
        """Yield (remote address, remote port, bytes received in order) of each socket."""
        for view, length in self._datagrams():
            yield from self._received.read(view, length)

    def _datagrams(self) -> Iterator[tuple[memoryview, int]]:
        if self._questions is None:
            for netlink in self._netlinks:
                yield from netlink.request(self._request)
            return
        for netlink, answer in zip(self._netlinks, self._questions.run(), strict=True):
            yield from answer
            if not answer or not ends_answer(*answer[-1]):
                yield from netlink.answer()


class Probe:
    """All sampling of one run. `run` samples until SIGTERM and then writes the headers."""

    def __init__(self, plan: Plan, record: Path) -> None:
        self._plan = plan
        self._record = record
        self._stop = False
        self._fabric = [self._switch_reader()]
        nics = plan.topology.nics.values()
        self._hosts = [self.nic_reader(nic, plan.topology.stages) for nic in nics]
        self._hosts += [reader for nic in nics for reader in self._stage_readers(nic)]
        # RoCE is no socket of the kernel's: its program tells the progress itself.
        told = plan.transport.kind == "roce"
        self._progress = ProgressReader([_socket_dumps(name) for name in (() if told else receivers(plan))])
        self._transfers = {
            (socket.inet_aton(plan.topology.host(t.src).nic(t.src_nic).ip), t.src_port): t.id
            for t in plan.transfers
        }
        self._seen: dict[int, int] = {}
        interval_ns, progress_ns = plan.measure.interval_ns, plan.measure.progress_ns
        readers = [*self._fabric, *self._hosts]
        self._sampler = sampler(readers, plan.clock, interval_ns, progress_ns // interval_ns)
        self._samples = SampleFiles(list(self._columns()), self._sampler.size)
        for group in self._groups():
            self._write_header(group, rows=None)  # without one, the rows of a run that is killed say nothing
        self._progress_file = None if told else RowFile(record / layout.PROGRESS)

    def _groups(self) -> dict[str, list[QueueReader]]:
        return {layout.FABRIC: self._fabric, layout.HOSTS: self._hosts}

    def _columns(self) -> Iterator[tuple[Path, Sequence[Place | None]]]:
        """Yield each group's file, and where its columns stand among the counters."""
        start = 0
        for group, readers in self._groups().items():
            end = start + len(layout.SAMPLE_FIELDS) * sum(len(reader.names) for reader in readers)
            yield self._record / layout.samples_rows(group), self._sampler.columns[start:end]
            start = end

    def _switch_reader(self) -> QueueReader:
        switches = {switch.name for switch in self._plan.topology.switches}
        names = [link.name for link in self._plan.topology.links if link.src in switches]
        links = {socket.if_nametoindex(name): name for name in names}
        return QueueReader(Netlink(NETLINK_ROUTE), "red", links, qdisc_dump_request())

    @staticmethod
    def nic_reader(nic: Nic, stages: tuple[Link, ...]) -> QueueReader:
        index = host_interface_index(nic.host, nic.up)
        # Where the GPUs' rails stand in the place of the NIC's one queue, all of them are its queue.
        railed = any(stage.dst == nic.name for stage in stages)
        kind, handle = ("htb", STAGES_ROOT) if railed else ("bfifo", QUEUE_HANDLE)
        with network_namespace(namespace(nic.host)):
            return QueueReader(Netlink(NETLINK_ROUTE), kind, {index: nic.up}, qdisc_request(index, handle))

    def _stage_readers(self, nic: Nic) -> list[QueueReader]:
        stages = stages_of(self._plan, nic.name)
        if not stages:
            return []
        index = host_interface_index(nic.host, device_of(nic))
        with network_namespace(namespace(nic.host)):
            requests = [qdisc_request(index, queue_handle(number)) for number in range(len(stages))]
            return [
                QueueReader(Netlink(NETLINK_ROUTE), "bfifo", {index: stage.name}, request)
                for stage, request in zip(stages, requests, strict=True)
            ]

    def run(self, epoch_ns: int) -> None:
        """Sample from `epoch_ns` on, at the plan's intervals, until SIGTERM."""
        signal.signal(signal.SIGTERM, self._on_signal)
        exact_timers()
        if self._plan.clock == "virtual":
            go_first()
        interval, progress = self._plan.measure.interval_ns, self._plan.measure.progress_ns
        next_queues, next_progress = epoch_ns - interval, epoch_ns + progress
        while not self._stop:
            if next_queues <= next_progress:
                moments = range(next_queues, next_progress + 1, interval)[: self._sampler.most]
                times = self._sample(moments, epoch_ns)
                if len(times) == 0:
                    break
                now = times[-1]
                next_queues = _after(moments[len(times) - 1], interval, now)
            else:
                sleep_until_ns(next_progress)
                now = time.monotonic_ns()
            if now >= next_progress:
                self._sample_progress(now - epoch_ns)
                next_progress = _after(next_progress, progress, now)
        self._sample_progress(time.monotonic_ns() - epoch_ns)
        self._finish()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._stop = True

    def _sample(self, moments: Sequence[int], epoch_ns: int) -> Sequence[int]:
        """Keep samples taken at some of the moments and return when that was; LabError when a queue changed.

        The end of a run comes before a moment, and cuts the wait for it.
        """
        taken = self._sampler.take(moments)
        self._samples.add([moment - epoch_ns for moment in taken.times_ns], taken.counters)
        if not taken.whole and not self._stop:
            raise LabError(CHANGED)
        return taken.times_ns

    def _sample_progress(self, now_ns: int) -> None:
        for address, port, received in self._progress.read():
            self._note_progress(now_ns, self._transfer_of(address, port), received)

    def _transfer_of(self, address: bytes, port: int) -> int | None:
        if self._plan.serving:
            return transfer_of_port(port)
        return self._transfers.get((address, port))

    def _note_progress(self, now_ns: int, transfer: int | None, received: int) -> None:
        if transfer is not None and received and self._seen.get(transfer) != received:
            assert self._progress_file is not None
            self._seen[transfer] = received
            self._progress_file.add((now_ns, transfer, received))

    def _finish(self) -> None:
        if self._progress_file is not None:
            self._progress_file.close()
        self._samples.close()
        for group in self._groups():
            self._write_header(group, self._samples.rows)

    def _write_header(self, group: str, rows: int | None) -> None:
        header: dict[str, Any] = {
            "format_version": layout.FORMAT_VERSION,
            "group": group,
            "links": [name for reader in self._groups()[group] for name in reader.names],
            "fields": list(layout.SAMPLE_FIELDS),
            "interval_ns": self._plan.measure.interval_ns,
            "rows": rows,
        }
        (self._record / layout.samples_header(group)).write_text(json.dumps(header, indent=1) + "\n")


def _socket_dumps(host: str) -> Netlink:
    with network_namespace(namespace(host)):
        return Netlink(NETLINK_SOCK_DIAG)


def _after(moment: int, step: int, now: int) -> int:
    """Return the first moment of the series `moment`, `moment + step`, ... that is later than `now`."""
    return moment + step * ((now - moment) // step + 1)


def probe_main(plan: Plan, record: Path, ready: Callable[[], None], epoch: Callable[[], int]) -> None:
    """Open everything, say `ready`, wait for the `epoch`, sample until SIGTERM."""
    probe = Probe(plan, record)
    ready()
    with contextlib.suppress(KeyboardInterrupt):
        probe.run(epoch())
