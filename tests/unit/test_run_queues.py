"""Reading queues out of captured dumps, one by one and in batches."""

from __future__ import annotations

import struct
from typing import ClassVar

import pytest

from testbed.errors import LabError
from testbed.lab.netlink import qdisc_dump_request
from testbed.lab.uring import Exchange, NoUring, Ticks
from testbed.record import layout
from testbed.run import queues
from testbed.run.queues import BatchReader, QueueReader
from tests.support.lab import FakeNetlink, captured, datagrams

LATER = datagrams("later-dump")
PORTS = captured("tc-class-devices.json")


def links(*names: str) -> dict[int, str]:
    index = captured("interfaces.json")
    return {index[name]: name for name in names}


def reader_of(netlink: FakeNetlink, kind: str, names: dict[int, str]) -> QueueReader:
    return QueueReader(netlink, kind, names, qdisc_dump_request())


def shown(name: str, kind: str = "red") -> tuple[int, ...]:
    """The values of a queue in `tc`'s words, in the order of SAMPLE_FIELDS."""
    queue = next(
        item for item in captured("tc-qdisc-later.json") if (item["dev"], item["kind"]) == (name, kind)
    )
    keys = ("backlog", "bytes", "packets", "drops", "marked")
    return tuple(queue.get(key, 0) for key in keys)


def test_every_queue_is_read_with_its_own_values() -> None:
    reader = reader_of(FakeNetlink(LATER), "red", links(*PORTS))
    values = reader.read()
    assert sorted(reader.names) == sorted(PORTS)
    width = len(layout.SAMPLE_FIELDS)
    for number, name in enumerate(reader.names):
        assert values[number * width : (number + 1) * width] == shown(name)
    assert len(values) == width * len(PORTS)


def test_the_first_dump_of_a_socket_is_not_the_pattern_for_later_ones() -> None:
    reader = reader_of(FakeNetlink(datagrams("first-dump"), LATER), "red", links("leaf2-d1"))
    assert reader.read() == shown("leaf2-d1")


def test_a_queue_that_does_not_mark_reads_zero_marks() -> None:
    reader = reader_of(FakeNetlink(LATER), "htb", links("leaf2-d1", "leaf1-spine2"))
    assert reader.names == ["leaf2-d1", "leaf1-spine2"]
    assert reader.read() == (*shown("leaf2-d1", "htb"), *shown("leaf1-spine2", "htb"))
    assert reader.read()[4::5] == (0, 0)


def test_a_dump_in_several_datagrams() -> None:
    pieces = datagrams("first-dump")
    names = ["leaf1-p1", "spine2-leaf2"]
    reader = reader_of(FakeNetlink(pieces), "red", links(*names))
    assert reader.names == names
    assert reader.read() == (0,) * 10


def test_an_interface_without_the_queue_is_named() -> None:
    with pytest.raises(LabError) as caught:
        reader_of(FakeNetlink(LATER), "bfifo", links("leaf2-d1", "leaf1-p1"))
    assert str(caught.value) == "no bfifo queue on leaf1-p1, leaf2-d1"


@pytest.mark.parametrize(
    "changed",
    [[LATER[0][:-4], LATER[1]], [LATER[0], LATER[1], LATER[1]]],
    ids=["another length", "another datagram"],
)
def test_queues_that_change_during_a_run_end_it(changed: list[bytes]) -> None:
    netlink = FakeNetlink(LATER)
    reader = reader_of(netlink, "red", links("leaf2-d1"))
    netlink.dumps = [changed]
    with pytest.raises(LabError, match=r"^the queues of the lab changed during the run$"):
        reader.read()


def test_a_dump_that_ends_early_ends_the_run() -> None:
    netlink = FakeNetlink(datagrams("first-dump"))
    reader = reader_of(netlink, "red", links(*PORTS))
    netlink.dumps = [datagrams("first-dump")[:1]]
    with pytest.raises(LabError, match=r"^the queues of the lab changed during the run$"):
        reader.read()


