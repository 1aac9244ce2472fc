"""Forked programs: how they begin, how their end is told, and what their parent makes of silence."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.errors import DeadlineError, LabError
from testbed.lab.system import wait_until
from testbed.run import programs
from testbed.run.programs import Child, Program, spawn


def started(program: Program, folder: Path) -> Child:
    return spawn("worker", program, folder)


def test_a_program_is_started_told_the_epoch_and_ends(tmp_path: Path) -> None:
    def program(ready: Callable[[], None], epoch: Callable[[], int]) -> None:
        os.write(1, b"set up\n")
        ready()
        (tmp_path / "epoch").write_text(str(epoch()))

    child = started(program, tmp_path)
    child.wait_ready()
    assert not child.ended()
    child.go(2**40 + 5)
    wait_until(child.ended, 10, "the child")
    assert (tmp_path / "epoch").read_text() == str(2**40 + 5)
    assert (tmp_path / "worker.log").read_text() == "set up\n"


@pytest.mark.parametrize("files", [None, 300, 400])
def test_a_program_has_the_descriptors_it_needs(tmp_path: Path, files: int | None) -> None:
    def program(ready: Callable[[], None], epoch: Callable[[], int]) -> None:
        (tmp_path / "limit").write_text(str(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
        ready()

    child = spawn("worker", program, tmp_path, files=files)
    child.wait_ready()
    wait_until(child.ended, 10, "the child")
    expected = files or resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert (tmp_path / "limit").read_text() == str(expected)


def test_a_program_that_does_not_start_is_named_with_its_log(tmp_path: Path) -> None:
    def program(ready: Callable[[], None], epoch: Callable[[], int]) -> None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - pytest's own is not descriptor 2
        raise LabError("no socket")

    child = started(program, tmp_path)
    with pytest.raises(LabError, match=r"^worker did not start: no socket; see logs/worker\.log$"):
        child.wait_ready()
    os.waitpid(child.pid, 0)
    assert "testbed.errors.LabError: no socket" in (tmp_path / "worker.log").read_text()


def test_a_program_that_fails_is_an_error(tmp_path: Path) -> None:
    def program(ready: Callable[[], None], epoch: Callable[[], int]) -> None:
        ready()
        raise OSError("no\nroom")

    child = started(program, tmp_path)
    child.wait_ready()
    with pytest.raises(
        LabError, match=r"^worker failed with status 1: OSError: no room; see logs/worker\.log$"
    ):
        wait_until(child.ended, 10, "the child")


def test_a_program_that_dies_between_ready_and_start_is_an_error(tmp_path: Path) -> None:
    def program(ready: Callable[[], None], epoch: Callable[[], int]) -> None:
        ready()
        os.kill(os.getpid(), signal.SIGKILL)

    child = started(program, tmp_path)
    child.wait_ready()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    child.go(2**40)
    with pytest.raises(LabError, match=r"^worker was killed by SIGKILL; see logs/worker\.log$"):
        child.ended()


def test_a_program_is_asked_to_finish(tmp_path: Path) -> None:
    def program(ready: Callable[[], None], epoch: Callable[[], int]) -> None:
        asked: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
        ready()
        while not asked:
            time.sleep(0.01)

    child = started(program, tmp_path)
    child.wait_ready()
    child.stop()


def test_a_program_that_dies_when_asked_is_an_error(tmp_path: Path) -> None:
    def program(ready: Callable[[], None], epoch: Callable[[], int]) -> None:
        ready()
        time.sleep(60)

    child = started(program, tmp_path)
    child.wait_ready()
    with pytest.raises(LabError, match=r"^worker was killed by SIGTERM; see logs/worker\.log$"):
        child.stop()


def test_a_program_that_never_says_ready_is_named_with_its_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "READY_TIMEOUT_S", 0.2)

    def program(ready: Callable[[], None], epoch: Callable[[], int]) -> None:
        time.sleep(60)

    child = spawn("traffic", program, tmp_path, "receivers on d1, senders on p1, p2")
    begun = time.monotonic()
    with pytest.raises(DeadlineError) as caught:
        child.wait_ready()
    assert time.monotonic() - begun < 5
    assert str(caught.value) == (
        "traffic (receivers on d1, senders on p1, p2) was not ready after 0.2 s; see logs/traffic.log"
    )
    os.kill(child.pid, signal.SIGKILL)
    os.waitpid(child.pid, 0)


def test_a_program_whose_log_cannot_be_written_ends_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "worker.log").symlink_to("/dev/full")

    def program(ready: Callable[[], None], epoch: Callable[[], int]) -> None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - pytest's own is not descriptor 2
        ready()
        raise LabError("no socket")

    child = spawn("worker", program, tmp_path)
    child.wait_ready()
    with pytest.raises(LabError, match=r"^worker failed with status 1: no socket; see logs/worker\.log$"):
        wait_until(child.ended, 10, "the child")


def test_a_program_that_cannot_even_have_a_log_says_so(tmp_path: Path) -> None:
    child = spawn("worker", lambda ready, epoch: None, tmp_path / "nowhere")
    with pytest.raises(LabError, match=r"^worker did not start: FileNotFoundError: \[Errno 2\] No such file"):
        child.wait_ready()
    os.waitpid(child.pid, 0)
