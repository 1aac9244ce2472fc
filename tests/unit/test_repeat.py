"""Repeating a run: where two records first differ, what of the environment changed, and how seeds spread."""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed import cli
from testbed.analysis import write_outputs
from testbed.record import layout
from testbed.record.reader import Record
from testbed.repeat import again
from testbed.repeat.sameness import changed_environment, differences, raw_differences, results_of
from testbed.repeat.spread import interval_rank, over_seeds, spread_of
from testbed.report.spread import spread_page
from testbed.run import many
from testbed.run.capture import Captures
from testbed.run.many import Ended, Task
from tests.support.synthetic import baseline, edit_json, incast, write_record

CASE = incast(senders=2, size=4 << 20)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Two records with results, alike."""
    folders = tmp_path / "first", tmp_path / "second"
    for folder in folders:
        write_outputs(Record.open(write_record(folder, CASE)))
    return folders


def edit_summary(folder: Path, change: Callable[[Any], None]) -> None:
    path = folder / layout.SUMMARY
    summary = json.loads(path.read_text())
    change(summary)
    path.write_text(json.dumps(summary, indent=2, sort_keys=True) + "\n")


# ---- where they differ ----------------------------------------------------------------


def test_alike_records_do_not_differ(pair: tuple[Path, Path]) -> None:
    assert differences(*pair) == []
    assert raw_differences(*pair) == []


def test_the_first_key_that_differs_is_named_with_both_values(pair: tuple[Path, Path]) -> None:
    def change(summary: Any) -> None:
        summary["links"]["leaf3-d1"]["drops"] = 7
        summary["seed"] = 12

    edit_summary(pair[1], change)
    assert [str(each) for each in differences(*pair)] == ["summary.json: links.leaf3-d1.drops was 0 and is 7"]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda summary: summary.pop("seed"), "seed was 1 and is not there"),
        (lambda summary: summary.update(zoo=1), "zoo was not there and is 1"),
        (lambda summary: summary["fidelity"]["reasons"].append("x"), 'fidelity.reasons was [] and is ["x"]'),
    ],
)
def test_keys_and_lists_that_are_not_in_both(
    pair: tuple[Path, Path], change: Callable[[Any], None], found: str
) -> None:
    edit_summary(pair[1], change)
    assert [str(each) for each in differences(*pair)] == [f"summary.json: {found}"]


def test_other_bytes_with_the_same_values_differ(pair: tuple[Path, Path]) -> None:
    path = pair[1] / layout.SUMMARY
    path.write_text(path.read_text() + "\n")
    (found,) = differences(*pair)
    assert found.where == "the layout of the text"


def test_a_cell_of_the_table_is_named(pair: tuple[Path, Path]) -> None:
    path = pair[1] / layout.TRANSFERS
    lines = path.read_text().splitlines(keepends=True)
    cells = lines[2].split(",")
    cells[1] = "p9"
    path.write_text("".join([*lines[:2], ",".join(cells), *lines[3:]]))
    assert [str(each) for each in differences(*pair)] == ["transfers.csv: line 3, src was p2 and is p9"]
    path.write_text("".join(lines[:2]))
    assert differences(*pair)[0].where == "line 3"


def test_a_table_of_requests_is_compared_too(pair: tuple[Path, Path]) -> None:
    texts = ("id,ttft_ms\n1,2.5\n", "id,ttft_ms\n1,2.6\n")
    (pair[0] / layout.REQUESTS_TABLE).write_text(texts[0])
    (missing,) = differences(*pair)
    assert str(missing) == "requests.csv: line 1 was id,ttft_ms and is not there"
    assert results_of(*pair) == ("summary.json", "transfers.csv", "requests.csv")
    (pair[1] / layout.REQUESTS_TABLE).write_text(texts[1])
    assert [str(each) for each in differences(*pair)] == ["requests.csv: line 2, ttft_ms was 2.5 and is 2.6"]
    (pair[1] / layout.REQUESTS_TABLE).write_text(texts[0])
    assert differences(*pair) == []


def test_raw_files_that_differ_or_are_not_in_both(pair: tuple[Path, Path]) -> None:
    (pair[1] / layout.OUTCOMES).write_text("[]")
    (pair[0] / layout.RAW / "extra.bin").write_text("")
    assert raw_differences(*pair) == ["extra.bin", "outcomes.json"]


def test_of_the_environment_only_what_a_result_depends_on_is_compared() -> None:
    then = {"kernel": {"version": "6.12", "key": "a"}, "git": {"commit": "c1", "dirty": False}, "seconds": 1}
    now = {"kernel": {"version": "6.12", "key": "b"}, "git": {"commit": "c1", "dirty": True}, "seconds": 2}
    assert [str(each) for each in changed_environment(then, now)] == [
        "kernel.key was a and is b",
        "git.dirty was false and is true",
    ]
    assert changed_environment({}, {}) == []
    assert [str(each) for each in changed_environment({}, {"git": None})] == ["git was not there and is null"]


# ---- the commands ---------------------------------------------------------------------


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stands in for the lab: `case` is what it measures, `edit` what is different in it."""
    known: dict[str, Any] = {"case": CASE, "edit": None, "plans": [], "captured": []}

    def run_plan(plan: Any, _scenario: str, out: Path, _tell: Any, **more: Any) -> None:
        known["plans"].append(plan)
        known["captured"].append(more["captures"])
        write_record(out, known["case"])
        if known["edit"]:
            edit_json(out, *known["edit"])

    monkeypatch.setattr(again, "run_plan", run_plan)
    return known


