"""The probe: what it does with samples and progress, and the moments of sampling."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import LabError
from testbed.lab.uring import NoUring
from testbed.run import probe
from testbed.run.probe import Probe, _after
from testbed.run.rows import RowFile, SampleFiles
from testbed.run.sampler import Taken

DONE = struct.pack("=IHHIIi", 20, 3, 2, 1, 0, 0)


# ---- samples --------------------------------------------------------------------------


def taken(times: Sequence[int], *values: int, whole: bool = True) -> Taken:
    return Taken(times, struct.pack(f"={len(values)}Q", *values), whole)


class Takes:
    """A sampler whose samples are there already; the run is to stop after the last."""

    most = 5

    def __init__(self, taken: Sequence[Taken]) -> None:
        self.left = list(taken)
        self.asked: list[list[int]] = []

    def take(self, moments: Sequence[int]) -> Taken:
        self.asked.append(list(moments))
        return self.left.pop(0)


def probing(tmp_path: Path, taken: Sequence[Taken]) -> Any:
    made: Any = Probe.__new__(Probe)
    made._sampler, made._stop = Takes(taken), False
    made._samples = SampleFiles([(tmp_path / "rows", [(0, "Q")])], 8)
    return made


def rows(tmp_path: Path, made: Any) -> list[int]:
    made._samples.close()
    data = (tmp_path / "rows").read_bytes()
    return list(struct.unpack(f"<{len(data) // 8}q", data))


def test_samples_are_kept_with_their_times_after_the_epoch(tmp_path: Path) -> None:
    made = probing(tmp_path, [taken([1020, 1041], 7, 8)])
    assert made._sample([1020, 1040], 1000) == [1020, 1041]
    assert rows(tmp_path, made) == [20, 7, 41, 8]


@pytest.mark.parametrize("stopped", [True, False])
def test_what_came_before_the_end_is_kept_and_a_change_is_an_error(tmp_path: Path, stopped: bool) -> None:
    made = probing(tmp_path, [taken([1020], 7, whole=False)])
    made._stop = stopped
    if stopped:
        assert made._sample([1020, 1040], 1000) == [1020]
    else:
        with pytest.raises(LabError, match=r"^the queues of the lab changed during the run$"):
            made._sample([1020, 1040], 1000)
    assert rows(tmp_path, made) == [20, 7]


class Measure:
    interval_ns, progress_ns = 20, 100


class Planned:
    measure, clock = Measure, "real"


def test_the_moments_of_samples_and_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All moments up to the next progress are asked for at once; what comes late is left out."""
    made = probing(
        tmp_path,
        [
            taken([981, 1001, 1021, 1041, 1061], 1, 1, 1, 1, 1),
            taken([1081], 1),
            taken([1145], 1),  # late: two moments have passed
            taken([1160, 1180, 1205], 1, 1, 1),
            taken([], whole=False),
        ],
    )
    progress: list[int] = []
    made._plan = Planned
    made._sample_progress = progress.append
    made._finish = lambda: progress.append(-1)
    take = made._sampler.take

    def taking(moments: Sequence[int]) -> Taken:
        made._stop = len(made._sampler.left) == 1
        return take(moments)

    made._sampler.take = taking
    monkeypatch.setattr(probe.signal, "signal", lambda *_how: None)
    monkeypatch.setattr(probe.time, "monotonic_ns", lambda: 1234)
    made.run(1000)
    assert made._sampler.asked == [
        [980, 1000, 1020, 1040, 1060],
        [1080, 1100],
        [1100],
        [1160, 1180, 1200],
        [1220, 1240, 1260, 1280, 1300],
    ]
    assert progress == [145, 205, 234, -1]
    assert rows(tmp_path, made)[::2] == [-19, 1, 21, 41, 61, 81, 145, 160, 180, 205]


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
