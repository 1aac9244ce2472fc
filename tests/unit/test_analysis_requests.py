"""TTFT in parts, from a record of a serving run made by hand: three requests, one of them given up."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.analysis import transfer_losses
from testbed.analysis.requests import PARTS
from testbed.analysis.summary import summarise, write_outputs
from testbed.record import layout
from testbed.record.reader import Record
from testbed.report import write_report
from testbed.report.numbers import format_ms, format_percent
from testbed.report.requests import bars, scaled_words
from testbed.scenario.summary_keys import Names, unknown_key
from testbed.terminal import summary_text
from tests.support.serving import job, serving
from tests.support.synthetic import MIB, reseal, slow_landing, write_record

SIZE = 16 * MIB
MS = 1_000_000


def moments(**changes: Any) -> dict[str, Any]:
    base = {
        "arrival_ns": -4 * MS,
        "prefill_start_ns": -3 * MS,
        "prefill_end_ns": 0,
        "admitted_ns": 15 * MS,
        "first_token_ns": 17 * MS,
        "ended_ns": None,
        "error": None,
        "store_host": "",
        "cached_blocks": 0,
        "decode_host": "d1",
        "bytes": SIZE,
    }
    return base | changes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two hosts send to one whose landing takes 25 Gbit/s; a third request moved nothing, a fourth failed."""
    case = slow_landing(SIZE)
    jobs = tuple(replace(job(number, size=SIZE), prefill_ns=3 * MS) for number in range(4))
    system = serving(
        *jobs, slo_ttft_ns=20 * MS, decode_hosts=("d1",), step_ns=2 * MS, size_factor=0.5, store_hosts=()
    )
    transfers = tuple(replace(transfer, request=transfer.id) for transfer in case.plan.transfers)
    transfers = tuple(replace(one, src_port=20_000 + one.id) for one in transfers)
    case = replace(case, plan=replace(case.plan, transfers=transfers, serving=system))
    folder = write_record(tmp_path / "record", case)
    outcomes = json.loads((folder / layout.OUTCOMES).read_text())
    for row in outcomes:
        row["planned_start_ns"] = 0
    (folder / layout.OUTCOMES).write_text(json.dumps(outcomes))
    requests = [
        moments(id=0, prefill_host="p1", landed_ns=outcomes[0]["end_ns"]),
        moments(id=1, prefill_host="p2", landed_ns=outcomes[1]["end_ns"]),
        moments(
            id=2,
            prefill_host="p1",
            landed_ns=0,
            admitted_ns=0,
            first_token_ns=2 * MS,
            bytes=0,
            cached_blocks=3,
        ),
        moments(
            id=3, prefill_host="p2", landed_ns=None, admitted_ns=None, first_token_ns=None, error="given up"
        ),
    ]
    plain = [dict(vars(transfer)) for transfer in transfers]
    (folder / layout.REQUESTS).write_text(json.dumps({"requests": requests, "transfers": plain}))
    reseal(folder)
    return folder


def test_the_parts_add_up_to_the_nanosecond(folder: Path) -> None:
    write_outputs(Record.open(folder))
    rows = list(csv.DictReader(io.StringIO((folder / layout.REQUESTS_TABLE).read_text())))
    assert [row["ttft_ms"] for row in rows] == ["21.000000", "21.000000", "6.000000", ""]
    for row in rows[:3]:
        whole_ns = sum(round(float(row[f"{part}_ms"]) * 1e6) for part in PARTS)
        assert whole_ns == round(float(row["ttft_ms"]) * 1e6)
    assert rows[3]["error"] == "given up"
    assert (rows[2]["transfer_ms"], rows[2]["slowdown"]) == ("0.000000", "")


def test_landing_is_what_was_lost_before_the_gpu(folder: Path) -> None:
    record = Record.open(folder)
    assert record.problems == ()
    parts = summarise(record)["requests"]["parts"]
    # Both share 25 Gbit/s where each alone would have had 100: three quarters of the hand-over and more.
    assert parts["landing"]["mean_ms"] > 3 * parts["transfer"]["mean_ms"]
    assert sum(part["share"] for part in parts.values()) == pytest.approx(1)


def test_requests_in_the_summary(folder: Path) -> None:
    summary = summarise(Record.open(folder))
    requests = summary["requests"]
    assert (requests["count"], requests["completed"], requests["not_moved"]) == (4, 3, 1)
    assert requests["slo"] == {"ttft_ms": 20.0, "attained": 0.25}
    assert requests["cached_blocks"] == 3
    assert requests["jain"] == pytest.approx(1, abs=1e-3)
    assert requests["contended_ms"]["p50"] > 7 * requests["isolated_ms"]["p50"]
    assert summary["ttft_ms"]["count"] == 4
    assert summary["ttft_ms"]["max"] == 21.0
    assert set(summary["ttft_ms"]["by_pair"]) == {"p1->d1", "p2->d1"}
    hosts = tuple(host.name for host in Record.open(folder).plan.topology.hosts)
    names = Names(tuple(summary["links"]), hosts)
    assert [path for path in _paths({"requests": requests}) if unknown_key(path, names)] == []


def _paths(tree: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(tree, dict):
        return [path]
    return [found for key, below in tree.items() for found in _paths(below, (*path, key))]


def test_the_page_and_the_terminal_show_every_part(folder: Path) -> None:
    record = Record.open(folder)
    summary = summarise(record)
    page = write_report(record, summary, transfer_losses(record)).read_text()
    assert "Time to the first token, part by part" in page
    assert "every transfer has 0.5 of its bytes" in page
    assert [bar.name for bar in bars(summary)] == ["all", "d1"]
    assert max(sum(part.width for part in bar.parts) for bar in bars(summary)) == pytest.approx(1)
    text = summary_text(summary, [], folder)
    assert f"{format_percent(0.25)} within {format_ms(20.0)}" in text
    assert max(map(len, text.splitlines()[:-1])) <= 80


def test_without_a_serving_system_there_is_nothing_to_show(tmp_path: Path) -> None:
    record = Record.open(write_record(tmp_path / "record", slow_landing(MIB)))
    summary = summarise(record)
    assert "requests" not in summary
    assert (bars(summary), scaled_words(summary)) == ((), "")
    write_outputs(record)
    assert not (record.path / layout.REQUESTS_TABLE).exists()


def test_a_record_without_its_requests_is_damaged_and_opens(folder: Path) -> None:
    (folder / layout.REQUESTS).write_text("{}")
    reseal(folder)
    record = Record.open(folder)
    assert any("raw/requests.json" in problem for problem in record.problems)
    assert summarise(record)["requests"]["completed"] == 0
