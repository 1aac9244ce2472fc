"""Batches of socket calls on pairs of sockets, on this machine's own kernel."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator

import pytest

from testbed.errors import LabError
from testbed.lab.uring import Batch, Exchange, NoUring

Pair = tuple[socket.socket, socket.socket]


def pairs(count: int) -> Iterator[list[Pair]]:
    made = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(count)]
    yield made
    for pair in made:
        for sock in pair:
            sock.close()


@pytest.fixture
def three() -> Iterator[list[Pair]]:
    yield from pairs(3)


def batch_of(*exchanges: Exchange, timed: bool = False) -> Batch:
    try:
        return Batch(exchanges, timed=timed)
    except NoUring as refused:
        pytest.skip(f"announced: no io_uring here: {refused}")


def ask(pair: Pair, message: bytes, *answers: bytes) -> Exchange:
    return Exchange(pair[0].fileno(), message, tuple(map(len, answers)))


def test_every_message_is_sent_and_every_answer_stands_at_its_place(three: list[Pair]) -> None:
    answers = [(b"first", b"one"), (), (b"third",)]
    batch = batch_of(
        *(ask(pair, b"q%d" % n, *own) for n, (pair, own) in enumerate(zip(three, answers, strict=True)))
    )
    for pair, own in zip(three, answers, strict=True):
        for answer in own:
            pair[1].send(answer)
    assert batch.run()
    assert [pair[1].recv(10) for pair in three] == [b"q0", b"q1", b"q2"]
    found = [
        tuple(bytes(batch.buffer[start : start + len(text)]) for start, text in zip(places, own, strict=True))
        for places, own in zip(batch.places, answers, strict=True)
    ]
    assert found == answers


def test_a_batch_is_repeated_as_often_as_one_likes(three: list[Pair]) -> None:
    batch = batch_of(*(ask(pair, b"question", b"0000") for pair in three))
    for number in range(50):
        for place, pair in enumerate(three):
            pair[1].send(b"%04d" % (10 * number + place))
        assert batch.run()
        assert bytes(batch.buffer) == b"".join(b"%04d" % (10 * number + place) for place in range(3))
        assert [pair[1].recv(10) for pair in three] == [b"question"] * 3


@pytest.mark.parametrize("answer", [b"long!", b"bad"], ids=["longer", "shorter"])
def test_an_answer_of_another_length_is_told(three: list[Pair], answer: bytes) -> None:
    batch = batch_of(ask(three[0], b"q", b"four"), ask(three[1], b"q", b"four"))
    three[0][1].send(b"four")
    three[1][1].send(answer)
    assert not batch.run()


def test_the_results_are_those_of_the_last_run(three: list[Pair]) -> None:
    batch = batch_of(ask(three[0], b"q", b"four"))
    told = []
    for answer in (b"four", b"longer", b"four", b"bad", b"four"):
        three[0][1].send(answer)
        told.append(batch.run())
    assert told == [True, False, True, False, True]


def test_a_closed_socket_is_told(three: list[Pair]) -> None:
    batch = batch_of(ask(three[0], b"q", b"four"))
    three[0][1].close()
    assert not batch.run()


def test_a_ring_that_is_gone_is_an_error(three: list[Pair]) -> None:
    batch = batch_of(ask(three[0], b"q"))
    batch._ring = three[0][0].fileno()
    with pytest.raises(LabError, match=r"^io_uring took -1 of 1 calls: Operation not supported"):
        batch.run()


def test_a_timed_batch_waits_and_then_asks_in_order(three: list[Pair]) -> None:
    batch = batch_of(*(ask(pair, b"question", b"0000") for pair in three), timed=True)
    for number in range(50):
        for pair in three:
            pair[1].send(b"%04d" % number)
        moment = time.monotonic_ns() + 1_000_000
        assert batch.run(moment)
        assert time.monotonic_ns() >= moment
        assert bytes(batch.buffer) == b"%04d" % number * 3
        assert [pair[1].recv(10) for pair in three] == [b"question"] * 3


def test_a_moment_that_is_past_is_no_wait(three: list[Pair]) -> None:
    batch = batch_of(ask(three[0], b"q", b"four"), timed=True)
    for _ in range(3):
        three[0][1].send(b"four")
        assert batch.run()
    assert not batch.run()  # nothing was answered


def test_a_signal_ends_the_wait_and_nothing_has_been_asked(three: list[Pair]) -> None:
    batch = batch_of(ask(three[0], b"q", b"four"), timed=True)
    three[0][1].send(b"four")
    came: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _frame: came.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        assert not batch.run(time.monotonic_ns() + 20_000_000_000)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert came == [signal.SIGALRM]
    with pytest.raises(BlockingIOError):
        three[0][1].recv(10, socket.MSG_DONTWAIT)
