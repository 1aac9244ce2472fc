"""Where a pause's cost belongs: to the queue at its root, wherever that stands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from testbed.analysis.fidelity import check_lossless, check_rates
from testbed.analysis.losses import off_path, transfer_losses
from testbed.analysis.pauses import link_pauses, roots, summarise_pauses
from testbed.analysis.summary import summarise
from testbed.plan.model import PausePoint, Pausing
from testbed.record import layout
from testbed.record.pauses import Deadlock, Pause, Pausings
from testbed.record.reader import Record, SampleGroup
from tests.support.synthetic import hot_uplink, write_record

MS = 1_000_000
UP, DOWN, LAST, NIC = "leaf1-spine1", "spine1-leaf2", "leaf2-d4", "p1-leaf1"
ELSEWHERE = "leaf2-d4"
"""No transfer but the fourth goes there, and that over the other spine."""


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Three transfers share leaf1-spine1, whose queue stands; a fourth has spine2 to itself."""
    return Record.open(write_record(tmp_path_factory.mktemp("toy"), hot_uplink()))


def paused(record: Record, *pauses: Pause, deadlock: Deadlock | None = None) -> Record:
    points = (PausePoint(UP, 1, 0, 0, ()),)
    plan = replace(record.plan, pausing=Pausing(points, 1))
    return replace(record, plan=plan, pausings=Pausings(pauses, deadlock))


def charged(record: Record) -> set[str]:
    """The links to which the three transfers over the uplink lost time."""
    return {name for loss in transfer_losses(record)[:3] for name in loss.by_link}


def test_a_queue_that_is_not_held_is_its_own_cause(toy: Record) -> None:
    assert charged(paused(toy)) == {UP}


def test_what_a_held_port_costs_goes_to_the_queue_that_held_it(toy: Record) -> None:
    record = paused(toy, Pause(UP, ELSEWHERE, 0, 100 * MS))
    assert charged(record) == {ELSEWHERE}
    # A port that is held needs not to be busy all the time for that, so a little more is charged.
    for loss, before in zip(transfer_losses(record)[:3], transfer_losses(toy), strict=False):
        assert before.by_link[UP] <= loss.by_link[ELSEWHERE] <= sum(loss.by_link.values()) + loss.sender_ns
        assert loss.by_segment["dest-leaf"] == loss.by_link[ELSEWHERE]


def test_and_on_to_the_queue_that_is_free_to_send(toy: Record) -> None:
    record = paused(toy, Pause(UP, DOWN, 0, 100 * MS), Pause(DOWN, ELSEWHERE, 0, 100 * MS))
    assert charged(record) == {ELSEWHERE}


def test_a_short_pause_does_not_make_another_the_cause(toy: Record) -> None:
    # 5 us of each 100 us between two records of progress.
    pauses = [Pause(UP, ELSEWHERE, at, at + 5_000) for at in range(50_000, 10 * MS, 100_000)]
    assert charged(paused(toy, *pauses)) == {UP}


def of_interval(record: Record, link: str, start_ns: int, end_ns: int) -> str:
    links = {item.name: item for item in record.plan.topology.all_links}
    names = list(links)
    found = roots(
        record, np.array([names.index(link)]), np.array([float(start_ns)]), np.array([float(end_ns)]), links
    )
    return names[int(found[0])]


def test_of_two_causes_the_one_that_held_longer(toy: Record) -> None:
    record = paused(toy, Pause(UP, DOWN, 0, 40), Pause(UP, ELSEWHERE, 30, 100))
    assert of_interval(record, UP, 0, 100) == ELSEWHERE
    assert of_interval(record, UP, 0, 50) == DOWN


def test_the_root_is_that_of_the_interval(toy: Record) -> None:
    record = paused(toy, Pause(UP, DOWN, 0, 100), Pause(DOWN, ELSEWHERE, 200, 300))
    assert of_interval(record, UP, 0, 100) == DOWN
    assert of_interval(record, UP, 100, 200) == UP


def test_a_circle_has_an_end(toy: Record) -> None:
    record = paused(toy, Pause(UP, DOWN, 0, 100), Pause(DOWN, UP, 0, 100))
    assert of_interval(record, UP, 0, 100) in (UP, DOWN)


def test_nobody_stays_nobody(toy: Record) -> None:
    record = paused(toy, Pause(UP, DOWN, 0, 100))
    links = {item.name: item for item in record.plan.topology.all_links}
    found = roots(record, np.array([len(links)]), np.zeros(1), np.full(1, 100.0), links)
    assert found.tolist() == [len(links)]


# ---- figures --------------------------------------------------------------------------


