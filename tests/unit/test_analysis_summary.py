"""The summary as a whole: its keys, its figures, and files that are the same bytes every time."""

from __future__ import annotations

import csv
import errno
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from testbed.analysis import summarise, transfer_losses, write_outputs
from testbed.analysis.summary import TRANSFER_COLUMNS, transfers_csv
from testbed.record import layout
from testbed.record.reader import Progress, Record
from tests.support.synthetic import CASES, edit_json, hot_spine, incast, write_record

CASE = incast(senders=4, size=4 << 20)


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record.open(write_record(tmp_path / "run", CASE))


def test_the_keys_are_those_of_the_contract(record: Record) -> None:
    summary = summarise(record)
    assert set(summary) >= {
        "format_version", "scenario", "seed", "backend", "clock", "dilation",
        "transfers", "ttft_ms", "links", "verdict", "fidelity",
    }  # fmt: skip
    five = {"mean", "p50", "p95", "p99", "max"}
    assert set(summary["transfers"]) >= {"count", "completed", "bytes", "last_end_ms", "ideal_last_end_ms"}
    assert all(set(summary["transfers"][name]) == five for name in ("fct_ms", "ideal_ms", "slowdown"))
    assert set(summary["ttft_ms"]) == {"count", *five, "by_decode", "by_pair"}
    assert set(summary["links"]["leaf3-d1"]) >= {
        "segment", "from", "to", "rate_bps", "bytes", "utilisation", "queue_bytes", "ce_marks", "drops",
    }  # fmt: skip
    assert set(summary["verdict"]) >= {"segment", "link", "share", "shares", "text"}
    assert set(summary["fidelity"]) >= {"valid", "reasons"}


def test_transfers_are_counted_timed_and_compared_with_their_ideal(record: Record) -> None:
    found = summarise(record)["transfers"]
    outcome, transfer = record.outcomes[0], record.plan.transfers[0]
    assert outcome.end_ns is not None
    assert (found["count"], found["completed"], found["bytes"]) == (4, 4, 16 << 20)
    assert found["fct_ms"]["p99"] == pytest.approx(outcome.end_ns / 1e6, rel=1e-8)
    assert found["slowdown"]["max"] == pytest.approx(outcome.end_ns / transfer.ideal_ns, rel=1e-8)
    assert found["last_end_ms"] == pytest.approx(outcome.end_ns / 1e6, rel=1e-8)
    assert found["ideal_last_end_ms"] == pytest.approx(record.plan.ideal_last_end_ns / 1e6, rel=1e-8)
    assert found["jain"] == pytest.approx(1)


def test_a_transfer_that_failed_counts_but_has_no_time(record: Record) -> None:
    edit_json(record.path, layout.OUTCOMES, lambda outcomes: outcomes[2].update(end_ns=None, error="reset"))
    summary = summarise(Record.open(record.path))
    assert (summary["transfers"]["count"], summary["transfers"]["completed"]) == (4, 3)
    assert summary["transfers"]["bytes"] == 12 << 20
    assert summary["ttft_ms"]["count"] == 4
    assert sorted(summary["ttft_ms"]["by_pair"]) == ["p1->d1", "p2->d1", "p4->d1"]
    assert summary["fidelity"]["valid"] is False


def test_a_run_without_any_completed_transfer_has_a_summary(record: Record) -> None:
    failed = tuple(replace(outcome, end_ns=None) for outcome in record.outcomes)
    summary = summarise(replace(record, outcomes=failed))
    assert summary["transfers"]["fct_ms"]["p50"] is None
    assert summary["transfers"]["last_end_ms"] is None
    assert summary["verdict"]["segment"] is None
    assert summary["links"]["leaf3-d1"]["utilisation"]["mean"] > 0


def test_a_run_without_any_fact_has_a_summary(record: Record) -> None:
    for path in (record.path / layout.RAW).iterdir():
        path.unlink()
    summary = write_outputs(Record.open(record.path))
    assert summary["fidelity"]["valid"] is False
    assert summary["links"]["leaf3-d1"]["queue_bytes"]["mean"] is None


def test_time_to_first_token_is_split_by_decode_host_and_by_pair(tmp_path: Path) -> None:
    found = summarise(Record.open(write_record(tmp_path, hot_spine())))["ttft_ms"]
    assert list(found["by_decode"]) == ["d1", "d2", "d3", "d4"]
    assert found["by_pair"]["p4->d4"]["p50"] < found["by_pair"]["p1->d1"]["p50"]
    assert found["by_decode"]["d1"] == found["by_pair"]["p1->d1"]


def test_floats_have_nine_significant_digits(record: Record) -> None:
    text = json.dumps(summarise(record)["links"])
    digits = [word.strip("-0.").replace(".", "") for word in text.replace(",", " ").split() if "." in word]
    assert digits
    assert max(map(len, digits)) <= 10  # nine and a closing brace