class FakeBatch:
    """A batch whose answers are there already: those of `later`, one exchange after the other."""

    whole = 8
    moments: ClassVar[list[int]] = []

    def __init__(self, exchanges: list[Exchange], *, rounds: int, **_how: object) -> None:
        self.rounds = rounds
        answers = b"".join(LATER)
        self.size = len(exchanges) * len(answers)
        starts = range(0, rounds * self.size, len(answers))
        self.places = [(start, start + len(LATER[0])) for start in starts]
        self.buffer = memoryview(answers * len(exchanges) * rounds)

    def run(self, at_ns: int = 0) -> int:
        self.moments.append(at_ns)
        return min(self.whole, self.rounds)


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> list[QueueReader]:
    monkeypatch.setattr(queues, "Batch", FakeBatch)
    monkeypatch.setattr(FakeBatch, "moments", [])
    monkeypatch.setattr(FakeNetlink, "fileno", lambda _self: 0)
    return [
        reader_of(FakeNetlink(LATER), "htb", links("leaf2-d1", "leaf1-spine2")),
        reader_of(FakeNetlink(LATER), "red", links(*PORTS)),
    ]


def taken(reader: BatchReader, counters: bytes) -> list[int]:
    """The values of a round, by its columns."""
    return [
        0 if place is None else struct.unpack_from("=" + place[1], counters, place[0])[0]
        for place in reader.columns
    ]


def test_a_batch_reads_what_its_readers_read(two: list[QueueReader]) -> None:
    values = BatchReader(two).read()
    assert values == two[0].read() + two[1].read()
    assert len(values) == 5 * (2 + len(PORTS))


def test_a_batch_whose_answers_have_changed_ends_the_run(
    two: list[QueueReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = BatchReader(two)
    monkeypatch.setattr(FakeBatch, "whole", 0)
    with pytest.raises(LabError, match=r"^the queues of the lab changed during the run$"):
        reader.read()


def test_a_timed_batch_reads_at_its_moment(two: list[QueueReader]) -> None:
    reader = BatchReader(two, timed=True)
    whole, counters = reader.take(1234)
    assert (whole, len(counters)) == (1, reader.size)
    assert tuple(taken(reader, counters)) == two[0].read() + two[1].read()
    assert FakeBatch.moments == [0, 1234]  # whether it can wait was tried once


@pytest.mark.parametrize("whole", range(4))
def test_a_batch_of_rounds_returns_those_that_are_whole(
    two: list[QueueReader], whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = Ticks()
    reader = BatchReader(two, ticks=ticks, rounds=3)
    monkeypatch.setattr(FakeBatch, "whole", whole)
    found, counters = reader.take()
    assert (found, len(counters)) == (whole, whole * reader.size)
    for number in range(whole):
        own = counters[number * reader.size : (number + 1) * reader.size]
        assert tuple(taken(reader, own)) == two[0].read() + two[1].read()


def test_little_more_than_the_counters_is_taken(two: list[QueueReader]) -> None:
    reader = BatchReader(two)
    assert all(place is None or place[0] % 4 == 0 for place in reader.columns)
    queues_read = 2 + len(PORTS)
    assert reader.size < 80 * queues_read < sum(map(len, LATER))


@pytest.mark.parametrize("how", [{"timed": True}, {"ticks": Ticks(), "rounds": 3}], ids=["timed", "ticks"])
def test_a_batch_that_cannot_wait_is_refused(
    two: list[QueueReader], how: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeBatch, "whole", 0)
    with pytest.raises(NoUring, match=r"^this kernel's io_uring does not wait for a moment$"):
        BatchReader(two, **how)  # type: ignore[arg-type]


def test_without_io_uring_each_reader_reads_for_itself(
    two: list[QueueReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_exchanges: object, **how: object) -> None:
        raise NoUring(f"Operation not permitted, however: {how}")

    monkeypatch.setattr(queues, "Batch", refused)
    assert queues.reading(two)() == two[0].read() + two[1].read()
