"""Which processor a guest gets. The processes are real, the machine's processors described."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from testbed.lab import processors
from testbed.lab.processors import goes_first, processor_of_its_own


@pytest.fixture
def sleeper() -> Iterator[int]:
    process = subprocess.Popen(["sleep", "60"])
    yield process.pid
    process.kill()
    process.wait()


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, set[int]]]:
    """What was bound where, on a machine whose processors have numbers that no real one has."""
    calls: list[tuple[int, set[int]]] = []
    monkeypatch.setattr(processors.os, "sched_getaffinity", lambda _pid: {90_000, 90_001})
    monkeypatch.setattr(processors.os, "sched_setaffinity", lambda pid, where: calls.append((pid, where)))
    return calls


def test_two_guests_are_never_on_the_same_processor(bound: list[tuple[int, set[int]]]) -> None:
    with (
        processor_of_its_own(11) as first,
        processor_of_its_own(12) as second,
        processor_of_its_own(13) as third,
    ):
        assert (first, second, third) == (90_001, 90_000, None)
    assert bound == [(11, {90_001}), (12, {90_000})]


def test_a_processor_is_free_again_after_the_run(bound: list[tuple[int, set[int]]]) -> None:
    for _ in range(2):
        with processor_of_its_own(11) as number:
            assert number == 90_001
    assert bound == [(11, {90_001})] * 2


def test_the_only_processor_is_left_to_all(
    bound: list[tuple[int, set[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processors.os, "sched_getaffinity", lambda _pid: {90_000})
    with processor_of_its_own(11) as number:
        assert number is None
    assert bound == []


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="announced: this machine has one processor")
def test_a_real_process_stays_where_it_is_bound(sleeper: int) -> None:
    with processor_of_its_own(sleeper) as number:
        expected = os.sched_getaffinity(0) if number is None else {number}
        assert os.sched_getaffinity(sleeper) == expected


def test_a_process_that_has_ended_is_no_error(
    bound: list[tuple[int, set[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_pid: int, _where: set[int]) -> None:
        raise ProcessLookupError

    monkeypatch.setattr(processors.os, "sched_setaffinity", gone)
    with processor_of_its_own(11) as number:
        assert number is None


def test_what_goes_first_has_a_real_time_priority_or_is_left_as_it_was(sleeper: int) -> None:
    first = goes_first(sleeper)
    assert os.sched_getscheduler(sleeper) == (os.SCHED_FIFO if first else os.SCHED_OTHER)
    assert first == (os.geteuid() == 0 and len(os.sched_getaffinity(0)) > 1)


def test_with_one_processor_nothing_goes_first(sleeper: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors.os, "sched_getaffinity", lambda _pid: {0})
    assert goes_first(sleeper) is False
    assert os.sched_getscheduler(sleeper) == os.SCHED_OTHER
