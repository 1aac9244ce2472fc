"""The reliable connection's state machines against each other, over a channel that loses packets."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

import pytest

from traffic.roce.geometry import Geometry, wire_bytes
from traffic.roce.packets import ACK, NAK_SEQUENCE, header_bytes
from traffic.roce.requester import GO_BACK_N, RETRIES, SELECTIVE_REPEAT, ReadRequester, WriteRequester
from traffic.roce.responder import ReadResponder, WriteResponder

MTU = 4096
DELAY, TIMEOUT = 20, 1000
BOTH = [GO_BACK_N, SELECTIVE_REPEAT]


def geometry(count: int, first_psn: int = 0xFFFFF0) -> Geometry:
    """A transfer of `count` packets, the last one short, whose numbers wrap after sixteen."""
    return Geometry(count * MTU - 5, MTU, 16 * MTU, first_psn)


class Channel:
    """Delivers what is put in `DELAY` later, but loses some."""

    def __init__(self, loss: float, seed: int) -> None:
        self._loss, self._random = loss, random.Random(seed)
        self._under_way: deque[tuple[int, tuple[int, ...]]] = deque()

    def put(self, now: int, *values: int) -> None:
        if self._random.random() >= self._loss:
            self._under_way.append((now + DELAY, values))

    def arrived(self, now: int) -> list[tuple[int, ...]]:
        found = []
        while self._under_way and self._under_way[0][0] <= now:
            found.append(self._under_way.popleft()[1])
        return found


@dataclass
class Result:
    landed: list[int]
    sent: int
    again: int
    timeouts: int


def write(count: int, recovery: str, loss: float, *, seed: int = 1, window: int = 0) -> Result:
    """Move a transfer by WRITEs, a packet in each unit of time."""
    plan, now = geometry(count), 0
    sender = WriteRequester(
        plan, recovery=recovery, timeout_ns=TIMEOUT, window_packets=window, ack_every=4
    )  # fmt: skip
    receiver = WriteResponder(plan, recovery=recovery)
    there, back = Channel(loss, seed), Channel(loss, seed + 1000)
    result = Result([], 0, 0, 0)
    while not sender.done:
        now += 1
        assert not sender.failed
        if sender.ready():
            index, ask = sender.take(now)
            result.sent += 1
            there.put(now, plan.psn(index), ask)
        for psn, asked in there.arrived(now):
            landed, answers = receiver.on_data(psn, ack_request=bool(asked))
            result.landed += [] if landed is None else [landed]
            for named, syndrome in answers:
                back.put(now, plan.psn(named), syndrome)
        for psn, syndrome in back.arrived(now):
            sender.on_acknowledge(psn, syndrome, now)
        if sender.deadline_ns <= now:
            sender.on_deadline(now)
    result.again, result.timeouts = sender.retransmissions, sender.timeouts
    assert receiver.done
    return result


def read(count: int, recovery: str, loss: float, *, seed: int = 1, window: int = 64) -> Result:
    """Move a transfer by READs."""
    plan, now = geometry(count), 0
    receiver = ReadRequester(plan, recovery=recovery, timeout_ns=TIMEOUT, window_packets=window)
    sender = ReadResponder(plan, recovery=recovery)
    there, back = Channel(loss, seed), Channel(loss, seed + 1000)
    result = Result([], 0, 0, 0)
    while not receiver.done:
        now += 1
        assert not receiver.failed
        while receiver.ready():
            start, end = receiver.take(now)
            there.put(now, plan.psn(start), min(end * MTU, plan.size) - start * MTU)
        for psn, length in there.arrived(now):
            nak = sender.on_request(psn, length)
            if nak is not None:
                back.put(now, plan.psn(nak[0]), True)
        if sender.ready():
            result.sent += 1
            back.put(now, plan.psn(sender.take()[0]), False)
        for psn, is_nak in back.arrived(now):
            if is_nak:
                receiver.on_nak(psn)
            elif (landed := receiver.on_response(psn, now)) is not None:
                result.landed.append(landed)
        if receiver.deadline_ns <= now:
            receiver.on_deadline(now)
    result.again, result.timeouts = sender.retransmissions, receiver.timeouts
    return result


@pytest.mark.parametrize("recovery", BOTH)
@pytest.mark.parametrize("move", [write, read])
def test_nothing_is_sent_twice_when_nothing_is_lost(move: type, recovery: str) -> None:
    done = move(100, recovery, 0.0)
    assert done == Result(list(range(100)), 100, 0, 0)


@pytest.mark.parametrize("recovery", BOTH)
@pytest.mark.parametrize("move", [write, read])
@pytest.mark.parametrize(("count", "loss"), [(1, 0.3), (17, 0.2), (200, 0.15), (3000, 0.01)])
def test_everything_lands_once_whatever_is_lost(move: type, recovery: str, count: int, loss: float) -> None:
    for seed in range(5):
        assert sorted(move(count, recovery, loss, seed=seed).landed) == list(range(count))


@pytest.mark.parametrize("move", [write, read])
def test_selective_repeat_sends_the_lost_packets_again_and_no_others(move: type) -> None:
    back, again = (move(5000, recovery, 0.001, seed=3) for recovery in BOTH)
    lost = again.sent - 5000
    # 5,000 packets at 0.1 %: 5 are lost on average, more than 20 once in ten million times.
    assert 1 <= again.again <= lost <= 20
    assert again.timeouts == 0
    # Each loss costs go-back-N what was under way: two delays of packets and the wait for the gap to be seen.
    assert back.again >= 20 * again.again
    assert back.landed == sorted(back.landed)


def test_a_window_bounds_what_is_not_acknowledged() -> None:
    plan = geometry(50)
    sender = WriteRequester(plan, recovery=GO_BACK_N, timeout_ns=TIMEOUT, window_packets=8, ack_every=4)
    sent = []
    while sender.ready():
        sent.append(sender.take(0))
    assert [index for index, _ in sent] == list(range(8))
    assert [index for index, ask in sent if ask] == [3, 7]
    sender.on_acknowledge(plan.psn(3), ACK, 1)
    assert sender.acknowledged == 4
    assert sender.ready()


def test_an_answer_out_of_date_changes_nothing() -> None:
    plan = geometry(50)
    sender = WriteRequester(plan, recovery=GO_BACK_N, timeout_ns=TIMEOUT, window_packets=0, ack_every=4)
    for _ in range(20):
        sender.take(0)
    sender.on_acknowledge(plan.psn(9), ACK, 1)
    for psn in (plan.psn(5), plan.psn(-1), plan.psn(20), plan.psn(1 << 20)):
        sender.on_acknowledge(psn, ACK, 2)
        sender.on_acknowledge(psn, NAK_SEQUENCE, 2)
    assert (sender.acknowledged, sender.next, sender.naks) == (10, 20, 0)


def test_a_nak_goes_back_and_acknowledges_what_is_before_it() -> None:
    plan = geometry(50)
    sender = WriteRequester(plan, recovery=GO_BACK_N, timeout_ns=TIMEOUT, window_packets=0, ack_every=16)
    for _ in range(20):
        sender.take(0)
    sender.on_acknowledge(plan.psn(7), NAK_SEQUENCE, 1)
    assert sender.acknowledged == 7
    assert sender.take(2) == (7, True)
    assert sender.retransmissions == 1


def test_a_receiver_names_a_gap_once_until_it_is_filled() -> None:
    plan = geometry(50)
    receiver = WriteResponder(plan, recovery=GO_BACK_N)
    assert receiver.on_data(plan.psn(0), ack_request=True) == (0, [(0, ACK)])
    assert receiver.on_data(plan.psn(2), ack_request=True) == (None, [(1, NAK_SEQUENCE)])
    assert receiver.on_data(plan.psn(3), ack_request=True) == (None, [])
    assert receiver.on_data(plan.psn(1), ack_request=False) == (1, [])
    assert receiver.on_data(plan.psn(4), ack_request=False) == (None, [(2, NAK_SEQUENCE)])


def test_a_duplicate_is_acknowledged_again_and_does_not_land() -> None:
    plan = geometry(50)
    receiver = WriteResponder(plan, recovery=GO_BACK_N)
    receiver.on_data(plan.psn(0), ack_request=False)
    receiver.on_data(plan.psn(1), ack_request=False)
    assert receiver.on_data(plan.psn(0), ack_request=True) == (None, [(1, ACK)])
    assert receiver.duplicates == 1


def test_a_read_that_is_asked_for_again_takes_the_place_of_what_was_to_come() -> None:
    plan = geometry(50)
    sender = ReadResponder(plan, recovery=GO_BACK_N)
    for start in (0, 16):
        assert sender.on_request(plan.psn(start), 16 * MTU) is None
    assert [sender.take()[0] for _ in range(6)] == list(range(6))
    assert sender.on_request(plan.psn(4), 12 * MTU) is None
    served = []
    while sender.ready():
        served.append(sender.take())
    assert served == [(index, 4, 16) for index in range(4, 16)]
    assert sender.retransmissions == 2


def test_a_read_before_which_one_is_missing_is_refused() -> None:
    plan = geometry(50)
    sender = ReadResponder(plan, recovery=GO_BACK_N)
    assert sender.on_request(plan.psn(16), 16 * MTU) == (0, NAK_SEQUENCE)
    assert sender.on_request(plan.psn(0), 51 * MTU) is None
    assert not sender.ready()


def test_the_timer_gives_up_after_the_retries() -> None:
    sender = WriteRequester(
        geometry(1), recovery=GO_BACK_N, timeout_ns=TIMEOUT, window_packets=0, ack_every=4
    )
    for number in range(RETRIES + 1):
        assert not sender.failed
        assert sender.take(number * TIMEOUT) == (0, True)
        assert sender.deadline_ns == (number + 1) * TIMEOUT
        sender.on_deadline(sender.deadline_ns)
    assert sender.failed
    assert sender.timeouts == RETRIES + 1


@pytest.mark.parametrize("near", [0, 15, 16, 17, 1 << 23, 1 << 24, 3 << 24])
def test_numbers_wrap(near: int) -> None:
    plan = Geometry(1 << 40, MTU, 16 * MTU, 0xFFFFF0)
    for index in (near - 5, near, near + 5, near + (1 << 22)):
        assert plan.index(plan.psn(index), near) == index


@pytest.mark.parametrize("size", [1, MTU, MTU + 1, 16 * MTU, 17 * MTU, 33 * MTU - 5])
@pytest.mark.parametrize("read_", [False, True])
def test_wire_bytes_are_those_of_the_packets(size: int, read_: bool) -> None:
    plan = Geometry(size, MTU, 16 * MTU)
    total = 0
    for index in range(plan.packets):
        start = index // 16 * 16
        code = plan.read_opcode(index, start, plan.message_end(index)) if read_ else plan.write_opcode(index)
        total += 42 + header_bytes(code) + -(-plan.payload(index) // 4) * 4 + 4
    assert wire_bytes(size, MTU, 16 * MTU, read=read_) == total
