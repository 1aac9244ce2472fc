"""The signals that end the program: raised once, held, heard, never lost, and nothing left of a folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed import signals
from testbed.signals import ENDING, Aborted, heard, held, obey, scratch_folder, termination


def ended(body: Callable[[], None]) -> Aborted:
    """Run `body` where signals are obeyed and return how it was ended."""

    def within() -> None:
        with termination():
            body()

    with pytest.raises(Aborted) as caught:
        within()
    return caught.value


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_raises_and_the_handlers_come_back(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in ENDING]
    assert ended(lambda: signal.raise_signal(number)).number == number
    assert [signal.getsignal(each) for each in ENDING] == before
    assert signals._state == signals._State()


def test_what_follows_the_first_does_not_disturb_the_clearing_away() -> None:
    cleared = []

    def body() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGINT)
            cleared.append("all of it")

    assert (ended(body).number, cleared) == (signal.SIGTERM, ["all of it"])


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with termination():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_at_the_programs_very_end_a_signal_changes_nothing() -> None:
    before = {number: signal.getsignal(number) for number in ENDING}
    try:
        with termination(last=True):
            pass
        signal.raise_signal(signal.SIGTERM)
        assert {signal.getsignal(number) for number in ENDING} == {signal.SIG_IGN}
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_held_signal_waits_for_the_end_of_the_block() -> None:
    done = []

    def body() -> None:
        with held():
            with held():
                signal.raise_signal(signal.SIGTERM)
            done.append("inner")
            done.append("outer")
        done.append("after")

    ended(body)
    assert done == ["inner", "outer"]


def test_a_held_signal_is_obeyed_though_the_block_fails() -> None:
    def body() -> None:
        with held():
            signal.raise_signal(signal.SIGTERM)
            raise ValueError("another end")

    assert isinstance(ended(body).__context__, ValueError)


def test_a_signal_is_heard_within_what_is_held() -> None:
    done = []

    def body() -> None:
        with held():
            try:
                with heard():
                    signal.raise_signal(signal.SIGTERM)
                    done.append("never")
            finally:
                done.append("cleared")

    ended(body)
    assert done == ["cleared"]


def test_what_waited_is_raised_where_it_is_heard_or_asked_for() -> None:
    with termination(), held():
        obey()
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Aborted), heard():
            raise AssertionError("not reached")
    with termination(), held():
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Aborted):
            obey()


def test_another_thread_has_no_say() -> None:
    seen = []

    def other() -> None:
        with termination(), held(), heard():
            seen.append(signals._state.installed or signals._state.holding)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [False]


class _Dying:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)
        sum(range(10))  # the handler runs in here, from where nothing can be raised


def test_an_exception_lost_in_a_destructor_is_raised_again() -> None:
    def body() -> None:
        dying = _Dying()
        del dying
        time.sleep(10)

    assert ended(body).number == signal.SIGTERM


def test_what_else_is_lost_is_told_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def __del__(self) -> None:
            raise ValueError("in a destructor")

    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: told.append(lost.exc_type))
    with termination():
        failing = Failing()
        del failing
    assert told == [ValueError]


def test_a_scratch_folder_is_gone_whatever_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = []

    def body() -> None:
        with scratch_folder("x") as folder:
            (folder / "file").touch()
            seen.extend(path.name[:10] for path in tmp_path.iterdir())
            signal.raise_signal(signal.SIGTERM)

    ended(body)
    assert seen == ["testbed-x-"]
    assert list(tmp_path.iterdir()) == []


LOOP = """
import sys
from testbed.signals import Aborted, scratch_folder, termination
with termination():
    try:
        print(flush=True)
        while True:
            with scratch_folder("loop") as folder:
                (folder / "file").touch()
    except Aborted as error:
        sys.exit(128 + error.number)
"""


@pytest.mark.parametrize("turn", range(5))
def test_no_moment_leaves_a_scratch_folder(tmp_path: Path, turn: int) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", LOOP], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.02 + 0.0037 * turn)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)
    assert process.returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
