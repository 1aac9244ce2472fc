"""Batches of socket calls on pairs of sockets, on this machine's own kernel."""

from __future__ import annotations

import signal
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from testbed.errors import LabError
from testbed.lab import uring
from testbed.lab.uring import DATAGRAM_BYTES, Batch, Exchange, NoUring, Questions, Stamp, Ticks

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


@pytest.fixture
def stamp() -> Iterator[Stamp]:
    with closing(Stamp()) as made:
        yield made


def batch_of(*exchanges: Exchange, **how: Any) -> Batch:
    try:
        return Batch(exchanges, **how)
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


@pytest.mark.parametrize("earlier", range(4))
def test_a_signal_ends_the_wait_and_nothing_has_been_asked(three: list[Pair], earlier: int) -> None:
    batch = batch_of(ask(three[0], b"q", b"four"), timed=True)
    for _ in range(earlier):  # whose answers are not taken for this one's
        three[0][1].send(b"four")
        assert batch.run()
        assert three[0][1].recv(10) == b"q"
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


# ---- the clock, read in the batch -----------------------------------------------------


def test_a_stamp_is_the_time_at_which_the_batch_came_to_it(three: list[Pair], stamp: Stamp) -> None:
    batch = batch_of(ask(three[0], b"q", b"four"), timed=True, stamp=stamp)
    for _ in range(50):
        three[0][1].send(b"four")
        moment = time.monotonic_ns() + 1_000_000
        assert batch.run(moment)
        # The two clocks were read one after the other: a few microseconds at most.
        assert moment - 100_000 <= stamp.moments_ns()[0] <= time.monotonic_ns() + 100_000


def test_a_stamp_tells_of_a_wait_that_was_too_long(three: list[Pair], stamp: Stamp) -> None:
    batch = batch_of(ask(three[0], b"q", b"four"), timed=True, stamp=stamp)
    three[0][1].send(b"four")
    asked = time.monotonic_ns()
    time.sleep(0.05)
    assert batch.run(asked)
    assert stamp.moments_ns()[0] >= asked + 49_000_000


def test_without_a_stamp_in_the_answer_there_is_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uring, "_SO_TIMESTAMPNS", socket.SO_KEEPALIVE)  # an option that stamps nothing
    with closing(Stamp()) as unmarked:
        assert batch_of(stamp=unmarked).run()
        with pytest.raises(NoUring, match=r"^this kernel does not stamp a datagram to oneself$"):
            unmarked.moments_ns()


# ---- several rounds in one call -------------------------------------------------------


def answered(three: list[Pair], rounds: int) -> None:
    for number in range(rounds):
        for pair in three:
            pair[1].send(b"%04d" % number)


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_each_round_begins_at_its_tick_and_has_its_own_answers(three: list[Pair], rounds: int) -> None:
    ticks, every_ns = Ticks(), 2_000_000
    with closing(Stamp(rounds)) as stamp:
        batch = batch_of(
            *(ask(pair, b"q", b"0000") for pair in three), ticks=ticks, rounds=rounds, stamp=stamp
        )
        for _ in range(3):
            answered(three, rounds)
            first = time.monotonic_ns() + every_ns
            ticks.start(first, every_ns)
            assert batch.run() == rounds
            moments = stamp.moments_ns()
            assert len(moments) == rounds
            for number, moment in enumerate(moments):
                assert moment >= first + number * every_ns - 100_000
            assert moments == sorted(moments)
            answers = [bytes(batch.buffer[at : at + 4]) for at in range(0, rounds * batch.size, 4)]
            assert answers == [b"%04d" % number for number in range(rounds) for _ in three]
            assert [pair[1].recv(10) for pair in three for _ in range(rounds)] == [b"q"] * 3 * rounds


def test_the_timer_goes_on_from_one_call_to_the_next(three: list[Pair]) -> None:
    ticks = Ticks()
    batches = [batch_of(ask(three[0], b"q", b"0000"), ticks=ticks, rounds=rounds) for rounds in (2, 1)]
    first = time.monotonic_ns() + 5_000_000
    ticks.start(first, 5_000_000)
    for passed, batch in zip((1, 2, 4, 5), [*batches, *batches], strict=True):
        answered(three[:1], batch.rounds)
        assert batch.run() == batch.rounds
        assert time.monotonic_ns() >= first + passed * 5_000_000


