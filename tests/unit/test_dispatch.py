"""Placement wired to the engine: what is outstanding, what is cached, what the network's counters said."""

from __future__ import annotations

from dataclasses import replace

from tests.support.serving import job, serving
from traffic.dispatch import Dispatcher
from traffic.jobs import Job, Serving
from traffic.serving import Course


def chosen(dispatcher: Dispatcher, one: Job) -> Course:
    course = Course(one, "p1")
    course.decode_host, course.cached_blocks = dispatcher.choose(course, 0)
    course.bytes = one.bytes_beyond(course.cached_blocks)
    return course


def least_loaded(**changes: object) -> Serving:
    return serving(placement="least-loaded", **changes)


def test_bytes_are_outstanding_until_they_land() -> None:
    dispatcher = Dispatcher(least_loaded())
    first = chosen(dispatcher, job(0, size=1000))
    assert [chosen(dispatcher, job(n, size=200)).decode_host for n in (1, 2, 3)] == ["d2", "d2", "d2"]
    dispatcher.landed(first)
    assert chosen(dispatcher, job(4)).decode_host == "d1"


def test_a_request_is_outstanding_until_its_answer_ends() -> None:
    dispatcher = Dispatcher(least_loaded())
    for number in (0, 1):
        dispatcher.landed(chosen(dispatcher, job(number)))
    third = chosen(dispatcher, job(2))
    assert third.decode_host == "d1"  # no bytes anywhere, one request at each: the first
    dispatcher.landed(third)
    fourth = chosen(dispatcher, job(3))
    assert fourth.decode_host == "d2"
    dispatcher.landed(fourth)
    dispatcher.ended(fourth)
    assert chosen(dispatcher, job(4)).decode_host == "d2"


def test_what_a_host_has_is_not_moved_again() -> None:
    dispatcher = Dispatcher(serving(placement="cache-aware", cache_blocks=10))
    prompt = replace(job(0), blocks=(7, 8), block_tokens=50)
    first = chosen(dispatcher, prompt)
    assert (first.cached_blocks, first.bytes) == (0, 800)
    dispatcher.landed(first)
    longer = chosen(dispatcher, replace(prompt, id=1, prompt_tokens=150, bytes=1200, blocks=(7, 8, 9)))
    assert (longer.decode_host, longer.cached_blocks, longer.bytes) == (first.decode_host, 2, 400)


def test_a_failed_transfer_leaves_nothing_behind() -> None:
    dispatcher = Dispatcher(serving(cache_blocks=10))
    first = chosen(dispatcher, replace(job(0), blocks=(7, 8), block_tokens=50))
    first.error = "refused"
    dispatcher.landed(first)
    assert chosen(dispatcher, replace(job(2), blocks=(7, 8), block_tokens=50)).cached_blocks == 0


def test_without_room_nothing_is_cached() -> None:
    dispatcher = Dispatcher(serving(cache_blocks=0))
    for number in (0, 2):
        course = chosen(dispatcher, replace(job(number), blocks=(7, 8), block_tokens=50))
        assert course.cached_blocks == 0
        dispatcher.landed(course)


def test_network_aware_follows_the_last_reading_and_counts_what_it_placed_since() -> None:
    dispatcher = Dispatcher(serving(placement="network-aware"))
    dispatcher.read(lambda src, dst: [(dst, {"d1": 100e9, "d2": 20e9}[dst])])
    hosts = [chosen(dispatcher, job(number, size=1000)).decode_host for number in range(6)]
    # Five times as fast: with the fifth request d1 takes as long as d2 for its first, and d2 is less loaded.
    assert hosts == ["d1", "d1", "d1", "d1", "d2", "d1"]
    dispatcher.read(lambda src, dst: [(dst, {"d1": 1e9, "d2": 20e9}[dst])])
    assert chosen(dispatcher, job(7)).decode_host == "d2"


def test_what_has_not_begun_to_move_counts_beyond_a_reading() -> None:
    dispatcher = Dispatcher(serving(placement="network-aware"))
    free = {"d1": 100e9, "d2": 60e9}
    dispatcher.read(lambda src, dst: [(dst, free[dst])])
    first = chosen(dispatcher, job(0, size=1000))
    dispatcher.read(lambda src, dst: [(dst, free[dst])])
    assert (first.decode_host, chosen(dispatcher, job(1, size=1000)).decode_host) == ("d1", "d2")
    first.prefill_end_ns = 2
    dispatcher.read(lambda src, dst: [(dst, free[dst])])
    assert chosen(dispatcher, job(2, size=1000)).decode_host == "d1"


def test_hosts_behind_one_link_share_what_is_free_on_it() -> None:
    dispatcher = Dispatcher(serving(placement="network-aware", decode_hosts=("d1", "d2", "d3")))
    leaf_of = {"d1": "leaf1", "d2": "leaf1", "d3": "leaf2"}
    dispatcher.read(lambda src, dst: [(leaf_of[dst], 100e9), (dst, 100e9)])
    hosts = [chosen(dispatcher, job(number, size=1000)).decode_host for number in range(6)]
    assert hosts == ["d1", "d3", "d2", "d3", "d1", "d3"]
