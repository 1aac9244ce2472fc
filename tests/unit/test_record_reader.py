"""Opening records: whole, damaged, incomplete, dilated, and things that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.errors import InputError
from testbed.record import layout
from testbed.record.reader import Record
from tests.support.synthetic import baseline, edit_json, incast, reseal, write_record

CASE = incast(senders=2, size=1 << 20)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_record(tmp_path / "run", CASE)


def _overwrite(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


def test_a_whole_record_opens_without_problems(folder: Path) -> None:
    record = Record.open(folder)
    assert record.problems == ()
    assert record.plan == CASE.plan
    assert record.paths == dict(enumerate(CASE.paths))
    assert record.manifest["status"] == "complete"
    assert record.environment["wall_clock"]["traffic_s"] == 1.8
    assert record.facts["readback"][0]["ok"] is True
    assert record.background == []
    assert record.link_names == tuple(link.name for link in CASE.plan.topology.links)


def test_counters_begin_at_zero_and_backlogs_stay(folder: Path) -> None:
    series = Record.open(folder).series("leaf3-d1")
    wire = sum(transfer.wire_bytes for transfer in CASE.plan.transfers)
    assert (series.bytes[0], series.packets[0], series.drops[0], series.ce_marks[0]) == (0, 0, 0, 0)
    assert abs(int(series.bytes[-1]) - wire) <= 1
    assert series.time_ns[:2].tolist() == [-200_000, -180_000]
    assert series.backlog_bytes.max() > 100_000
    assert {array.dtype for array in vars(series).values()} == {np.dtype(np.int64)}


def test_totals_are_the_last_of_each_counter(folder: Path) -> None:
    record = Record.open(folder)
    series = record.series("leaf3-d1")
    assert record.totals("leaf3-d1") == {
        "bytes": series.bytes[-1],
        "packets": series.packets[-1],
        "drops": 0,
        "ce_marks": series.ce_marks[-1],
    }
    assert record.totals("leaf3-d1")["ce_marks"] > 0


def test_an_unknown_link_is_a_key_error_and_an_unsampled_one_is_empty(folder: Path) -> None:
    (folder / layout.samples_header("hosts")).unlink()
    (folder / layout.samples_rows("hosts")).unlink()
    reseal(folder)
    record = Record.open(folder)
    assert len(record.series("p1-leaf1").time_ns) == 0
    assert "p1-leaf1" not in record.link_names
    assert record.totals("p1-leaf1") == {"bytes": 0, "packets": 0, "drops": 0, "ce_marks": 0}
    with pytest.raises(KeyError, match="^'leaf9-d9'$"):
        record.series("leaf9-d9")


def test_progress_is_sorted_and_ends_with_the_transfer(folder: Path) -> None:
    rows = np.fromfile(folder / layout.PROGRESS, "<i8").reshape(-1, 3)
    rows[::-1].tofile(folder / layout.PROGRESS)
    reseal(folder)
    record = Record.open(folder)
    times, received = record.progress(1)
    assert np.all(np.diff(times) > 0)
    assert received[-1] == 1 << 20
    assert times[-1] == record.outcomes[1].end_ns
    assert [len(array) for array in record.progress(99)] == [0, 0]


def test_laboratory_time_becomes_scenario_time(tmp_path: Path) -> None:
    slow = Record.open(write_record(tmp_path / "slow", incast(senders=2, size=1 << 20, dilation=10)))
    true = Record.open(write_record(tmp_path / "true", CASE))
    raw = np.fromfile(slow.path / layout.PROGRESS, "<i8").reshape(-1, 3)
    assert raw[-1, 0] == pytest.approx(10 * true.progress(1)[0][-1], abs=10)
    assert slow.progress(1)[0].tolist() == true.progress(1)[0].tolist()
    assert slow.series("leaf3-d1").time_ns.tolist() == true.series("leaf3-d1").time_ns.tolist()
    assert slow.series("leaf3-d1").bytes.tolist() == true.series("leaf3-d1").bytes.tolist()
    assert slow.outcomes == true.outcomes


def test_an_incomplete_transfer_has_no_end(folder: Path) -> None:
    edit_json(folder, layout.OUTCOMES, lambda outcomes: outcomes[0].update(end_ns=None, error="reset"))
    first, second = Record.open(folder).outcomes
    assert (first.end_ns, first.error, first.completed, second.completed) == (None, "reset", False, True)


def test_a_transfer_nobody_reported_counts_as_not_completed(folder: Path) -> None:
    edit_json(folder, layout.OUTCOMES, lambda outcomes: outcomes[1:])
    record = Record.open(folder)
    assert record.problems == ("raw/outcomes.json has nothing about transfer 0",)
    assert record.outcomes[0].error == "the lab reported nothing about it"


@pytest.mark.parametrize("name", [layout.samples_rows("fabric"), layout.PROGRESS])
def test_a_row_cut_short_is_left_out_and_named(folder: Path, name: str) -> None:
    before = Record.open(folder)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content + bytes(12))
    reseal(folder)
    record = Record.open(folder)
    assert record.problems == (f"{name} ends within a row: 12 bytes left out",)
    assert record.series("leaf3-d1").time_ns.tolist() == before.series("leaf3-d1").time_ns.tolist()
    assert record.progress(0)[1].tolist() == before.progress(0)[1].tolist()


def test_missing_rows_are_named(folder: Path) -> None:
    edit_json(folder, layout.samples_header("fabric"), lambda header: header.update(rows=7))
    rows = len(Record.open(folder).series("leaf3-d1").time_ns)
    assert Record.open(folder).problems == (f"raw/samples-fabric.bin has {rows} rows instead of 7",)


def test_a_changed_byte_is_found_by_its_sum(folder: Path) -> None:
    path = folder / layout.samples_rows("fabric")
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    problem = "raw/samples-fabric.bin was changed after the run: its SHA-256 is not the manifest's"
    assert Record.open(folder).problems == (problem,)
    assert Record.open(folder, verify=False).problems == ()


def test_results_and_environment_may_change_after_the_run(folder: Path) -> None:
    manifest = json.loads((folder / layout.MANIFEST).read_text())
    manifest["files"][layout.ENVIRONMENT] = {"bytes": 1, "sha256": "0"}
    manifest["files"][layout.SUMMARY] = {"bytes": 1, "sha256": "0"}
    _overwrite(folder / layout.MANIFEST, manifest)
    assert Record.open(folder).problems == ()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (layout.FACTS, "raw/facts.json is missing"),
        (layout.DATAPATH_FLOWS, "raw/datapath-flows.txt is missing"),
        (layout.PROGRESS, "raw/progress.bin is missing"),
        (layout.samples_rows("hosts"), "raw/samples-hosts.bin is missing"),
        (layout.samples_header("hosts"), "raw/samples-hosts.json is missing"),
    ],
)
def test_a_missing_file_is_a_problem_and_no_error(folder: Path, name: str, problem: str) -> None:
    (folder / name).unlink()
    record = Record.open(folder)
    assert record.problems == (problem,)
    assert len(record.outcomes) == 2


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        (layout.FACTS, "{", "raw/facts.json is not JSON: "),
        (layout.FACTS, "[]", "raw/facts.json holds a list, not an object"),
        (layout.OUTCOMES, '[{"id": 0}]', "raw/outcomes.json is not a list of outcomes: KeyError('start_ns')"),
        (
            layout.samples_header("hosts"),
            '{"format_version": 2}',
            "raw/samples-hosts.json has format 2, not 1",
        ),
        (
            layout.DATAPATH_FLOWS,
            "in_port(a),eth_type(0x0800),ipv4(src=10.0.0.999), bytes:1, actions:b",
            "raw/datapath-flows.txt is damaged: ",
        ),
    ],
)
def test_nonsense_in_a_file_is_a_problem_and_no_error(
    folder: Path, name: str, text: str, problem: str
) -> None:
    (folder / name).write_text(text)
    reseal(folder)
    assert Record.open(folder).problems[0].startswith(problem)


def test_samples_of_links_the_plan_lacks_are_refused(folder: Path) -> None:
    edit_json(folder, layout.samples_header("hosts"), lambda header: header.update(links=["x-y"]))
    assert Record.open(folder).problems == ("raw/samples-hosts.json has links that are not in the plan: x-y",)


def test_a_run_that_never_sampled_opens(folder: Path) -> None:
    for path in (folder / layout.RAW).iterdir():
        path.unlink()
    record = Record.open(folder, verify=False)
    assert "no queue was sampled" in record.problems
    assert record.link_names == ()
    assert [outcome.completed for outcome in record.outcomes] == [False, False]


def test_a_directory_that_is_no_record_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        Record.open(tmp_path)
    assert str(caught.value) == f"{tmp_path}: this is no record of a run: manifest.json is missing"


def test_another_format_is_bad_input(folder: Path) -> None:
    _overwrite(folder / layout.MANIFEST, {"format_version": 2})
    with pytest.raises(InputError) as caught:
        Record.open(folder)
    expected = f"{folder}: the record has format 2; this version of testbed reads format 1"
    assert str(caught.value) == expected


def test_a_record_without_its_plan_is_bad_input(folder: Path) -> None:
    (folder / layout.PLAN).unlink()
    with pytest.raises(InputError) as caught:
        Record.open(folder)
    assert str(caught.value) == f"{folder}: the record cannot be read: plan.json is missing"


def test_a_damaged_plan_is_bad_input(folder: Path) -> None:
    (folder / layout.PLAN).write_text("{")
    with pytest.raises(InputError) as caught:
        Record.open(folder)
    assert str(caught.value).startswith(f"{folder}: the record cannot be read: plan.json: ")


def test_the_layout_names_groups_and_their_files() -> None:
    assert layout.samples_header("fabric") == "raw/samples-fabric.json"
    assert layout.group_of("samples-fabric.json") == "fabric"
    assert layout.group_of("samples-fabric.bin") is None
    assert layout.group_of("facts.json") is None
    assert layout.sample_columns(3) == 16
    assert layout.log("controller") == "logs/controller.log"


def test_the_toy_baseline_ends_at_its_ideal_but_for_the_ramp(tmp_path: Path) -> None:
    record = Record.open(write_record(tmp_path, baseline(2, 1 << 20)))
    for transfer, outcome in zip(record.plan.transfers, record.outcomes, strict=True):
        assert outcome.end_ns is not None
        assert outcome.end_ns - outcome.start_ns == pytest.approx(transfer.ideal_ns + 45_000, abs=2)
