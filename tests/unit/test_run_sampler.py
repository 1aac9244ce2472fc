"""Taking samples at moments: several at once in virtual time, one by one where that cannot be."""

from __future__ import annotations

import struct
from typing import Any, ClassVar

import pytest

from testbed.errors import LabError
from testbed.lab.uring import NoUring
from testbed.run import sampler as module
from testbed.run.sampler import MOST_ROUNDS, Taken, sampler

INTERVAL_NS = 20
SIZE = 3


class FakeReader:
    """A queue's reader: what a sampler asks of it by itself."""

    lengths: ClassVar[list[int]] = [100, 20]
    order: ClassVar[list[int | None]] = [2, 0, 1, None, None]


COLUMNS = [(8, "Q"), (0, "I"), (4, "I"), None, None]


class FakeTicks:
    started: ClassVar[list[tuple[int, int]]] = []

    def start(self, first_ns: int, interval_ns: int) -> None:
        self.started.append((first_ns, interval_ns))


class FakeStamp:
    """The times at which the rounds of a batch always end."""

    lacking = False

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def moments_ns(self) -> list[int]:
        if self.lacking:
            raise NoUring("no stamp")
        return [1000 + number for number in range(self.rounds)]


class FakeBatch:
    """A batch reader of three bytes a round: `short` of its rounds never come."""

    made: ClassVar[list[dict[str, Any]]] = []
    asked: ClassVar[list[tuple[int, int]]] = []
    columns, size, short = COLUMNS, SIZE, 0

    def __init__(self, _readers: object, rounds: int = 1, **how: object) -> None:
        self.made.append(how | {"rounds": rounds})
        self.rounds = rounds

    def take(self, at_ns: int = 0) -> tuple[int, bytes]:
        self.asked.append((self.rounds, at_ns))
        whole = self.rounds - self.short
        return whole, bytes(range(whole * SIZE))


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BatchReader", FakeBatch)
    monkeypatch.setattr(module, "Stamp", FakeStamp)
    monkeypatch.setattr(module, "Ticks", FakeTicks)
    for name in ("made", "asked"):
        monkeypatch.setattr(FakeBatch, name, [])
    monkeypatch.setattr(FakeTicks, "started", [])


def taker(clock: str, rounds: int = 5, readers: int = 1) -> Any:
    return sampler([FakeReader()] * readers, clock, INTERVAL_NS, rounds)  # type: ignore[list-item]


def moments(count: int, first: int = 0) -> range:
    return range(first, first + count * INTERVAL_NS, INTERVAL_NS)


def test_in_virtual_time_several_samples_are_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "sleep_until_ns", lambda moment_ns: pytest.fail(f"slept until {moment_ns}"))
    monkeypatch.setattr(module.time, "monotonic_ns", lambda: pytest.fail("read the clock"))
    taking = taker("virtual")
    assert (taking.most, taking.columns, taking.size) == (5, COLUMNS, SIZE)
    assert taking.take(moments(5, -20)) == Taken([1000, 1001, 1002, 1003, 1004], bytes(range(15)))
    assert taking.take(moments(2, 80)) == Taken([1000], bytes(range(3)))  # fewer: by themselves
    assert taking.take(moments(1, 100)) == Taken([1000], bytes(range(3)))
    assert taking.take(moments(7, 120)) == Taken([1000, 1001, 1002, 1003, 1004], bytes(range(15)))
    assert FakeBatch.asked == [(5, 0), (1, 0), (1, 0), (5, 0)]
    assert FakeTicks.started == [(-20, INTERVAL_NS)]  # once, at the first moment


@pytest.mark.parametrize(
    ("rounds", "readers", "most"),
    [(0, 1, 1), (1, 1, 1), (5, 1, 5), (1000, 1, MOST_ROUNDS), (8, 300, 2), (8, 5000, 1)],
)
def test_how_many_samples_are_one_call(rounds: int, readers: int, most: int) -> None:
    assert taker("virtual", rounds, readers).most == most
    assert [made["rounds"] for made in FakeBatch.made] == sorted({1, most})


def test_samples_that_a_signal_cut_off_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    taking = taker("virtual")
    monkeypatch.setattr(FakeBatch, "short", 2)
    assert taking.take(moments(5)) == Taken([1000, 1001, 1002], bytes(range(9)), whole=False)
    monkeypatch.setattr(FakeBatch, "short", 1)
    assert taking.take(moments(1)) == Taken([], bytes(range(0)), whole=False)


def test_with_the_real_clock_the_time_is_taken_after_each_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "monotonic_ns", lambda: 1260 if FakeBatch.asked else 0)
    taking = taker("real")
    assert FakeBatch.made == [{"timed": True, "rounds": 1}]
    assert taking.most == 1
    assert taking.take(moments(5, 1234)) == Taken([1260], bytes(range(3)))
    assert FakeBatch.asked == [(1, 1234)]
    monkeypatch.setattr(FakeBatch, "short", 1)
    assert taking.take(moments(5, 1234)) == Taken([], bytes(range(0)), whole=False)


def refused(*_how: object, **_more: object) -> None:
    raise NoUring("Operation not permitted")


def test_without_io_uring_on_the_real_clock_the_program_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[int] = []
    monkeypatch.setattr(module, "BatchReader", refused)
    monkeypatch.setattr(module, "reading", lambda _readers: lambda: (6, 7, 8, 0, 0))
    monkeypatch.setattr(module, "sleep_until_ns", slept.append)
    monkeypatch.setattr(module.time, "monotonic_ns", lambda: 1270 if slept else 0)
    taking = taker("real")
    assert (taking.most, taking.size) == (1, 40)
    assert list(taking.columns) == [(8 * number, "Q") for number in range(5)]
    assert taking.take(moments(5, 1234)) == Taken([1270], struct.pack("=5Q", 6, 7, 8, 0, 0))
    assert slept == [1234]


@pytest.mark.parametrize(("lacking", "why"), [("stamp", "no stamp"), ("batch", "Operation not permitted")])
def test_the_labs_own_kernel_without_io_uring_is_an_error(
    monkeypatch: pytest.MonkeyPatch, lacking: str, why: str
) -> None:
    monkeypatch.setattr(FakeStamp, "lacking", lacking == "stamp")
    if lacking == "batch":
        monkeypatch.setattr(module, "BatchReader", refused)
    with pytest.raises(LabError, match=rf"^the lab's kernel cannot sample several times in one call: {why}$"):
        taker("virtual")
