"""Reading queues out of captured dumps, row files, and the moments of sampling."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import LabError
from testbed.lab.netlink import qdisc_dump_request
from testbed.lab.uring import Exchange, NoUring
from testbed.record import layout
from testbed.run import probe
from testbed.run.probe import Probe, QueueReader, RowFile, _after
from tests.support.lab import FakeNetlink, captured, datagrams

DONE = struct.pack("=IHHIIi", 20, 3, 2, 1, 0, 0)
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

    whole = True
    moments: ClassVar[list[int]] = []

    def __init__(self, exchanges: list[Exchange], *, timed: bool, stamp: object | None) -> None:
        self.timed, self.stamped = timed, stamp is not None
        self.places: list[tuple[int, ...]] = []
        answers = b""
        for _ in exchanges:
            self.places.append((len(answers), len(answers) + len(LATER[0])))
            answers += b"".join(LATER)
        self.buffer = memoryview(answers)

    def run(self, at_ns: int = 0) -> bool:
        self.moments.append(at_ns)
        return self.whole


def two_readers(monkeypatch: pytest.MonkeyPatch) -> list[QueueReader]:
    monkeypatch.setattr(probe, "Batch", FakeBatch)
    monkeypatch.setattr(FakeBatch, "moments", [])
    monkeypatch.setattr(FakeNetlink, "fileno", lambda _self: 0)
    return [
        reader_of(FakeNetlink(LATER), "htb", links("leaf2-d1", "leaf1-spine2")),
        reader_of(FakeNetlink(LATER), "red", links(*PORTS)),
    ]


def test_a_batch_reads_what_its_readers_read(monkeypatch: pytest.MonkeyPatch) -> None:
    readers = two_readers(monkeypatch)
    values = probe.BatchReader(readers).read()
    assert values == readers[0].read() + readers[1].read()
    assert len(values) == 5 * (2 + len(PORTS))


def test_a_batch_whose_answers_have_changed_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = probe.BatchReader(two_readers(monkeypatch))
    monkeypatch.setattr(FakeBatch, "whole", False)
    with pytest.raises(LabError, match=r"^the queues of the lab changed during the run$"):
        reader.read()


def test_without_io_uring_each_reader_reads_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    readers = two_readers(monkeypatch)

    def refused(_exchanges: object, **how: object) -> None:
        raise NoUring(f"Operation not permitted, however: {how}")

    monkeypatch.setattr(probe, "Batch", refused)
    assert probe.reading(readers)() == readers[0].read() + readers[1].read()


class FakeStamp:
    """The time at which a batch always came to it, or of which nothing is known."""

    time_ns: int | None = 1250

    def moment_ns(self) -> int:
        if self.time_ns is None:
            raise NoUring("no stamp")
        return self.time_ns


def test_in_virtual_time_the_batch_waits_reads_and_takes_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    readers = two_readers(monkeypatch)
    monkeypatch.setattr(probe, "Stamp", FakeStamp)
    monkeypatch.setattr(probe, "sleep_until_ns", lambda moment_ns: pytest.fail(f"slept until {moment_ns}"))
    monkeypatch.setattr(probe.time, "monotonic_ns", lambda: pytest.fail("read the clock"))
    assert probe.reading_at(readers, "virtual")(1234) == (1250, readers[0].read() + readers[1].read())
    assert FakeBatch.moments == [0, 1234]  # whether it can wait was tried once


def test_with_the_real_clock_the_time_is_taken_after_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    readers = two_readers(monkeypatch)
    monkeypatch.setattr(probe, "Stamp", lambda: pytest.fail("asked for a stamp"))
    monkeypatch.setattr(probe.time, "monotonic_ns", lambda: 1260 if FakeBatch.moments[1:] else 0)
    assert probe.reading_at(readers, "real")(1234) == (1260, readers[0].read() + readers[1].read())
    assert FakeBatch.moments == [0, 1234]


@pytest.mark.parametrize("lacking", ["a wait", "a stamp"])
def test_where_a_batch_cannot_wait_or_stamp_the_program_does(
    monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    readers = two_readers(monkeypatch)
    slept: list[int] = []
    monkeypatch.setattr(probe, "Stamp", FakeStamp)
    if lacking == "a wait":
        monkeypatch.setattr(FakeBatch, "run", lambda self, at_ns=0: not self.timed)
    else:
        monkeypatch.setattr(FakeStamp, "time_ns", None)
    monkeypatch.setattr(probe, "sleep_until_ns", slept.append)
    monkeypatch.setattr(probe.time, "monotonic_ns", lambda: 1270 if slept else 0)
    assert probe.reading_at(readers, "virtual")(1234) == (1270, readers[0].read() + readers[1].read())
    assert slept == [1234]


@pytest.mark.parametrize("stopped", [True, False])
def test_no_answer_ends_the_sampling_only_when_it_was_to_end(stopped: bool) -> None:
    def unanswered(_at_ns: int) -> tuple[int, tuple[int, ...]]:
        raise LabError(probe.CHANGED)

    waiting = probe.Probe.__new__(probe.Probe)
    waiting._read, waiting._stop = unanswered, stopped
    if stopped:
        assert waiting._sample_at(1) is None
    else:
        with pytest.raises(LabError, match=probe.CHANGED):
            waiting._sample_at(1)


# ---- progress -------------------------------------------------------------------------

MORE = struct.pack("=IHHIIi", 20, 20, 2, 1, 0, 0)


class FakeQuestions:
    """Answers that are there already, one list of datagrams for each question."""

    def __init__(self, questions: list[tuple[int, bytes]]) -> None:
        self.asked = questions

    def run(self) -> list[list[tuple[memoryview, int]]]:
        return [[(memoryview(each), len(each)) for each in answer] for answer in self.answers]

    answers: ClassVar[list[list[bytes]]] = []


class Dumps:
    """A socket with the datagrams that a batch left to be received."""

    def __init__(self, left: list[bytes]) -> None:
        self.left = left

    def fileno(self) -> int:
        return 0

    def answer(self) -> Iterator[tuple[memoryview, int]]:
        while self.left:
            yield memoryview(each := self.left.pop(0)), len(each)

    def request(self, _message: bytes) -> Iterator[tuple[memoryview, int]]:
        return self.answer()


def progress(monkeypatch: pytest.MonkeyPatch, *dumps: Dumps) -> list[bytes]:
    """What is read of some sockets: the datagrams, in order."""
    seen: list[bytes] = []
    monkeypatch.setattr(
        probe.Received, "read", lambda _self, view, length: seen.append(bytes(view[:length])) or []
    )
    assert list(probe.ProgressReader(dumps).read()) == []  # type: ignore[arg-type]
    return seen


def test_what_a_batch_has_not_received_of_an_answer_is_received_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "Questions", FakeQuestions)
    monkeypatch.setattr(FakeQuestions, "answers", [[MORE, DONE], [MORE, MORE], [MORE + DONE], []])
    others = [Dumps([]), Dumps([MORE + MORE, DONE]), Dumps([]), Dumps([DONE])]
    assert progress(monkeypatch, *others) == [
        *(MORE, DONE),
        *(MORE, MORE, MORE + MORE, DONE),
        MORE + DONE,
        DONE,
    ]
    assert [other.left for other in others] == [[]] * 4


def test_without_io_uring_each_socket_is_asked_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_questions: object) -> None:
        raise NoUring("Operation not permitted")

    monkeypatch.setattr(probe, "Questions", refused)
    assert progress(monkeypatch, Dumps([MORE, DONE]), Dumps([DONE])) == [MORE, DONE, DONE]


# ---- rows -----------------------------------------------------------------------------


def test_rows_are_little_endian_int64(tmp_path: Path) -> None:
    rows = RowFile(tmp_path / "rows")
    rows.add((-20_000, 1, 2))
    rows.add((0, 2**62, 3))
    rows.close()
    assert rows.rows == 2
    assert (tmp_path / "rows").read_bytes() == struct.pack("<6q", -20_000, 1, 2, 0, 2**62, 3)


@pytest.mark.parametrize(("width", "kept"), [(1, 256), (3, 256), (1024, 64)])
def test_no_more_rows_are_kept_than_may_be_lost(tmp_path: Path, width: int, kept: int) -> None:
    rows = RowFile(tmp_path / "rows")
    for _ in range(kept - 1):
        rows.add((1,) * width)
    assert (tmp_path / "rows").stat().st_size == 0
    rows.add((1,) * width)
    assert (tmp_path / "rows").stat().st_size == 8 * width * kept
    rows.add((1,) * width)
    rows.close()
    assert (tmp_path / "rows").stat().st_size == 8 * width * (kept + 1)


@pytest.mark.parametrize(
    ("now", "following"), [(100, 120), (101, 120), (119, 120), (120, 140), (1000, 1020), (1001, 1020)]
)
def test_the_next_moment_of_a_series(now: int, following: int) -> None:
    assert _after(100, 20, now) == following


@given(st.integers(-(10**12), 10**12), st.integers(1, 10**9), st.integers(0, 10**12))
def test_the_next_moment_is_the_first_later_one_on_the_grid(moment: int, step: int, late: int) -> None:
    now = moment + late
    following = _after(moment, step, now)
    assert (following - moment) % step == 0
    assert now < following <= now + step


def test_progress_is_noted_once_for_each_number_of_bytes(tmp_path: Path) -> None:
    probing = object.__new__(Probe)
    probing._seen = {}
    probing._progress_file = RowFile(tmp_path / "progress")
    for moment, transfer, received in [
        (10, 0, 0),  # connected, nothing has arrived
        (20, 0, 5),
        (20, None, 9),  # a socket that is no transfer's
        (30, 0, 5),
        (30, 1, 5),
        (40, 0, 7),
    ]:
        probing._note_progress(moment, transfer, received)
    probing._progress_file.close()
    assert (tmp_path / "progress").read_bytes() == struct.pack("<9q", 20, 0, 5, 30, 1, 5, 40, 0, 7)
