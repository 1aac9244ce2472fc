"""The validation's table: which rows hold, which cases are chosen, what is printed, and the exit."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from testbed import cli
from testbed.errors import InputError, LabError
from testbed.run import many
from testbed.validation import commands, diagnosis, suite
from testbed.validation.bench import Bench
from testbed.validation.cases import Case, select
from testbed.validation.dcqcn import fixed_point_bytes
from testbed.validation.page import listing, page, table_text
from testbed.validation.rows import Row, about, at_least, at_most, between, number
from testbed.validation.suite import ALL, FAMILIES, Measured, measure

WHY = {"why": "a reason", "source": "a source"}

# ---- rows -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "passed", "tolerance"),
    [
        (about("a", "", 101.0, 100, "ms", share=0.01, **WHY), True, "99 to 101 ms"),
        (about("a", "", 101.1, 100, "ms", share=0.01, **WHY), False, "99 to 101 ms"),
        (about("a", "", 1.5, 1, "ms", share=0.01, floor=0.5, **WHY), True, "0.5 to 1.5 ms"),
        (about("a", "", 1, 0, "", **WHY), False, "exactly"),
        (at_most("a", "", 2.0, 2.0, "%", **WHY), True, "at most 2 %"),
        (at_most("a", "", 2.1, 2.0, "%", **WHY), False, "at most 2 %"),
        (at_least("a", "", 1.9, 2.0, "%", **WHY), False, "at least 2 %"),
        (between("a", "", 17, 17, 22, "packets", **WHY), True, "17 to 22 packets"),
        (at_most("a", "", math.nan, 2.0, "%", **WHY), False, "at most 2 %"),
        (at_least("a", "", math.nan, 2.0, "%", **WHY), False, "at least 2 %"),
    ],
)
def test_a_row_holds_within_its_bounds(row: Row, passed: bool, tolerance: str) -> None:
    assert (row.passed, row.tolerance) == (passed, tolerance)


def test_a_row_as_json_has_no_number_that_is_none() -> None:
    text = json.dumps(at_most("a", "what", math.nan, 2.0, "%", **WHY).as_json(), allow_nan=False)
    found = json.loads(text)
    assert (found["measured"], found["low"], found["high"], found["passed"]) == (None, None, 2.0, False)
    assert found["why"] == "a reason"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0123456, "0.01235"), (99.0, "99"), (99.95, "99.95"), (999.97, "1,000"), (400612.3, "400,612")],
)
def test_figures_have_four_digits(value: float, text: str) -> None:
    assert number(value) == text


# ---- selection ------------------------------------------------------------------------


def case(name: str, *, quick: bool = False, measured: float = 1) -> Case:
    row = about(name, "one", measured, 1, "", **WHY)
    return Case(name, f"about {name}", lambda _bench, _seeds: [row], quick)


CASES = [case("gaps.slow"), case("gaps.fast", quick=True), case("marking.ramp", quick=True)]


@pytest.mark.parametrize(
    ("wanted", "quick", "names"),
    [
        ([], False, ["gaps.slow", "gaps.fast", "marking.ramp"]),
        ([], True, ["gaps.fast", "marking.ramp"]),
        (["gaps"], False, ["gaps.slow", "gaps.fast"]),
        (["gaps"], True, ["gaps.fast"]),
        (["gaps.slow"], True, ["gaps.slow"]),
        (["*.ramp", "gaps.f*"], False, ["gaps.fast", "marking.ramp"]),
    ],
)
def test_names_and_patterns_choose(wanted: list[str], quick: bool, names: list[str]) -> None:
    assert [each.name for each in select(CASES, wanted, quick=quick)] == names


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        select(CASES, ["gaps.slwo"], quick=False)
    assert str(caught.value) == (
        "gaps.slwo: no measurement is called so; see `testbed validate --list`; did you mean 'gaps.slow'?"
    )


def test_a_choice_of_which_nothing_is_quick_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        select(CASES, ["gaps", "gaps.s*"], quick=True)
    assert str(caught.value) == "gaps.s*: nothing of it is quick; leave --quick out"


def test_names_are_unique_and_families_complete() -> None:
    names = [each.name for each in ALL]
    assert len(set(names)) == len(names)
    assert {each.family for each in ALL} == set(FAMILIES)
    assert any(each.quick for each in ALL)
    assert not all(each.quick for each in ALL)


# ---- measuring ------------------------------------------------------------------------


def test_rows_come_in_the_order_of_the_cases() -> None:
    told: list[tuple[int, int]] = []
    found = measure(CASES, 2, 1, lambda _done, count, total: told.append((count, total)))
    assert [one.case.name for one in found] == ["gaps.slow", "gaps.fast", "marking.ramp"]
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_case_whose_runs_fail_is_a_row_that_says_why() -> None:
    def broken(_bench: Bench, _seeds: int) -> list[Row]:
        raise LabError("leaf1: no such port")

    (found,) = measure([Case("gaps.broken", "about it", broken)], 1, 1, lambda *_: None)
    assert not found.passed
    (row,) = found.rows
    assert (row.name, row.note) == ("gaps.broken", "leaf1: no such port")


# ---- text -----------------------------------------------------------------------------

FOUND = [
    Measured(CASES[0], (about("gaps.slow.frame", "a | gap", 1.004, 1, "ms", share=0.01, **WHY),)),
    Measured(CASES[2], (replace(at_most("marking.ramp.1", "marks", 3, 2, "%", **WHY), note="because"),)),
]


def test_the_table_says_what_how_far_and_why() -> None:
    assert table_text(FOUND).splitlines() == [
        "ok    gaps.slow.frame",
        "      a | gap",
        "      1.004 ms; expected 1 ms; tolerance 0.99 to 1.01 ms",
        "      (a reason; a source)",
        "FAILS marking.ramp.1",
        "      marks",
        "      3 %; expected at most 2 %; tolerance at most 2 %",
        "      (a reason; a source)",
        "      because",
        "1 of 2 rows hold",
    ]


def test_the_page_names_what_made_it() -> None:
    lines = page(FOUND, "testbed validate", {"lab kernel": "6.12-kv"}).splitlines()
    assert "Made by `testbed validate`; do not edit. 1 of 2 rows hold." in lines
    assert "| lab kernel | 6.12-kv |" in lines
    row = "| holds | a \\| gap | 1.004 ms | 1 ms | 0.99 to 1.01 ms | a reason | a source |"
    assert row in lines
    assert (
        "| **falls short** | marks. because | 3 % | at most 2 % | at most 2 % | a reason | a source |"
        in lines
    )
    assert "## What the virtual clock cannot show" in lines


def test_the_list_marks_what_is_quick() -> None:
    assert listing(CASES).splitlines()[:2] == [
        "  gaps.slow     about gaps.slow",
        "* gaps.fast     about gaps.fast",
    ]


# ---- the command ----------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    """A suite of three cases that need no lab."""
    cases = [case("gaps.slow"), case("gaps.fast", quick=True), case("marking.ramp", measured=2)]
    monkeypatch.setattr(suite, "ALL", tuple(cases))
    monkeypatch.setattr(commands, "_require_kernel", lambda: None)
    return cases


def test_the_command_ends_with_1_when_a_row_falls_short(
    few: list[Case], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["validate", "gaps"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 of 2 rows hold"
    assert cli.main(["validate"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == "testbed: 1 of 3 rows fall short; the first is marking.ramp: 2, expected 1"


def test_the_command_as_json_and_as_a_page(
    few: list[Case], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "validation.md"
    assert cli.main(["validate", "--quick", "--json", "--page", str(target)]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["gaps.fast"]
    assert "Made by `testbed validate --quick`; do not edit. 1 of 1 rows hold." in target.read_text()


@pytest.mark.parametrize(("words", "jobs"), [([], 5), (["--jobs", "3"], 3)])
def test_what_fits_runs_side_by_side(
    few: list[Case], monkeypatch: pytest.MonkeyPatch, words: list[str], jobs: int
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(many, "default_jobs", lambda: 5)
    monkeypatch.setattr(suite, "measure", lambda _cases, at_once, *_: asked.append(at_once) or [])
    monkeypatch.setattr(diagnosis, "diagnose", lambda _cases, at_once, _tell: asked.append(at_once) or [])
    assert cli.main(["validate", "gaps", *words]) == 0
    monkeypatch.setattr(suite, "ALL", (case("diagnosis.incast"),))
    assert cli.main(["validate", "diagnosis", *words]) == 0
    assert asked == [jobs, jobs]


def test_a_list_measures_nothing(few: list[Case], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["validate", "--list", "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == [each.name for each in few]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["gap"],
            "testbed: gap: no measurement is called so; see `testbed validate --list`; did you mean 'gaps'?",
        ),
        (
            ["--page", "/no/such/folder/page.md"],
            "testbed: /no/such/folder/page.md: cannot be written; give another --page",
        ),
        (
            ["--seeds", "0"],
            "testbed: argument --seeds: '0' is no whole number from 1 on; see `testbed validate --help`",
        ),
    ],
)
def test_bad_words_are_refused(
    few: list[Case], capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert cli.main(["validate", *words]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == message


# ---- the models that measurements are held against -------------------------------------


@pytest.mark.parametrize(
    ("packet", "queues_kb"),
    [(1000, {2: 20.2, 4: 41.8, 8: 93.8, 10: 122.6}), (1500, {2: 27.7, 4: 60.2, 8: 138})],
)
def test_dcqcn_stands_still_where_its_fluid_model_does(packet: int, queues_kb: dict[int, float]) -> None:
    """The values are those of the public MATLAB of the fluid model, 40 Gbit/s."""
    for flows, queue_kb in queues_kb.items():
        found = fixed_point_bytes(flows, 40e9, packet) / 1000
        assert found == pytest.approx(queue_kb, abs=0.1)
