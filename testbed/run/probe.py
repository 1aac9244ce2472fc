"""Samples every queue and every receiver's progress while a run goes on.

Runs as a process of its own inside the lab. One netlink dump reads all queues of the switches, one
more each host's, all in one system call where the kernel has io_uring; one dump of TCP sockets at each
destination says how many bytes have arrived. No packet is touched and no traffic program is asked.
Values are kept as rows of integers (the layout of `testbed.record.layout`) and written when a buffer is
full and at the end: when all is killed, `FLUSH_ROWS` rows of a file are lost at most.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import struct
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

from testbed.errors import LabError
from testbed.lab.bringup import host_interface_index
from testbed.lab.counters import (
    NETLINK_SOCK_DIAG,
    QdiscPlace,
    Received,
    locate_qdiscs,
    tcp_dump_request,
)
from testbed.lab.hosts import namespace
from testbed.lab.netlink import NETLINK_ROUTE, Netlink, ends_answer, qdisc_dump_request, qdisc_request
from testbed.lab.qdiscs import QUEUE_HANDLE
from testbed.lab.stages import ROOT as STAGES_ROOT
from testbed.lab.stages import device_of, queue_handle, stages_of
from testbed.lab.system import go_first, network_namespace
from testbed.lab.uring import Batch, Exchange, NoUring, Questions, Stamp
from testbed.plan.model import Plan
from testbed.plan.served import receivers, transfer_of_port
from testbed.record import layout
from topologies.model import Link, Nic
from traffic.exact_time import exact_timers, sleep_until_ns

CHANGED = "the queues of the lab changed during the run"

FLUSH_ROWS = 256
_FLUSH_VALUES = 1 << 16
_FORMATS = {"backlog_bytes": "I", "bytes": "Q", "packets": "I", "drops": "I", "ce_marks": "I"}
_ATTRIBUTES = dict(zip(layout.SAMPLE_FIELDS, ("backlog", "bytes", "packets", "drops", "marked"), strict=True))


class QueueReader:
    """Reads the counters of some interfaces of one namespace with one request.

    The first answer says where each counter stands; later ones are unpacked at those places in one
    call. LabError when an answer has another length: a qdisc came or went. `lengths` are those of the
    answer's datagrams, `places` the (offset, format) of each counter in each datagram, and `order` says
    which counter is each link's, in the order of `names` and SAMPLE_FIELDS: None for one it does not have.
    """

    def __init__(self, netlink: Netlink, kind: str, links: dict[int, str], request: bytes) -> None:
        self._netlink = netlink
        self._kind = kind
        self._links = links
        self._request = request
        self.lengths: list[int] = []
        self.places: list[list[tuple[int, str]]] = []
        self.order: list[int | None] = []
        self.names: list[str] = []
        # The kernel packs the first dump of a socket into smaller datagrams than those that follow.
        list(netlink.request(self._request))
        self._locate()
        self._structs = [_struct(places) for places in self.places]
        self._reorder = _reordering(self.order, sum(map(len, self.places)))

    def read(self) -> tuple[int, ...]:
        """Return, for each link in the order of `names`, its values in the order of SAMPLE_FIELDS."""
        values: tuple[int, ...] = ()
        number = 0
        for view, length in self._netlink.request(self._request):
            if self.lengths[number : number + 1] != [length]:
                raise LabError(CHANGED)
            values += self._structs[number].unpack_from(view)
            number += 1
        if number != len(self.lengths):
            raise LabError(CHANGED)
        return self._reorder((*values, 0))

    def exchange(self) -> Exchange:
        """Return what `read` asks and expects, for a batch of several readers."""
        return Exchange(self._netlink.fileno(), self._request, tuple(self.lengths))

    def _locate(self) -> None:
        positions: dict[tuple[str, str], int] = {}
        for view, length in self._netlink.request(self._request):
            fields = sorted(self._fields(locate_qdiscs(view, length)))
            for _, name, field in fields:
                positions[name, field] = len(positions)
            self.places.append([(offset, _FORMATS[field]) for offset, _, field in fields])
            self.lengths.append(length)
        self.names = list(dict.fromkeys(name for name, _ in positions))
        missing = sorted(set(self._links.values()) - set(self.names))
        if missing:
            raise LabError(f"no {self._kind} queue on {', '.join(missing)}")
        self.order = [positions.get((name, field)) for name in self.names for field in layout.SAMPLE_FIELDS]

    def _fields(self, places: list[QdiscPlace]) -> list[tuple[int, str, str]]:
        return [
            (getattr(place, _ATTRIBUTES[field]), self._links[place.ifindex], field)
            for place in places
            if place.kind == self._kind and place.ifindex in self._links
            for field in layout.SAMPLE_FIELDS
            if getattr(place, _ATTRIBUTES[field]) >= 0
        ]


def _struct(places: Iterable[tuple[int, str]]) -> struct.Struct:
    """Return the struct that unpacks counters at rising offsets and nothing between them."""
    text, end = "=", 0
    for offset, letter in places:
        text += f"{offset - end}x{letter}"
        end = offset + struct.calcsize("=" + letter)
    return struct.Struct(text)


def _reordering(order: Iterable[int | None], count: int) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """Return what picks the values in `order` out of `count` counters and a zero behind them.

    A qdisc that does not mark has no counter of marks: the zero stands in.
    """
    return itemgetter(*[count if position is None else position for position in order])


class BatchReader:
    """Reads what several readers read, with one system call and one unpacking. NoUring where it cannot.

    One that is `timed` waits for the moment of its reading in that call; a `stamp` takes the time there.
    """

    def __init__(
        self, readers: Sequence[QueueReader], *, timed: bool = False, stamp: Stamp | None = None
    ) -> None:
        self._batch = Batch([reader.exchange() for reader in readers], timed=timed, stamp=stamp)
        places: list[tuple[int, str]] = []
        order: list[int | None] = []
        for reader, starts in zip(readers, self._batch.places, strict=True):
            order += [None if position is None else len(places) + position for position in reader.order]
            for start, own in zip(starts, reader.places, strict=True):
                places += [(start + offset, letter) for offset, letter in own]
        self._struct = _struct(places)
        self._reorder = _reordering(order, len(places))
        if timed and not self._batch.run():
            raise NoUring("this kernel's io_uring does not wait for a moment")

    def read(self, at_ns: int = 0) -> tuple[int, ...]:
        """Return the readers' values when the monotonic clock shows `at_ns`, one reader's after the other's.

        LabError when an answer is not as expected, or none came because a signal ended the wait.
        """
        if not self._batch.run(at_ns):
            raise LabError(CHANGED)
        return self._reorder((*self._struct.unpack_from(self._batch.buffer), 0))


def reading(readers: Sequence[QueueReader]) -> Callable[[], tuple[int, ...]]:
    """Return what reads all queues: in one batch, or each by itself where there is no io_uring."""
    try:
        return BatchReader(readers).read
    except NoUring:
        return lambda: tuple(value for reader in readers for value in reader.read())


def reading_at(readers: Sequence[QueueReader], clock: str) -> Callable[[int], tuple[int, tuple[int, ...]]]:
    """Return what waits until the monotonic clock shows a moment, reads all queues and then the clock.

    In virtual time all three are one system call. With the real clock, which may be set meanwhile, it is read
    by a call of its own: there the system call is none.
    """
    try:
        if clock == "virtual":
            return _stamped(readers)
        return _timed(BatchReader(readers, timed=True).read)
    except NoUring:
        at_once = reading(readers)

    def slept(at_ns: int) -> tuple[int, ...]:
        sleep_until_ns(at_ns)
        return at_once()

    return _timed(slept)


def _timed(read: Callable[[int], tuple[int, ...]]) -> Callable[[int], tuple[int, tuple[int, ...]]]:
    def then(at_ns: int) -> tuple[int, tuple[int, ...]]:
        values = read(at_ns)
        return time.monotonic_ns(), values

    return then


def _stamped(readers: Sequence[QueueReader]) -> Callable[[int], tuple[int, tuple[int, ...]]]:
    stamp = Stamp()
    read, moment_ns = BatchReader(readers, timed=True, stamp=stamp).read, stamp.moment_ns
    moment_ns()  # it has been run once

    def then(at_ns: int) -> tuple[int, tuple[int, ...]]:
        values = read(at_ns)
        return moment_ns(), values

    return then


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


class RowFile:
    """A binary file of int64 rows, written in large pieces."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb")
        self._values = array("q")
        self.rows = 0

    def add(self, row: tuple[int, ...]) -> None:
        """Append one row."""
        self._values.extend(row)
        self.rows += 1
        if self.rows % FLUSH_ROWS == 0 or len(self._values) >= _FLUSH_VALUES:
            self.flush()

    def flush(self) -> None:
        """Write out what is kept."""
        self._values.tofile(self._file)
        self._file.flush()
        del self._values[:]

    def close(self) -> None:
        """Write out and close."""
        self.flush()
        self._file.close()


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
        self._read = reading_at([*self._fabric, *self._hosts], plan.clock)
        self._files = {group: RowFile(record / layout.samples_rows(group)) for group in self._groups()}
        for group in self._files:
            self._write_header(group, rows=None)  # without one, the rows of a run that is killed say nothing
        self._progress_file = None if told else RowFile(record / layout.PROGRESS)

    def _groups(self) -> dict[str, list[QueueReader]]:
        return {layout.FABRIC: self._fabric, layout.HOSTS: self._hosts}

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
                sample = self._sample_at(next_queues)
                if sample is None:
                    break
                now, values = sample
                self._note_queues(now - epoch_ns, values)
                next_queues = _after(next_queues, interval, now)
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

    def _sample_at(self, moment_ns: int) -> tuple[int, tuple[int, ...]] | None:
        """Return when all queues were read that were to be read at a moment, and their values; None when
        the end of the run came first."""
        try:
            return self._read(moment_ns)
        except LabError:
            if self._stop:
                return None
            raise

    def _note_queues(self, now_ns: int, values: tuple[int, ...]) -> None:
        start = 0
        for group, readers in self._groups().items():
            end = start + len(layout.SAMPLE_FIELDS) * sum(len(reader.names) for reader in readers)
            self._files[group].add((now_ns, *values[start:end]))
            start = end

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
        for group, file in self._files.items():
            file.close()
            self._write_header(group, file.rows)

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
