"""The report's chain of evidence: what happened when, each transfer by itself, each pair of hosts."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.analysis import summarise, transfer_losses
from testbed.analysis.losses import CAUSES, Timeline
from testbed.record.reader import Record
from testbed.report import render_report
from testbed.report.chain import chain
from testbed.report.follow import _hanging, binned, follow
from testbed.report.headline import figures
from testbed.report.heatmap import heatmap
from testbed.report.stretches import stretches
from testbed.report.transfers import transfer_rows
from tests.support import synthetic

SPACE = "\N{NO-BREAK SPACE}"


def record_of(name: str, folder: Path) -> Record:
    return Record.open(synthetic.write_record(folder, synthetic.CASES[name]()))


@pytest.fixture(scope="module")
def incast(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return record_of("incast", tmp_path_factory.mktemp("incast"))


def page_of(record: Record, summary: dict[str, Any] | None = None) -> str:
    return render_report(record, summary or summarise(record), transfer_losses(record))


def test_the_moments_stand_in_the_order_of_time_over_the_accused_queue(incast: Record) -> None:
    found = chain(incast, summarise(incast))
    assert [(moment.text, moment.where, moment.at_ms) for moment in found.moments[:3]] == [
        ("the burst began", "", 0.0),
        ("first CE mark", "leaf3-d1", 0.02),
        ("the accused queue peaked", "leaf3-d1", 0.46),
    ]
    assert found.link == "leaf3-d1"
    assert found.missing == ("no sender slowed down", "XOFF was not reached")
    assert 'aria-label="Queue of leaf3-d1 from the burst on: peak 195' in str(found.drawing)
    assert str(found.drawing).count('<path class="moment ') == 3  # the last end is far to the right


def test_numbers_over_the_drawing_do_not_cover_each_other(incast: Record) -> None:
    summary = summarise(incast)
    summary["events"]["first_slowdown_ms"] = 0.0201
    summary["events"]["first_slowdown_host"] = "p3"
    shown = [moment for moment in chain(incast, summary).moments if moment.left <= 1]
    assert [moment.kind for moment in shown] == ["start", "ce", "slow", "peak"]
    assert shown[2].number_left - shown[1].number_left == pytest.approx(0.022)
    assert shown[2].left - shown[1].left < 0.001


def test_crossings_of_xoff_are_said_with_their_times(incast: Record) -> None:
    summary = summarise(incast)
    crossed = {"first_ms": 0.04, "crossings": 2, "total_ms": 0.06, "longest_ms": 0.04}
    summary["events"]["xoff"] = {**crossed, "link": "leaf3-d1", "links": 2}
    summary["events"]["links"]["leaf3-d1"]["xoff"] = crossed
    texts = [moment.text for moment in chain(incast, summary).moments]
    assert texts[2] == (
        "XOFF crossed: PFC would have paused the sender (2 times on 2 links; "
        f"60{SPACE}\N{MICRO SIGN}s above, 40{SPACE}\N{MICRO SIGN}s at a stretch)"
    )
    risks = {part.segment: part.risk for part in stretches(summary)}
    assert risks["source-rail"] is None  # a host's own egress is nobody's to pause
    assert risks["spine"] is not None
    assert (risks["spine"].crossings, risks["spine"].link) == (0, None)
    assert risks["dest-leaf"] is not None
    assert (risks["dest-leaf"].crossings, risks["dest-leaf"].link) == (2, "leaf3-d1")
    assert "PFC risk: XOFF crossed 2 times" in page_of(incast, summary)


def test_nobody_accused_has_moments_and_no_drawing(tmp_path: Path) -> None:
    record = record_of("baseline", tmp_path)
    found = chain(record, summarise(record))
    assert (found.drawing, found.link) == (None, None)
    assert [moment.kind for moment in found.moments] == ["start", "end"]
    assert found.missing == ("no CE mark was set", "no sender slowed down", "XOFF was not reached")
    unwatched = tuple(replace(queue, xoff_bytes=None) for queue in record.plan.queues)
    blind = replace(record, plan=replace(record.plan, queues=unwatched))
    assert chain(blind, summarise(blind)).missing == ("no CE mark was set", "no sender slowed down")


def test_the_naive_reading_stands_beside_the_verdict(tmp_path: Path) -> None:
    page = page_of(record_of("shared-rail", tmp_path / "rail"))
    beside = r"</h1>\s*<p class=\"naive\"><b>Mean utilisation alone would have said:</b> ([^<]*)</p>"
    assert re.findall(beside, page) == [f"p1-leaf1 is the busiest link, 99{SPACE}% utilised."]
    page = page_of(record_of("slow-landing", tmp_path / "landing"))
    assert re.findall(beside, page) == [f"no link is above 25{SPACE}%: the network has room to spare."]


def test_both_culprits_are_marked_on_the_path(tmp_path: Path) -> None:
    parts = stretches(summarise(record_of("two-culprits", tmp_path)))
    assert [part.segment for part in parts if part.accused] == ["source-rail", "dest-leaf"]
    assert {part.segment: part.worst for part in parts if part.accused} == {
        "source-rail": "p4g1-p4",
        "dest-leaf": "leaf3-d1",
    }


def test_a_port_s_p99_stands_between_its_peak_and_the_mean_of_all(incast: Record) -> None:
    queue = next(part.queue for part in stretches(summarise(incast)) if part.segment == "dest-leaf")
    assert queue is not None
    assert queue.p99 is not None
    assert queue.peak >= queue.p99 > queue.mean
    assert queue.p99_bar == pytest.approx(queue.p99 / queue.peak)


def test_a_bin_has_the_share_received_and_the_cause_that_cost_most() -> None:
    spine, sender, nothing = (CAUSES.index(name) for name in ("spine", "sender", "nothing"))
    line = Timeline(
        np.array([0.0, 100, 200, 300]),
        np.array([100.0, 200, 300, 400]),
        np.array([nothing, spine, sender, nothing]),
        np.array([0.0, 25, 75, 100]),
    )
    share, cause = binned(line, 100, np.array([0.0, 100, 250, 300, 400]))
    assert share.tolist() == pytest.approx([0, (25 + 37.5) / 150, 0.75, 1])
    assert cause.tolist() == [nothing, spine, sender, nothing]


def test_bars_hang_from_the_top_and_neighbours_are_joined() -> None:
    assert _hanging(np.array([0, 30, 30, 10, 0, 0, 5])) == "M1 0V30h2V10h1V0zM6 0V5h1V0z"
    assert _hanging(np.array([7, 0])) == "M0 0V7h1V0z"
    assert _hanging(np.array([0, 0])) == ""


def test_a_coloured_area_is_the_time_lost(incast: Record) -> None:
    losses = transfer_losses(incast)
    for loss in losses:
        line_bps = incast.plan.transfers[loss.id].wire_bytes * 8e9 / loss.wire_ns
        edges = np.linspace(loss.timeline.start_ns[0], loss.timeline.end_ns[-1], 241)
        share, cause = binned(loss.timeline, line_bps, edges)
        area = ((1 - share) * np.diff(edges))[cause == CAUSES.index("dest-leaf")].sum()
        assert area == pytest.approx(loss.by_segment["dest-leaf"], rel=0.01)


def test_the_slowest_come_first_and_three_are_shown_without_a_script(incast: Record) -> None:
    losses = transfer_losses(incast)
    found = follow(transfer_rows(incast, losses), losses)
    slowdowns = [one.row.slowdown or 0 for one in found]
    assert slowdowns == sorted(slowdowns, reverse=True)
    assert [one.shown for one in found] == [True] * 3 + [False] * 5
    assert found[0].lost[0][0] == "dest-leaf"
    assert found[0].rate == f"100{SPACE}Gbit/s"
    page = page_of(incast)
    assert page.count('<figure class="followed"') == 8
    assert len(re.findall(r'<figure class="followed" id="transfer-\d+" data-slowest>', page)) == 3
    assert len(re.findall(r'<figure class="followed" id="transfer-\d+" hidden>', page)) == 5


def test_without_losses_nobody_is_followed(incast: Record) -> None:
    assert follow(transfer_rows(incast, []), []) == ()
    assert '<figure class="followed"' not in render_report(incast, summarise(incast), [])


def _pairs(**p99: float) -> dict[str, Any]:
    times = {name.replace("_", "->"): {"p50": 1.0, "p99": value} for name, value in p99.items()}
    return {"ttft_ms": {"by_pair": times}, "verdict": {}}


def test_pairs_are_darker_the_longer_they_wait() -> None:
    found = heatmap(_pairs(p1_d1=1.0, p2_d1=2.0, p10_d2=3.0))
    assert found is not None
    assert found.decode == ("d1", "d2")
    assert [host for host, _ in found.rows] == ["p1", "p2", "p10"]
    heats = [[cell and cell.heat for cell in cells] for _, cells in found.rows]
    assert heats == [[0.0, None], [0.5, None], [None, 1.0]]


def test_pairs_that_are_alike_have_the_same_shade() -> None:
    for high, heat in ((1.05, 0.0), (1.06, 1.0)):
        found = heatmap(_pairs(p1_d1=1.0, p2_d1=high))
        assert found is not None
        assert [cell and cell.heat for _, cells in found.rows for cell in cells] == [0.0, heat]


def test_of_many_hosts_those_that_wait_longest_are_shown() -> None:
    found = heatmap(_pairs(**{f"p{i}_d{i}": float(i) for i in range(1, 26)}))
    assert found is not None
    assert found.decode == tuple(f"d{i}" for i in range(6, 26))
    assert found.left_out == 10


def test_a_single_pair_has_no_map() -> None:
    assert heatmap(_pairs(p1_d1=1.0)) is None


def test_a_pair_s_edge_has_the_colour_of_its_culprit(tmp_path: Path) -> None:
    found = heatmap(summarise(record_of("two-culprits", tmp_path)))
    assert found is not None
    edges = {src: [cell.limiting for cell in cells if cell] for src, cells in found.rows}
    assert edges == {
        **{src: ["dest-leaf"] for src in ("p1", "p2", "p3")},
        **{src: ["source-rail"] for src in ("p4", "p5", "p6")},
    }


@pytest.mark.parametrize(
    ("end", "beside"),
    [
        (43.6, "ideal 43.6 ms (the same)"),
        (43.58, "ideal 43.6 ms (the same)"),
        (40.0, "ideal 43.6 ms (\N{MINUS SIGN}8.3 %)"),
        (87.2, "ideal 43.6 ms (+100 %)"),
        (872.0, "ideal 43.6 ms (20 times as long)"),
    ],
)
def test_the_last_end_beside_its_ideal(incast: Record, end: float, beside: str) -> None:
    summary = summarise(incast)
    summary["transfers"] |= {"last_end_ms": end, "ideal_last_end_ms": 43.6}
    tile = next(figure for figure in figures(summary) if figure.name == "Last end")
    assert tile.beside.replace(SPACE, " ") == beside
    assert "-" not in tile.beside  # a line may end behind a hyphen
