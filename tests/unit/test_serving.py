"""The serving engine by hand-made times: queues, hand-over, admission at step boundaries, closed loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.serving import job, serving
from traffic.connectors import CONNECTORS, Handover, handover
from traffic.jobs import SHORTEST_QUEUE, Job, Serving
from traffic.serving import Ask, Course, Engine, Open, Release

PULLED = handover(CONNECTORS["distserve"], token_bytes=0, layers=0, flows=1)
LAYERED = handover(CONNECTORS["splitwise"], token_bytes=64, layers=4, flows=1)


def to_d1(course: Course, now_ns: int) -> tuple[str, int]:
    return "d1", 0


def run(
    given: Serving, transfer_ns: int, choose: Callable[[Course, int], tuple[str, int]] = to_d1
) -> list[Course]:
    """Run to the end on a network that takes `transfer_ns` for anything."""
    engine = Engine(given, choose, partial=False)
    landings: list[tuple[int, int]] = []
    while engine.open or engine.next_ns is not None or landings:
        moments = [
            moment for moment in (engine.next_ns, *(at for at, _ in landings[:1])) if moment is not None
        ]
        now = min(moments)
        while landings and landings[0][0] <= now:
            engine.landed(landings.pop(0)[1], now)
        for action in engine.advance(now):
            if isinstance(action, Release | Ask):
                landings.append((action.time_ns + transfer_ns, action.course.job.id))
                landings.sort()
    return list(engine.courses.values())


def test_without_prefill_and_steps_the_first_token_is_there_when_the_kv_is() -> None:
    (course,) = run(serving(job(0, arrival_ns=50, prefill_ns=0)), transfer_ns=7)
    assert (course.arrival_ns, course.prefill_start_ns, course.prefill_end_ns) == (50, 50, 50)
    assert (course.landed_ns, course.admitted_ns, course.first_token_ns, course.ended_ns) == (57, 57, 57, 57)


def test_a_prefill_host_with_one_slot_takes_one_after_the_other() -> None:
    courses = run(serving(job(0), job(1), job(2), job(3)), transfer_ns=5)
    assert [course.prefill_host for course in courses] == ["p1", "p2", "p1", "p2"]
    assert [course.prefill_start_ns for course in courses] == [0, 0, 100, 100]
    assert [course.landed_ns for course in courses] == [105, 105, 205, 205]


def test_two_slots_take_two_at_once() -> None:
    courses = run(serving(*(job(n) for n in range(5)), prefill_hosts=("p1",), prefill_slots=2), transfer_ns=5)
    assert [course.prefill_start_ns for course in courses] == [0, 0, 100, 100, 200]


def test_the_shortest_queue_is_that_of_the_least_prefill_time() -> None:
    jobs = (job(0, prefill_ns=500), job(1, prefill_ns=100), job(2, prefill_ns=100), job(3, prefill_ns=100))
    hosts = [
        course.prefill_host for course in run(serving(*jobs, prefill_policy=SHORTEST_QUEUE), transfer_ns=5)
    ]
    assert hosts == ["p1", "p2", "p2", "p2"]
    assert [c.prefill_host for c in run(serving(*jobs), transfer_ns=5)] == ["p1", "p2", "p1", "p2"]


def test_what_lands_joins_the_batch_at_its_next_step() -> None:
    # The first begins a step at 100; landing at 107 joins at 110, and its token comes at 120.
    jobs = (job(0, prefill_ns=90), job(1, prefill_ns=97))
    first, second = run(serving(*jobs, step_ns=10), transfer_ns=10)
    assert (first.admitted_ns, first.first_token_ns, first.ended_ns) == (100, 110, 130)
    assert (second.landed_ns, second.admitted_ns, second.first_token_ns) == (107, 110, 120)


def test_an_empty_batch_begins_a_step_at_once() -> None:
    first, second = run(
        serving(job(0, prefill_ns=90), job(1, 200, prefill_ns=33), step_ns=10), transfer_ns=10
    )
    assert first.ended_ns == 130
    assert (second.landed_ns, second.admitted_ns) == (243, 243)


def test_a_full_decode_host_admits_in_order_when_answers_end() -> None:
    jobs = (job(0, output=5), job(1, output=2), job(2, output=1))
    given = serving(*jobs, prefill_hosts=("p1", "p2", "p3"), step_ns=10, decode_slots=1)
    first, second, third = run(given, transfer_ns=10)
    assert [c.landed_ns for c in (first, second, third)] == [110, 110, 110]
    assert [c.admitted_ns for c in (first, second, third)] == [110, 160, 180]


def test_layers_are_released_as_prefill_computes_them() -> None:
    engine = Engine(serving(job(0, prefill_ns=100), handover=LAYERED), to_d1)
    assert [type(action) for action in engine.advance(0)] == [Open]
    released = []
    while engine.next_ns is not None:
        released += [a for a in engine.advance(engine.next_ns) if isinstance(a, Release)]
    assert [(a.time_ns, a.done, a.steps) for a in released] == [
        (25, 1, 4),
        (50, 2, 4),
        (75, 3, 4),
        (100, 4, 4),
    ]


def test_a_decode_host_that_pulls_asks_when_prefill_has_ended() -> None:
    engine = Engine(serving(job(0, prefill_ns=100), handover=PULLED), to_d1)
    engine.advance(99)
    (asked,) = engine.advance(100)
    assert isinstance(asked, Ask)
    assert asked.time_ns == 100


def test_connections_are_opened_before_the_request_arrives() -> None:
    engine = Engine(serving(job(0, arrival_ns=1000), lead_ns=300), to_d1)
    assert engine.next_ns == 700
    (opened,) = engine.advance(700)
    assert isinstance(opened, Open)
    assert opened.course.prefill_start_ns is None


def test_a_client_asks_again_when_its_answer_has_ended() -> None:
    jobs = (job(0, 0), job(1, 0), job(2, 40), job(3, 40))
    jobs = tuple(replace(one, client=number % 2) for number, one in enumerate(jobs))
    courses = run(serving(*jobs, step_ns=10), transfer_ns=10)
    assert [c.arrival_ns for c in courses] == [0, 0, 180, 180]  # 140 + 40 of thinking
    assert courses[0].ended_ns == 140


def test_a_prompt_that_is_all_there_moves_nothing_and_still_has_a_first_token() -> None:
    whole = Job(0, 0, 100, 800, 100, 1, blocks=(1, 2), block_tokens=50)
    (course,) = run(serving(whole), transfer_ns=10_000, choose=lambda course, now: ("d2", 2))
    assert (course.bytes, course.landed_ns, course.first_token_ns) == (0, 100, 100)


@pytest.mark.parametrize(("blocks", "left"), [(0, 800), (1, 480), (2, 160), (3, 0)])
def test_blocks_that_are_there_are_not_moved_the_last_one_need_not_be_full(blocks: int, left: int) -> None:
    assert Job(0, 0, 0, 800, 100, 1, blocks=(1, 2, 3), block_tokens=40).bytes_beyond(blocks) == left


def test_a_request_whose_transfer_fails_lets_its_client_go_on() -> None:
    jobs = (replace(job(0), client=0), replace(job(1, 5), client=0))
    engine = Engine(serving(*jobs), to_d1)
    engine.advance(100)
    engine.failed(0, 150, "refused")
    assert (engine.open, engine.next_ns) == (1, 155)
    assert engine.courses[0].error == "refused"


def test_requests_go_by_way_of_the_stores_in_turn() -> None:
    chunked: Handover = handover(CONNECTORS["lmcache"], token_bytes=64, layers=4, flows=1)
    given = serving(*(job(n) for n in range(3)), handover=chunked, store_hosts=("s1", "s2"))
    assert [c.store_host for c in run(given, transfer_ns=5)] == ["s1", "s2", "s1"]