def test_the_files_are_the_same_bytes_every_time_and_whatever_the_machine(
    record: Record, tmp_path: Path
) -> None:
    summary = write_outputs(record)
    again = write_record(tmp_path / "again", CASE)
    (again / layout.ENVIRONMENT).write_text('{"wall_clock": {"boot_s": 99.0}}')
    write_outputs(Record.open(again))
    for name in (layout.SUMMARY, layout.TRANSFERS):
        assert (record.path / name).read_bytes() == (again / name).read_bytes()
        assert b"\r" not in (again / name).read_bytes()
    assert json.loads((again / layout.SUMMARY).read_text()) == summary


def test_a_dilated_run_has_the_same_summary_but_for_its_clock(tmp_path: Path) -> None:
    true = summarise(Record.open(write_record(tmp_path / "true", CASE)))
    slow = summarise(Record.open(write_record(tmp_path / "slow", incast(4, 4 << 20, dilation=100))))
    assert (slow.pop("dilation"), slow.pop("clock"), true.pop("dilation"), true.pop("clock")) == (
        100, "real", 1, "virtual",
    )  # fmt: skip
    assert slow == true


def test_no_temporary_file_is_left_behind_and_an_old_summary_is_replaced(record: Record) -> None:
    (record.path / layout.SUMMARY).write_text("old")
    before = {path.name for path in record.path.iterdir()}
    write_outputs(record)
    assert {path.name for path in record.path.iterdir()} == before | {layout.TRANSFERS}
    assert (record.path / layout.SUMMARY).stat().st_mode & 0o777 == 0o644
    assert Record.open(record.path).problems == ()


def test_a_failed_write_leaves_the_old_file_and_no_other(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    def _refuse(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (record.path / layout.SUMMARY).write_text("old")
    before = sorted(path.name for path in record.path.iterdir())
    monkeypatch.setattr(Path, "rename", _refuse)
    with pytest.raises(OSError, match=r"^\[Errno 28\] No space left on device: '.*/summary\.json'$"):
        write_outputs(record)
    assert sorted(path.name for path in record.path.iterdir()) == before
    assert (record.path / layout.SUMMARY).read_text() == "old"


def test_the_table_has_a_line_for_each_transfer(record: Record) -> None:
    edit_json(
        record.path, layout.OUTCOMES, lambda outcomes: outcomes[2].update(end_ns=None, error="reset, twice")
    )
    record = Record.open(record.path)
    rows = list(csv.DictReader(transfers_csv(record, transfer_losses(record)).splitlines()))
    assert tuple(rows[0]) == TRANSFER_COLUMNS
    assert [row["id"] for row in rows] == ["0", "1", "2", "3"]
    first, failed = rows[0], rows[2]
    assert first["path"] == "p1-leaf1 leaf1-spine1 spine1-leaf3 leaf3-d1"
    assert (first["start_ms"], first["first_byte_ms"], first["congestion_control"]) == (
        "0.000000",
        "0.004000",
        "dctcp",
    )
    assert (failed["error"], failed["end_ms"], failed["fct_ms"], failed["lost_ms"]) == (
        "reset, twice",
        "",
        "",
        "",
    )


def test_the_parts_in_the_table_add_up(record: Record) -> None:
    for row in csv.DictReader(transfers_csv(record, transfer_losses(record)).splitlines()):
        parts = [
            float(value) for name, value in row.items() if name.startswith("lost_") and name != "lost_ms"
        ]
        assert sum(parts) + float(row["unavoidable_ms"]) == pytest.approx(float(row["lost_ms"]), abs=5e-6)


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_toy_run_is_valid(name: str, tmp_path: Path) -> None:
    assert summarise(Record.open(write_record(tmp_path, CASES[name]())))["fidelity"]["reasons"] == []


def test_ten_thousand_transfers_are_split_in_seconds(record: Record) -> None:
    count, rows = 10_000, 20
    transfers = tuple(replace(record.plan.transfers[i % 4], id=i) for i in range(count))
    outcomes = tuple(replace(record.outcomes[i % 4], id=i) for i in range(count))
    times = np.tile(np.arange(1, rows + 1) * 50_000, count)
    received = np.tile(np.arange(1, rows + 1) * (4 << 20) // (rows + 5), count)
    progress = Progress(np.repeat(np.arange(count), rows), times, received)
    many = replace(
        record,
        plan=replace(record.plan, transfers=transfers),
        outcomes=outcomes,
        all_progress=progress,
        paths={i: CASE.paths[i % 4] for i in range(count)},
    )
    summary = summarise(many)  # the suite's time limit for a unit test is the bound
    assert summary["transfers"]["completed"] == count
    assert summary["verdict"]["segment"] == "dest-leaf"