def test_pauses_are_counted_by_port_and_in_all(toy: Record) -> None:
    record = paused(
        toy, Pause(UP, DOWN, 0, 2 * MS), Pause(UP, DOWN, 3 * MS, 4 * MS), Pause(NIC, UP, MS, 5 * MS)
    )
    assert link_pauses(record, UP) == {"count": 2, "total_ms": 3, "longest_ms": 2, "by": {DOWN: 3}}
    assert link_pauses(record, LAST) == {"count": 0, "total_ms": 0, "longest_ms": 0, "by": {}}
    assert summarise_pauses(record, {}) == {
        "lossless": True, "count": 3, "total_ms": 7, "longest_ms": 4, "links": 2, "first_ms": 0,
        "first_by": DOWN, "roots": [DOWN], "last_end_ms": 5, "deadlock": None,
        "victims": {"count": 0, "worst": None},
    }  # fmt: skip


def test_a_fabric_that_drops_has_no_pauses(toy: Record) -> None:
    found = summarise(toy)
    assert (found["pauses"]["lossless"], found["pauses"]["count"]) == (False, 0)
    assert found["links"][UP]["pauses"] == {"count": 0, "total_ms": 0, "longest_ms": 0, "by": {}}


def test_a_lossless_fabric_without_a_pause_has_none_to_show(toy: Record) -> None:
    found = summarise_pauses(paused(toy), {})
    assert (found["lossless"], found["count"], found["first_by"], found["roots"]) == (True, 0, None, [])


def test_a_victim_is_who_waited_for_a_queue_that_is_not_on_its_way(toy: Record) -> None:
    first, second = toy.plan.transfers[:2]
    ideal_ns = first.ideal_ns
    lost = {first.id: {DOWN: 0.2 * ideal_ns, UP: 0.3 * ideal_ns}, second.id: {DOWN: 0.05 * ideal_ns}}
    victims = summarise_pauses(paused(toy), lost)["victims"]
    worst = {"id": first.id, "from": first.src, "to": first.dst, "link": UP}
    assert victims == {"count": 1, "worst": worst | {"lost_ms": pytest.approx(0.5 * ideal_ns / MS)}}
    lost[second.id] = {DOWN: ideal_ns}
    victims = summarise_pauses(paused(toy), lost)["victims"]
    assert (victims["count"], victims["worst"]["id"]) == (2, second.id)


def test_the_way_of_a_victim_is_the_measured_one(toy: Record) -> None:
    losses = transfer_losses(toy)
    assert set(off_path(toy, losses)) == {loss.id for loss in losses}
    assert not any(off_path(toy, losses).values())  # nobody was paused: all was lost on the way
    elsewhere = replace(toy, paths={losses[0].id: ("p9-leaf9",)})
    assert off_path(elsewhere, losses) == {losses[0].id: dict(losses[0].by_link)}


# ---- fidelity -------------------------------------------------------------------------


def with_column(record: Record, link: str, field: str, values: np.ndarray) -> Record:
    """The record with other samples of one field of one link; `values` from the first sample on."""
    groups = []
    for group in record.groups:
        rows = np.array(group.rows)
        if link in group.links:
            width = len(layout.SAMPLE_FIELDS)
            rows[:, 1 + group.links.index(link) * width + layout.SAMPLE_FIELDS.index(field)] = values[
                : len(rows)
            ]
        groups.append(SampleGroup(group.name, group.links, rows))
    return replace(record, groups=tuple(groups))


def test_drops_in_a_lossless_fabric_make_the_run_invalid(toy: Record) -> None:
    drops = np.minimum(np.arange(100_000), 3)
    record = with_column(paused(toy), UP, "drops", drops)
    assert check_lossless(record).detail == "queues of a lossless fabric dropped packets: leaf1-spine1 (3)"
    assert not check_lossless(record).ok
    assert check_lossless(paused(toy)).ok
    assert check_lossless(with_column(toy, UP, "drops", drops)).ok


def test_a_deadlock_makes_the_run_invalid_and_is_told(toy: Record) -> None:
    check = check_lossless(paused(toy, deadlock=Deadlock(2 * MS, (UP, "spine1-leaf1"))))
    assert not check.ok
    assert check.detail == (
        "deadlock, found 2 ms into the run: leaf1-spine1 held by spine1-leaf1 held by leaf1-spine1"
    )


def test_a_held_port_need_not_send_at_its_rate(toy: Record) -> None:
    series = toy.series(UP)
    stands = with_column(toy, UP, "backlog_bytes", np.full(100_000, 1_000_000))
    halved = with_column(stands, UP, "bytes", np.array(series.bytes // 2))
    assert not check_rates(halved).ok
    held = paused(halved, Pause(UP, DOWN, int(series.time_ns[0]), int(series.time_ns[-1])))
    assert check_rates(held).ok
