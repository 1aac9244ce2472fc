"""The outside of `testbed shell`: who types, what passes through, and when the lab is held."""

from __future__ import annotations

import io
import os
import select
import subprocess
import termios
import time
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.errors import InputError
from testbed.lab.prompt_words import HERE
from testbed.run.shell import Follower, Relay, read_commands
from tests.support.command import state_of


class Stream(io.StringIO):
    def __init__(self, text: str = "", *, tty: bool = False) -> None:
        super().__init__(text)
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


# ---- who types ------------------------------------------------------------------------


def test_a_person_types_where_both_ends_are_a_terminal() -> None:
    assert read_commands(Stream(tty=True), Stream(tty=True)) is None


def test_commands_are_read_where_they_are_piped() -> None:
    assert read_commands(Stream("nodes\np1 ping d1\n"), Stream(tty=True)) == ["nodes", "p1 ping d1"]


@pytest.mark.parametrize(
    "keys", [Stream(""), Stream(" \n"), Stream(tty=True)], ids=["nothing", "blank", "no screen"]
)
def test_without_either_it_says_what_to_do(keys: Stream) -> None:
    with pytest.raises(InputError) as caught:
        read_commands(keys, Stream())
    assert str(caught.value) == (
        "shell needs a terminal, or commands on standard input, as in: "
        "echo 'p1 ping -c 1 d1' | testbed shell incast"
    )


# ---- what passes through --------------------------------------------------------------


class Ends:
    """A relay between a person's pseudo-terminal and the lab's, and the far ends of both."""

    def __init__(self, *, freeze: bool) -> None:
        self.person, keys = os.openpty()
        self.lab, inside = os.openpty()
        self.fds = (self.person, keys, self.lab, inside)
        self.inside = inside
        self.process = subprocess.Popen(["sleep", "60"])
        self.relay = Relay(keys, keys, self.lab, freeze=freeze)
        self.relay.begin()

    def says(self, text: str) -> str:
        """Let the lab print; return what the person sees."""
        os.write(self.inside, text.encode())
        select.select([self.lab], [], [], 5)  # a terminal hands on what is written when the kernel gets to it
        self.pause()
        os.write(self.fds[1], b"|")
        seen = b""
        while not seen.endswith(b"|"):
            seen += os.read(self.person, 1000)
        return seen.decode().removesuffix("|")

    def types(self, keys: str) -> str:
        """Let the person type; return what the lab reads."""
        os.write(self.person, keys.encode())
        select.select([self.fds[1]], [], [], 5)
        self.pause()
        return os.read(self.inside, 1000).decode()

    def pause(self) -> None:
        self.relay.pause(self.process, 0.02)

    def state(self) -> str:
        return state_of(self.process.pid)

    def settles(self, state: str) -> bool:
        """Whether the lab's process comes into a state within a second."""
        end = time.monotonic() + 1
        while self.state() != state and time.monotonic() < end:
            self.pause()
        return self.state() == state

    def close(self) -> None:
        self.relay.end()
        self.process.kill()
        self.process.wait()
        for fd in self.fds:
            os.close(fd)


@pytest.fixture(params=[True])
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    made = Ends(freeze=request.param)
    tty.setraw(made.inside)
    yield made
    made.close()


def test_output_passes_without_the_prompts_mark(ends: Ends) -> None:
    assert ends.says(f"one {HERE}mininet> ") == "one mininet> "


def test_a_mark_that_comes_in_two_pieces_is_taken_out_too(ends: Ends) -> None:
    assert ends.says("one " + HERE[:5]) == "one "
    assert ends.says(HERE[5:] + "mininet> ") == "mininet> "


def test_what_only_begins_like_the_mark_passes(ends: Ends) -> None:
    assert ends.says("\033]7") == ""
    assert ends.says("0;title\007") == "\033]70;title\007"


def test_every_key_passes(ends: Ends) -> None:
    assert ends.types("a\x03\x1a") == "a\x03\x1a"


def test_the_lab_is_held_while_its_prompt_waits(ends: Ends) -> None:
    assert not ends.settles("T")
    ends.says(f"{HERE}mininet> ")
    assert ends.settles("T")
    ends.types("p")  # one key: drawn, then held again
    assert ends.state() != "T"
    assert ends.settles("T")
    ends.types("\r")  # a command may run: not held before the next prompt
    assert not ends.settles("T")


@pytest.mark.parametrize("ends", [False], indirect=True)
def test_on_the_real_clock_nothing_is_held(ends: Ends) -> None:
    ends.says(f"{HERE}mininet> ")
    assert not ends.settles("T")


def test_one_key_ends_it_at_once(ends: Ends) -> None:
    with pytest.raises(KeyboardInterrupt):
        ends.types("\x1d")


def test_the_terminal_is_given_back_as_it_was() -> None:
    made = Ends(freeze=False)
    raw = termios.tcgetattr(made.fds[1])
    made.relay.end()
    assert termios.tcgetattr(made.fds[1]) != raw
    assert termios.tcgetattr(made.fds[1])[3] & termios.ICANON
    made.close()


# ---- piped ----------------------------------------------------------------------------


def test_output_is_copied_as_it_grows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    follower = Follower(tmp_path / "log")
    follower.copy()
    (tmp_path / "log").write_text("one\r\n")
    follower.copy()
    with (tmp_path / "log").open("a") as log:
        log.write("two\n")
    follower.copy()
    assert capsys.readouterr().out == "one\ntwo\n"
