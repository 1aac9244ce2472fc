"""What is said of pauses: in the plan, in the terminal and on the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.analysis import transfer_losses
from testbed.analysis.summary import summarise
from testbed.plan.model import PausePoint, Pausing
from testbed.record.pauses import Deadlock, Pause, Pausings, Spans
from testbed.record.reader import Record
from testbed.report.linkchart import Window, bin_link
from testbed.report.page import render_report
from testbed.report.pauses import PauseRow, plan_rows, rows, sentence
from testbed.terminal import plan_text, summary_text
from tests.support.lab import small_plan
from tests.support.synthetic import incast, write_record

MS = 1_000_000
DOWN, LAST, UP = "spine1-leaf3", "leaf3-d1", "leaf1-spine1"
PAUSES = (Pause(DOWN, LAST, 0, 2 * MS), Pause(DOWN, LAST, 3 * MS, 4 * MS), Pause(UP, DOWN, MS, 2 * MS))


@pytest.fixture(scope="module")
def dropping(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return Record.open(write_record(tmp_path_factory.mktemp("incast"), incast()))


def lossless(record: Record, *pauses: Pause, deadlock: Deadlock | None = None) -> Record:
    points = (PausePoint(LAST, 2_000_000, 1_000_000, 0, (DOWN,)),)
    plan = replace(record.plan, pausing=Pausing(points, 1))
    return replace(record, plan=plan, pausings=Pausings(pauses, deadlock))


def said(record: Record) -> str:
    return sentence(summarise(record)["pauses"]).replace("\N{NO-BREAK SPACE}", " ")


def page(record: Record) -> str:
    return render_report(record, summarise(record), transfer_losses(record))


def terminal(summary: dict[str, Any]) -> str:
    return summary_text(summary, [], Path("runs/x")).replace("\N{NO-BREAK SPACE}", " ")


# ---- the plan -------------------------------------------------------------------------


def test_a_plan_says_what_its_queues_pause() -> None:
    plan = small_plan("fabric.lossless=true", "fabric.spines=1", "fabric.fabric_link.rate=200gbit")
    cells = [[cell.replace("\N{NO-BREAK SPACE}", " ") for cell in row] for row in plan_rows(plan)]
    assert cells == [
        ["source-leaf", "1", "2 MB", "1 MB", "142 kB", "2 links"],
        ["spine", "1", "2 MB", "1 MB", "83.4 kB", "1 link"],
        ["dest-leaf", "1", "2 MB", "1 MB", "83.4 kB", "1 link"],
    ]
    assert "pauses of" in plan_text(plan)


def test_the_plan_of_a_fabric_that_drops_does_not_speak_of_pauses() -> None:
    assert plan_rows(small_plan()) == []
    assert "pauses of" not in plan_text(small_plan())


# ---- the sentence ---------------------------------------------------------------------


def test_who_was_paused_is_said_with_its_cause(dropping: Record) -> None:
    record = lossless(dropping, *PAUSES)
    assert said(record) == "2 ports 3 times, 4 ms in all, 2 ms at a stretch; leaf3-d1 began it"
    assert "paused      2 ports 3 times" in terminal(summarise(record))


def test_a_victim_is_named_with_the_queue_it_waited_for(dropping: Record) -> None:
    pauses = summarise(lossless(dropping, *PAUSES))["pauses"]
    worst = {"id": 4, "from": "p4", "to": "d2", "lost_ms": 2.5, "link": LAST}
    for count, more in ((1, ""), (3, ", and 2 others waited so")):
        text = sentence(pauses | {"victims": {"count": count, "worst": worst}})
        end = f"; its victim: p4 to d2 lost 2.5 ms to leaf3-d1, which is not on its way{more}"
        assert text.replace("\N{NO-BREAK SPACE}", " ").endswith(f"leaf3-d1 began it{end}")


def test_one_pause_of_one_port(dropping: Record) -> None:
    record = lossless(dropping, PAUSES[0])
    assert said(record) == "1 port 1 time, 2 ms in all, 2 ms at a stretch; leaf3-d1 began it"


def test_that_nobody_was_paused_is_said(dropping: Record) -> None:
    assert said(lossless(dropping)) == "nobody: no queue reached XOFF"
    assert "PFC risk" not in terminal(summarise(lossless(dropping)))


def test_a_deadlock_is_said_with_its_circle(dropping: Record) -> None:
    record = lossless(dropping, *PAUSES, deadlock=Deadlock(5 * MS, (UP, DOWN)))
    assert said(record) == (
        "deadlock 5 ms into the run: leaf1-spine1 held by spine1-leaf3 held by leaf1-spine1"
    )
    assert '<p class="alert">The fabric is lossless' in page(record)


def test_of_a_fabric_that_drops_nothing_is_said(dropping: Record) -> None:
    assert said(dropping) == ""
    assert "paused  " not in terminal(summarise(dropping))
    assert "Who was paused" not in page(dropping)


# ---- the page -------------------------------------------------------------------------


def test_the_table_has_the_longest_held_first(dropping: Record) -> None:
    assert rows(summarise(lossless(dropping, *PAUSES))) == [
        PauseRow(DOWN, "spine", 2, 3.0, 2.0, (LAST,)),
        PauseRow(UP, "source-leaf", 1, 1.0, 1.0, (DOWN,)),
    ]


def test_the_page_names_the_cause_and_draws_when_a_port_was_held(dropping: Record) -> None:
    text = page(lossless(dropping, *PAUSES))
    assert "and so the cause: leaf3-d1." in text
    assert text.count('class="lane held"') == 2
    assert "PFC paused the sender" in text or "XOFF crossed" not in text
    assert 'class="lane held"' not in page(dropping)


def test_each_bin_has_the_part_of_it_that_a_port_was_held(dropping: Record) -> None:
    held = Spans.of([Pause(DOWN, LAST, 0, 15), Pause(DOWN, LAST, 25, 30)])
    bins = bin_link(dropping.series(DOWN), 1e9, Window(0, 40, 4), held)
    assert bins.held_percent.tolist() == [100, 50, 50, 0]
    assert not np.any(bin_link(dropping.series(DOWN), 1e9, Window(0, 40, 4)).held_percent)
