"""Pauses from the lab's rows to spans of scenario time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from testbed.plan.model import Pausing
from testbed.record import layout
from testbed.record.codec import Damage
from testbed.record.pauses import Deadlock, Pause, Pausings, Spans, parse_deadlock, parse_pauses
from testbed.record.rails import sends_at_its_rate
from testbed.record.reader import Record
from tests.support.fluid import Case
from tests.support.synthetic import incast, reseal, write_record

CASE = incast(2)
NAMES = [link.name for link in CASE.plan.topology.all_links]
DOWN, LAST = NAMES.index("spine1-leaf3"), NAMES.index("leaf3-d1")
UP = NAMES.index("leaf1-spine1")


def parsed(*rows: tuple[int, int, int, int], last_ns: int = 900, dilation: float = 1) -> tuple[Pause, ...]:
    plan = replace(CASE.plan, dilation=dilation)
    return parse_pauses(np.array(rows, np.int64).reshape(-1, 4), plan, last_ns)


def test_a_pause_is_from_its_hold_to_its_release() -> None:
    rows = [(100, DOWN, LAST, 1), (150, UP, DOWN, 1), (200, DOWN, LAST, 0), (260, UP, DOWN, 0)]
    assert parsed(*rows) == (
        Pause("spine1-leaf3", "leaf3-d1", 100, 200),
        Pause("leaf1-spine1", "spine1-leaf3", 150, 260),
    )


def test_a_pause_that_did_not_end_ends_with_the_samples() -> None:
    assert parsed((100, DOWN, LAST, 1)) == (Pause("spine1-leaf3", "leaf3-d1", 100, 900),)


def test_times_are_scenario_time() -> None:
    assert parsed((100, DOWN, LAST, 1), (200, DOWN, LAST, 0), dilation=10) == (
        Pause("spine1-leaf3", "leaf3-d1", 10, 20),
    )


def test_a_link_that_the_plan_does_not_have_is_damage() -> None:
    with pytest.raises(Damage, match=f"pauses have link number 9999 of {len(NAMES)}"):
        parsed((100, 9999, LAST, 1))


def test_spans_that_touch_or_overlap_are_one() -> None:
    pauses = [
        Pause("a", "b", 0, 10),
        Pause("a", "c", 5, 20),
        Pause("a", "b", 20, 25),
        Pause("a", "b", 40, 41),
    ]
    spans = Spans.of(pauses)
    assert spans.start_ns.tolist() == [0, 40]
    assert spans.end_ns.tolist() == [25, 41]


def test_how_much_of_an_interval_is_held() -> None:
    spans = Spans.of([Pause("a", "b", 10, 20), Pause("a", "b", 30, 50)])
    begin, end = np.array([0, 15, 0, 20, 50, 45]), np.array([10, 35, 100, 30, 90, 46])
    assert spans.within_ns(begin, end).tolist() == [0, 10, 30, 0, 0, 1]
    assert Spans.of([]).within_ns(begin, end).tolist() == [0] * 6


def test_pauses_of_a_port_are_known_by_their_cause_and_in_all() -> None:
    pausings = Pausings((Pause("a", "b", 0, 10), Pause("a", "c", 5, 20), Pause("b", "c", 1, 2)))
    assert {name: list(causes) for name, causes in pausings.by_link.items()} == {"a": ["b", "c"], "b": ["c"]}
    assert pausings.held["a"].lengths_ns.tolist() == [20]
    assert pausings.by_link["a"]["c"].lengths_ns.tolist() == [15]


def test_a_nic_that_is_held_is_full() -> None:
    nic = CASE.plan.topology.link("p1-leaf1")
    times, sent = np.array([0, 1000, 2000, 3000]), np.array([0, 12_500, 12_500, 18_750])
    held = Spans.of([Pause("p1-leaf1", "leaf1-spine1", 1000, 2500)])
    assert sends_at_its_rate(nic, times, sent).tolist() == [False, True, False, False]
    assert sends_at_its_rate(nic, times, sent, held).tolist() == [False, True, True, True]


# ---- the file -------------------------------------------------------------------------


def record_of(folder: Path, rows: list[tuple[int, int, int, int]], deadlock: object = None) -> Record:
    case = Case(replace(CASE.plan, pausing=Pausing((), 1)), CASE.paths, CASE.sender_bps)
    write_record(folder, case)
    np.array(rows, "<i8").tofile(folder / layout.PAUSES)
    if deadlock is not None:
        (folder / layout.DEADLOCK).write_text(json.dumps(deadlock))
    reseal(folder)
    return Record.open(folder)


def test_a_record_has_its_pauses_and_its_deadlock(tmp_path: Path) -> None:
    found = {"time_ns": 300, "links": ["leaf1-spine1", "spine1-leaf1"]}
    record = record_of(tmp_path, [(100, DOWN, LAST, 1), (200, DOWN, LAST, 0)], found)
    assert record.pausings.pauses == (Pause("spine1-leaf3", "leaf3-d1", 100, 200),)
    assert record.pausings.deadlock == Deadlock(300, ("leaf1-spine1", "spine1-leaf1"))
    assert record.problems == ()


def test_a_record_of_a_fabric_that_drops_has_none(tmp_path: Path) -> None:
    record = Record.open(write_record(tmp_path, CASE))
    assert record.pausings.pauses == ()
    assert record.problems == ()


def test_pauses_that_are_missing_are_a_problem(tmp_path: Path) -> None:
    record_of(tmp_path, [])
    (tmp_path / layout.PAUSES).unlink()
    reseal(tmp_path)
    assert Record.open(tmp_path).problems == ("raw/pauses.bin is missing",)


@pytest.mark.parametrize("found", [{}, {"time_ns": "soon", "links": []}, {"time_ns": 1, "links": "a"}])
def test_a_deadlock_that_makes_no_sense_is_damage(found: dict[str, object]) -> None:
    with pytest.raises(Damage, match="the deadlock has no time or no links"):
        parse_deadlock(found, CASE.plan)