def rerun(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    status = cli.main(["rerun", *map(str, words)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_record_that_comes_out_the_same(
    pair: tuple[Path, Path], lab: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in pair[0].iterdir())
    status, text, _ = rerun(capsys, pair[0])
    assert status == 0
    assert text.splitlines() == [
        "the same: summary.json and transfers.csv, byte for byte",
        "environment: the same kernel, packages, commit and machine",
    ]
    assert lab["plans"] == [Record.open(pair[0]).plan]
    assert sorted(path.name for path in pair[0].iterdir()) == before


def test_what_was_captured_is_captured_again(
    pair: tuple[Path, Path], lab: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    name = Record.open(pair[0]).plan.topology.links[1].name
    assert rerun(capsys, pair[0])[0] == 0
    section = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
    interface = struct.pack("<IIHHII", 1, 20, 1, 0, 96, 20)
    (pair[0] / layout.capture(name)).write_bytes(section + interface)
    rerun(capsys, pair[0])
    assert lab["captured"] == [Captures(), Captures((name,), 96)]


def test_a_record_that_comes_out_otherwise(
    pair: tuple[Path, Path], lab: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    lab["edit"] = (layout.OUTCOMES, lambda outcomes: outcomes[0].update(retransmissions=3))
    status, text, error = rerun(capsys, pair[0], "--json", "--out", tmp_path / "kept")
    assert status == 4
    found = json.loads(text)
    assert (found["same"], found["raw"]) == (False, ["outcomes.json"])
    assert found["differences"][0]["where"] == "transfers.retransmissions"
    assert error == (
        "testbed: the repetition differs: summary.json: transfers.retransmissions was 0 and is 3\n"
    )
    assert (tmp_path / "kept" / layout.SUMMARY).exists()


def test_another_analysis_of_the_same_facts_is_told_from_another_run(
    pair: tuple[Path, Path], lab: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    edit_summary(pair[0], lambda summary: summary["transfers"].update(count=9))
    status, text, _ = rerun(capsys, pair[0])
    assert status == 4
    assert "raw facts: the same, so it is the analysis that differs" in text


def test_what_cannot_be_repeated_is_refused(
    pair: tuple[Path, Path], lab: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    failed = write_record(tmp_path / "failed", CASE, status="failed", reason="leaf1 died")
    bare = write_record(tmp_path / "bare", CASE)
    real = write_record(tmp_path / "real", replace(CASE, plan=replace(CASE.plan, clock="real")))
    write_outputs(Record.open(real))
    messages = {
        tmp_path / "none": "no such folder; give a record's, as runs/incast-1-...",
        failed: "the run is failed: there is nothing to compare with",
        bare: f"summary.json is missing; `testbed report {bare}` makes it",
    }
    for folder, message in messages.items():
        assert rerun(capsys, folder) == (2, "", f"testbed: {folder}: {message}\n")
    clock = "testbed: rerun needs the virtual clock; on a real clock no two runs are the same\n"
    assert rerun(capsys, real) == (2, "", clock)
    own = rerun(capsys, pair[0], "--out", pair[0])
    assert own == (2, "", f"testbed: {pair[0]}: is the record that is repeated; give another --out\n")
    assert lab["plans"] == []


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, lab: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """As `lab`, for the first run as well; in a folder of its own."""
    monkeypatch.setattr("testbed.run.launch.run_plan", again.run_plan)
    monkeypatch.chdir(tmp_path)
    return lab


def test_twice_the_same(runs: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "incast", "--twice"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "  twice       the second run gave the same bytes"
    assert len(runs["plans"]) == 2
    assert runs["plans"][0] == runs["plans"][1]


def test_twice_but_not_the_same(runs: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    counts = itertools.count()
    runs["edit"] = (layout.OUTCOMES, lambda outcomes: outcomes[0].update(retransmissions=next(counts)))
    assert cli.main(["run", "incast", "--twice"]) == 4
    assert capsys.readouterr().err.splitlines()[-1] == (
        "testbed: the second run differs: summary.json: transfers.retransmissions was 0 and is 1"
    )
    assert cli.main(["run", "incast", "--twice", "--allow-invalid"]) == 0
    assert "transfers.retransmissions was 2 and is 3" in capsys.readouterr().out.splitlines()[-1]


def test_twice_is_answered_though_an_expectation_failed(
    runs: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    failing = ["run", "incast", "--twice", "--set", "expect=[transfers.count == 99]"]
    runs["case"] = replace(CASE, plan=replace(CASE.plan, expectations=("transfers.count == 99",)))
    assert cli.main(failing) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "  twice       the second run gave the same bytes"
    counts = itertools.count()
    runs["edit"] = (layout.OUTCOMES, lambda outcomes: outcomes[0].update(retransmissions=next(counts)))
    assert cli.main(failing) == 4
    assert "  twice       summary.json: transfers.retransmissions was 0 and is 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--twice", "--clock", "real", "--backend", "uml"], "--twice needs the virtual clock"),
        (["--twice", "--seeds", "3"], "argument --seeds: not allowed with argument --twice"),
        (["--seeds", "0"], "argument --seeds: '0' is no whole number from 1 to 10000"),
    ],
)
def test_words_that_do_not_fit(
    runs: dict[str, Any], capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert cli.main(["run", "incast", *words]) == 2
    assert capsys.readouterr().err.startswith(f"testbed: {message}")
    assert runs["plans"] == []


# ---- seeds ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "rank", "confidence"),
    # 1 - 2 * P(binomial(n, 1/2) < rank): of 5 values even the range has less than 95 %.
    [
        (1, 1, 0.0),
        (5, 1, 0.9375),
        (6, 1, 0.96875),
        (8, 1, 1 - 2 / 256),
        (10, 2, 1 - 2 * 11 / 1024),
        (20, 6, 0.9586),
    ],
)
def test_the_interval_is_that_of_order_statistics(count: int, rank: int, confidence: float) -> None:
    found = interval_rank(count)
    assert found == (rank, pytest.approx(confidence, abs=1e-4))


def test_a_spread_has_median_and_interval() -> None:
    found = spread_of("x", [5, 1, 3, 2, 4, 10, 6, 7, 8, 9])
    assert (found.median, found.low, found.high) == (5.5, 2, 9)
    assert found.values == (5, 1, 3, 2, 4, 10, 6, 7, 8, 9)
    assert spread_of("x", [4]).confidence == 0


def summary_of(folder: Path, case: Any) -> Any:
    return json.loads(json.dumps(write_outputs(Record.open(write_record(folder, case)))))


def test_seeds_count_verdicts_and_collect_figures(tmp_path: Path) -> None:
    summaries = {
        3: summary_of(tmp_path / "a", CASE),
        4: summary_of(tmp_path / "b", incast(senders=4, size=4 << 20)),
        5: summary_of(tmp_path / "c", baseline(senders=2, size=4 << 20)),
    }
    summaries[4]["fidelity"]["valid"] = False
    found = over_seeds("incast", summaries)
    assert (found.seeds, found.not_valid) == ((3, 4, 5), (4,))
    assert found.verdicts == (("dest-leaf", 2), ("nobody", 1))
    figures = {each.figure: each for each in found.figures}
    ends = [summary["transfers"]["last_end_ms"] for summary in summaries.values()]
    assert figures["transfers.last_end_ms"].values == tuple(ends)
    assert figures["transfers.last_end_ms"].median == sorted(ends)[1]
    peak = max(link["queue_bytes"]["max"] for link in summaries[3]["links"].values())
    assert figures["queue_peak_bytes"].values[0] == peak


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[int, Ended]:
    """Stands in for many runs; what is put in replaces how a seed ended."""
    ends: dict[int, Ended] = {}

    def run_many(tasks: list[Task], _jobs: int, tell: Any) -> list[Ended]:
        done = []
        for number, task in enumerate(tasks, 1):
            write_outputs(Record.open(write_record(task.out, incast(senders=task.seed, size=4 << 20))))
            one = ends.get(task.seed)
            done.append(replace(one, task=task) if one else Ended(task, 0, "", 1.0))
            tell(done[-1], number, len(tasks))
        return done

    monkeypatch.setattr(many, "run_many", run_many)
    monkeypatch.chdir(tmp_path)
    return ends


def test_several_seeds_leave_a_table_a_file_and_a_page(
    three: dict[int, Ended], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.main(["run", "incast", "--seed", "2", "--seeds", "3", "--out", "many"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "incast, seeds 2 to 4: the verdict names dest-leaf in 3"
    assert lines[-1] == "  report      many/seeds.html"
    assert any(line.startswith("  transfers.last_end_ms") and " 75 % " in line for line in lines)
    assert json.loads((tmp_path / "many/seeds.json").read_text())["seeds"] == [2, 3, 4]
    page = (tmp_path / "many/seeds.html").read_text()
    assert page.count("<circle") == 3 * page.count("<tr><td>")
    assert sorted(path.name for path in (tmp_path / "many").glob("seed-*")) == ["seed-2", "seed-3", "seed-4"]


@pytest.mark.parametrize(
    ("ended", "extra", "status", "message"),
    [
        ({3: (3, "leaf1 died")}, [], 3, "seed 3: leaf1 died"),
        ({2: (1, "expected a"), 4: (4, "is not valid")}, [], 4, "seed 4: is not valid"),
        ({2: (1, "expected a"), 4: (4, "is not valid")}, ["--allow-invalid"], 1, "seed 2: expected a"),
    ],
)
def test_several_seeds_end_as_the_worst_did(
    three: dict[int, Ended],
    capsys: pytest.CaptureFixture[str],
    ended: dict[int, tuple[int, str]],
    extra: list[str],
    status: int,
    message: str,
) -> None:
    for seed, (code, text) in ended.items():
        three[seed] = Ended(Task("", seed, Path()), code, text, 1.0)
    assert cli.main(["run", "incast", "--seed", "2", "--seeds", "3", "--out", "many", *extra]) == status
    assert capsys.readouterr().err.splitlines()[-1] == f"testbed: {message}"


def test_a_name_in_the_page_is_escaped() -> None:
    spread = over_seeds("a<b", {}).as_json() | {"seeds": [1], "verdicts": {}}
    assert "<h1>a&lt;b: 1 seeds</h1>" in spread_page(spread)
