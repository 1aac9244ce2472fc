"""The engine's actions as TCP flows, over this machine's own loopback: releases, asking, stores, pools."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import pytest

from tests.support.serving import job, serving
from traffic.connectors import CONNECTORS, Handover, handover
from traffic.serving import Course, Engine
from traffic.serving_replay import Pool, ServedFlow, ServingReplay
from traffic.tcp_replay import Endpoint

SIZE = 3 << 20
MS = 1_000_000
IPS = {"p1": "127.0.0.1", "s1": "127.0.0.2", "d1": "127.0.0.3"}


def end(host: str, port: int) -> Endpoint:
    return Endpoint(host, IPS[host], port)


def run(
    hand: Handover,
    flows_of: Callable[[Course], list[ServedFlow]],
    ports: list[tuple[str, int]],
    prefill_ns: int = 20 * MS,
    deadline_ns: int = 5_000 * MS,
) -> tuple[Course, ServingReplay]:
    given = serving(
        job(0, 30 * MS, prefill_ns, SIZE),
        handover=hand,
        prefill_hosts=("p1",),
        decode_hosts=("d1",),
        lead_ns=25 * MS,
    )
    engine = Engine(given, lambda course, now: ("d1", 0))
    listening = [ServedFlow(-1, end("p1", 0), end(*place), 1, 0) for place in ports]
    replay = ServingReplay(
        engine,
        flows_of,
        listening,
        congestion_control="reno",
        namespace=lambda host: contextlib.nullcontext(),
    )
    replay.prepare()
    epoch = time.monotonic_ns()
    if not replay.run(epoch, epoch + deadline_ns):
        replay.close_open("given up")
    for listener in replay._listeners:
        listener.close()
    return engine.courses[0], replay


def one(hand: Handover, port: int, prefill_ns: int = 20 * MS) -> tuple[Course, ServingReplay]:
    return run(
        hand,
        lambda course: [ServedFlow(0, end("p1", port + 1), end("d1", port), course.bytes, 0)],
        [("d1", port)],
        prefill_ns,
    )


def test_a_push_leaves_when_prefill_has_ended() -> None:
    course, replay = one(handover(CONNECTORS["distserve"], token_bytes=0, layers=0, flows=1), 21_000)
    (row,) = replay.outcomes()
    assert (row["bytes"], row["error"], course.error) == (SIZE, None, None)
    assert course.landed_ns is not None
    assert course.landed_ns == row["end_ns"]
    assert row["start_ns"] >= 50 * MS
    assert "releases" not in row


def test_layers_leave_one_after_the_other() -> None:
    layered = handover(CONNECTORS["splitwise"], token_bytes=64, layers=4, flows=1)
    _, replay = one(layered, 21_010, prefill_ns=80 * MS)
    (row,) = replay.outcomes()
    released = [(50 * MS, SIZE // 4), (70 * MS, SIZE // 2), (90 * MS, SIZE * 3 // 4), (110 * MS, SIZE)]
    assert row["releases"] == released
    assert row["planned_start_ns"] == 50 * MS
    assert row["end_ns"] >= 110 * MS


def test_a_store_passes_on_whole_chunks_as_they_arrive() -> None:
    chunked = handover(CONNECTORS["lmcache"], token_bytes=4096, layers=1, flows=1)
    assert chunked.descriptor_bytes == 1 << 20

    def flows_of(course: Course) -> list[ServedFlow]:
        first = ServedFlow(0, end("p1", 21_021), end("s1", 21_020), SIZE, 0, chunk_bytes=1 << 20)
        second = ServedFlow(1, end("s1", 21_022), end("d1", 21_020), SIZE, 0, fed=True)
        first.feeds = second
        return [first, second]

    course, replay = run(chunked, flows_of, [("s1", 21_020), ("d1", 21_020)])
    first, second = replay.outcomes()
    assert (first["bytes"], second["bytes"]) == (SIZE, SIZE)
    assert [upto for _, upto in second["releases"]][-1] == SIZE
    assert {upto % (1 << 20) for _, upto in second["releases"]} == {0}
    assert course.landed_ns == second["end_ns"]
    assert second["start_ns"] >= first["start_ns"]


def test_flows_of_a_pool_move_all_of_it_between_them() -> None:
    hand = handover(CONNECTORS["mooncake"], token_bytes=0, layers=0, flows=1, nics=2)
    assert (hand.streams, hand.nics) == (2, 2)

    def flows_of(course: Course) -> list[ServedFlow]:
        ports = (21_031, 21_032)
        flows = [ServedFlow(n, end("p1", port), end("d1", 21_030), SIZE, 0) for n, port in enumerate(ports)]
        pool = Pool(SIZE, hand.descriptor_bytes, flows)
        for flow in flows:
            flow.pool = pool
        return flows

    course, replay = run(hand, flows_of, [("d1", 21_030)])
    rows = replay.outcomes()
    assert sum(row["bytes"] for row in rows) == SIZE
    assert min(row["bytes"] for row in rows) > 0
    assert {row["error"] for row in rows} == {None}
    assert course.landed_ns == max(row["end_ns"] for row in rows)


def test_a_pool_smaller_than_its_flows() -> None:
    hand = handover(CONNECTORS["mooncake"], token_bytes=0, layers=0, flows=1, nics=2)

    def flows_of(course: Course) -> list[ServedFlow]:
        ports = (21_041, 21_042)
        flows = [ServedFlow(n, end("p1", port), end("d1", 21_040), 100, 0) for n, port in enumerate(ports)]
        pool = Pool(100, hand.descriptor_bytes, flows)
        for flow in flows:
            flow.pool = pool
        return flows

    course, replay = run(hand, flows_of, [("d1", 21_040)])
    assert [row["bytes"] for row in replay.outcomes()] == [100, 0]
    assert course.landed_ns is not None


def test_a_refused_connection_ends_the_request() -> None:
    hand = handover(CONNECTORS["distserve"], token_bytes=0, layers=0, flows=1)
    course, replay = run(
        hand,
        lambda course: [ServedFlow(0, end("p1", 21_051), end("d1", 21_050), course.bytes, 0)],
        [],
        deadline_ns=300 * MS,
    )
    assert course.error is not None
    assert course.first_token_ns is None
    assert replay.outcomes()[0]["error"] is not None


@pytest.mark.parametrize("name", ["distserve", "nixl"])
def test_a_pull_begins_when_the_question_has_arrived(name: str) -> None:
    hand = handover(CONNECTORS[name], token_bytes=4096, layers=1, flows=1)
    course, replay = one(hand, 21_060 if name == "nixl" else 21_070)
    (row,) = replay.outcomes()
    assert course.prefill_end_ns == 50 * MS
    assert row["planned_start_ns"] > 50 * MS
    assert row["bytes"] == SIZE