@pytest.mark.parametrize("wrong", range(4))
def test_rounds_count_up_to_the_first_that_is_not_whole(three: list[Pair], wrong: int) -> None:
    ticks = Ticks()
    ticks.start(1, 1)
    batch = batch_of(ask(three[0], b"q", b"four"), ticks=ticks, rounds=4)
    for number in range(4):
        three[0][1].send(b"bad" if number == wrong else b"four")
    assert batch.run() == wrong


@pytest.mark.parametrize("earlier", [0, 1, 2, 3])
def test_a_signal_cuts_off_the_rounds_that_have_not_come(three: list[Pair], earlier: int) -> None:
    ticks = Ticks()
    batch = batch_of(ask(three[0], b"q", b"0000"), ticks=ticks, rounds=3)
    for _ in range(earlier):  # whose answers are not taken for this one's
        ticks.start(1, 1)
        answered(three[:1], 3)
        assert batch.run() == 3
    answered(three[:1], 3)
    came: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _frame: came.append(number))
    ticks.start(time.monotonic_ns(), 20_000_000_000)  # the first round at once, the second long after
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        assert batch.run() == 1
    finally:
        signal.signal(signal.SIGALRM, before)
    assert came == [signal.SIGALRM]
    assert bytes(batch.buffer[:4]) == b"0000"


# ---- answers of any length ------------------------------------------------------------


def questions_to(*asked: Pair) -> Questions:
    try:
        return Questions([(pair[0].fileno(), b"question %d" % number) for number, pair in enumerate(asked)])
    except NoUring as refused:
        pytest.skip(f"announced: no io_uring here: {refused}")


def texts(answers: list[tuple[memoryview, int]]) -> list[bytes]:
    return [bytes(view[:length]) for view, length in answers]


def test_answers_of_any_length_are_all_received(three: list[Pair]) -> None:
    questions = questions_to(*three)
    for number in range(20):
        sent = [[b"x" * number + b"y"], [], [b"first", b"z" * (number * 1000 + 1)]]
        for pair, answers in zip(three, sent, strict=True):
            for answer in answers:
                pair[1].send(answer)
        assert [texts(found) for found in questions.run()] == sent
        assert [pair[1].recv(20) for pair in three] == [b"question %d" % each for each in range(3)]


def test_what_is_more_than_two_datagrams_stays_where_it_is(three: list[Pair]) -> None:
    questions = questions_to(three[0])
    for answer in (b"one", b"two", b"three"):
        three[0][1].send(answer)
    assert [texts(found) for found in questions.run()] == [[b"one", b"two"]]
    assert three[0][0].recv(10) == b"three"


def test_completions_are_told_apart_by_their_number(
    three: list[Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = questions_to(*three)
    for pair in three:
        pair[1].send(b"answer")
    enter = questions._enter

    def turned() -> bytes:
        """What failed first, as Linux 6.1 has it."""
        completed = enter()
        each = [completed[start : start + 16] for start in range(0, len(completed), 16)]
        return b"".join(sorted(each, key=lambda completion: struct.unpack_from("=i", completion, 8)))

    monkeypatch.setattr(questions, "_enter", turned)
    assert [texts(found) for found in questions.run()] == [[b"answer"]] * 3


def test_a_question_that_cannot_be_sent_is_an_error(three: list[Pair]) -> None:
    questions = questions_to(*three)
    three[1][1].close()
    with pytest.raises(LabError, match=r"^a question of 10 B was answered with -\d+, "):
        list(questions.run())


def test_an_answer_beyond_its_buffer_is_an_error(three: list[Pair]) -> None:
    questions = questions_to(three[0])
    three[0][1].send(bytes(DATAGRAM_BYTES))
    assert [len(text) for found in questions.run() for text in texts(found)] == [DATAGRAM_BYTES]
    three[0][1].send(bytes(DATAGRAM_BYTES + 1))
    with pytest.raises(
        LabError, match=rf"^a question of 10 B was answered with 10, \[{DATAGRAM_BYTES + 1}, "
    ):
        list(questions.run())
