"""Running commands, waiting, and sleeping to a moment."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from testbed.errors import DeadlineError, LabError
from testbed.lab.system import go_first, network_namespace, run, wait_until
from traffic.exact_time import sleep_until_ns


def test_a_command_gives_its_output_and_gets_its_input() -> None:
    assert run(["cat"], stdin="one\ntwo\n") == "one\ntwo\n"
    assert run(["echo", "$HOME; ls"]) == "$HOME; ls\n"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import sys; print('out'); sys.stderr.write('one\\ntwo\\n'); sys.exit(3)", "one; two"),
        ("import sys; print('only this'); sys.exit(3)", "only this"),
    ],
)
def test_a_failing_command_is_an_error_with_status_and_words(script: str, said: str) -> None:
    command = [sys.executable, "-c", script]
    with pytest.raises(LabError) as caught:
        run(command)
    assert str(caught.value) == f"'{sys.executable} -c {script}' ended with status 3: {said}"


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(LabError, match=r"^no-such-program: No such file or directory$"):
        run(["no-such-program", "-v"])


def test_waiting_ends_with_the_condition() -> None:
    left = [False, False, True]
    wait_until(lambda: left.pop(0), 5, "nothing", step_s=0)
    assert left == []


def test_waiting_in_vain_says_for_what() -> None:
    with pytest.raises(DeadlineError, match=r"^waited 0\.02 s for the sky to fall$"):
        wait_until(lambda: False, 0.02, "the sky to fall", step_s=0.005)


def test_a_condition_that_holds_is_not_waited_for() -> None:
    wait_until(lambda: True, 0, "nothing")


def test_sleeping_to_a_moment() -> None:
    moment = time.monotonic_ns() + 20_000_000
    sleep_until_ns(moment)
    assert time.monotonic_ns() >= moment


def test_a_moment_that_has_passed_is_not_slept_for() -> None:
    before = time.monotonic_ns()
    sleep_until_ns(before - 1_000_000_000)
    assert time.monotonic_ns() - before < 1_000_000_000


def test_a_namespace_that_cannot_be_entered(tmp_path: Path) -> None:
    with (
        pytest.raises(LabError, match=f"^network namespace {tmp_path}/p1: No such file or directory$"),
        network_namespace(tmp_path / "p1"),
    ):
        pytest.fail("entered")


def test_a_file_that_is_no_namespace(tmp_path: Path) -> None:
    (tmp_path / "p1").touch()
    with (
        pytest.raises(LabError, match=f"^network namespace {tmp_path}/p1: Invalid argument$"),
        network_namespace(tmp_path / "p1"),
    ):
        pytest.fail("entered")


def test_going_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(os, "sched_setscheduler", lambda pid, policy, param: asked.append(policy))
    go_first()
    assert asked == [os.SCHED_FIFO]
