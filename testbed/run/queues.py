"""Reads the counters of queues out of netlink dumps, many thousand times in a run.

One dump reads all queues of the switches, one more each host's: each by itself, or all in one system call
where the kernel has io_uring.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter

from testbed.errors import LabError
from testbed.lab.counters import QdiscPlace, locate_qdiscs
from testbed.lab.netlink import Netlink
from testbed.lab.uring import Batch, Exchange, NoUring, Stamp, Ticks
from testbed.record import layout

CHANGED = "the queues of the lab changed during the run"

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
        self._structs = [counters_at(places) for places in self.places]
        self.count = sum(map(len, self.places))
        self._reorder = reordering(self.order, self.count)

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


def counters_at(places: Iterable[tuple[int, str]]) -> struct.Struct:
    """Return the struct that unpacks counters at rising offsets and nothing between them."""
    text, end = "=", 0
    for offset, letter in places:
        text += f"{offset - end}x{letter}"
        end = offset + struct.calcsize("=" + letter)
    return struct.Struct(text)


def reordering(order: Iterable[int | None], count: int) -> Callable[[tuple[int, ...]], tuple[int, ...]]:
    """Return what picks the values in `order` out of `count` counters and a zero behind them.

    A qdisc that does not mark has no counter of marks: the zero stands in.
    """
    return itemgetter(*[count if position is None else position for position in order])


class BatchReader:
    """Reads what several readers read, with one system call and one unpacking. NoUring where it cannot.

    One that is `timed` waits for the moment of its reading in that call; with `ticks` it reads in `rounds`,
    each at the next of them; a `stamp` takes the time in each. `order` says which of the `count` counters of
    a round is each link's, as in QueueReader.
    """

    def __init__(
        self,
        readers: Sequence[QueueReader],
        *,
        timed: bool = False,
        ticks: Ticks | None = None,
        rounds: int = 1,
        stamp: Stamp | None = None,
    ) -> None:
        exchanges = [reader.exchange() for reader in readers]
        self._batch = Batch(exchanges, timed=timed, ticks=ticks, rounds=rounds, stamp=stamp)
        self.rounds = rounds
        self.order: list[int | None] = []
        self.count = 0
        places: list[tuple[int, str]] = []
        for reader, starts in zip(readers, self._batch.places[: len(readers)], strict=True):
            self.order += [None if position is None else self.count + position for position in reader.order]
            self.count += reader.count
            for start, own in zip(starts, reader.places, strict=True):
                places += [(start + offset, letter) for offset, letter in own]
        bases = [number * self._batch.size for number in range(rounds)]
        self._rounds = [
            counters_at((base + offset, letter) for base in bases[:whole] for offset, letter in places)
            for whole in range(rounds + 1)
        ]
        self._reorder = reordering(self.order, self.count)
        if ticks:
            ticks.start(1, 1)
        if (timed or ticks) and self._batch.run() < rounds:
            raise NoUring("this kernel's io_uring does not wait for a moment")

    def take(self, at_ns: int = 0) -> tuple[int, Sequence[int]]:
        """Read in each round, when the monotonic clock shows `at_ns` or at the next tick.

        Return how many rounds were whole, and their counters, round after round. They are fewer than asked
        for when an answer is not as expected, or none came because a signal ended the wait.
        """
        whole = self._batch.run(at_ns)
        return whole, self._rounds[whole].unpack_from(self._batch.buffer)

    def read(self) -> tuple[int, ...]:
        """Return the readers' values, one reader's after the other's, of a batch of one round.

        LabError when an answer is not as expected.
        """
        whole, counters = self.take()
        if not whole:
            raise LabError(CHANGED)
        return self._reorder((*counters, 0))


def reading(readers: Sequence[QueueReader]) -> Callable[[], tuple[int, ...]]:
    """Return what reads all queues: in one batch, or each by itself where there is no io_uring."""
    try:
        return BatchReader(readers).read
    except NoUring:
        return lambda: tuple(value for reader in readers for value in reader.read())
