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
from testbed.run.rows import Place

CHANGED = "the queues of the lab changed during the run"

_GAP_BYTES = 64
"""Counters of one queue are no further apart."""

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
        self.places: list[list[Place]] = []
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


def _struct(places: Iterable[Place]) -> struct.Struct:
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
    """Reads what several readers read, with one system call. NoUring where it cannot.

    One that is `timed` waits for the moment of its reading in that call; with `ticks` it reads in `rounds`,
    each at the next of them; a `stamp` takes the time in each. A round's counters are taken as `size` bytes:
    `columns` says where among them each link's are, in the order of the readers' names and of SAMPLE_FIELDS.
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
        places: list[Place] = []
        order: list[int | None] = []
        for reader, starts in zip(readers, self._batch.places[: len(readers)], strict=True):
            order += [None if position is None else len(places) + position for position in reader.order]
            for start, own in zip(starts, reader.places, strict=True):
                places += [(start + offset, letter) for offset, letter in own]
        self._struct = _struct(places)
        self._reorder = _reordering(order, len(places))
        pieces, moved = _pieces(places)
        self.size = sum(end - start for start, end in pieces)
        self.columns = [None if position is None else moved[position] for position in order]
        self._views = [
            self._batch.buffer[base + start : base + end]
            for base in range(0, rounds * self._batch.size, self._batch.size)
            for start, end in pieces
        ]
        if ticks:
            ticks.start(1, 1)
        if (timed or ticks) and self._batch.run() < rounds:
            raise NoUring("this kernel's io_uring does not wait for a moment")

    def take(self, at_ns: int = 0) -> tuple[int, bytes]:
        """Read in each round, when the monotonic clock shows `at_ns` or at the next tick.

        Return how many rounds were whole, and their counters, round after round. They are fewer than asked
        for when an answer is not as expected, or none came because a signal ended the wait.
        """
        whole = self._batch.run(at_ns)
        if whole == self.rounds:
            return whole, b"".join(self._views)
        return whole, b"".join(self._views[: whole * (len(self._views) // self.rounds)])

    def read(self) -> tuple[int, ...]:
        """Return the readers' values, one reader's after the other's, of a batch of one round.

        LabError when an answer is not as expected.
        """
        if not self._batch.run():
            raise LabError(CHANGED)
        return self._reorder((*self._struct.unpack_from(self._batch.buffer), 0))


def _pieces(places: Iterable[Place]) -> tuple[list[tuple[int, int]], list[Place]]:
    """Return the stretches (start, end) of a buffer with all counters in it, at rising places, and where the
    counters are when the stretches stand one after the other.

    Those of one queue stand close together, those of two far apart.
    """
    pieces: list[tuple[int, int]] = []
    moved: list[Place] = []
    taken = 0
    for offset, letter in places:
        length = struct.calcsize("=" + letter)
        if pieces and offset - pieces[-1][1] <= _GAP_BYTES:
            start, last = pieces[-1]
            taken += offset - last
            pieces[-1] = (start, offset + length)
        else:
            pieces.append((offset, offset + length))
        moved.append((taken, letter))
        taken += length
    return pieces, moved


def reading(readers: Sequence[QueueReader]) -> Callable[[], tuple[int, ...]]:
    """Return what reads all queues: in one batch, or each by itself where there is no io_uring."""
    try:
        return BatchReader(readers).read
    except NoUring:
        return lambda: tuple(value for reader in readers for value in reader.read())
