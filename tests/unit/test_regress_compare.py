"""The comparison: sides, rows, what is more than chance, limits, and its three forms."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from testbed import cli
from testbed.analysis import write_outputs
from testbed.errors import InputError
from testbed.record.reader import Record
from testbed.regress.compare import Comparison, Row, centre, compare
from testbed.regress.compare_text import by
from testbed.regress.flat import Scalar
from testbed.regress.limits import broken, parse_limit
from testbed.regress.measures import RUN, measures
from testbed.regress.pages import written
from testbed.regress.plots import Axis, Series, chart
from testbed.regress.significance import can_tell, p_value, smallest_p
from tests.support.regress import SUMMARY, summary
from tests.support.synthetic import baseline, incast, write_record

SCENARIO = "name: small\nextends: incast\nfabric: {queue: {kmax: 400kb}}\nexpect: []\n"


def record(folder: Path, values: dict[str, Any], scenario: str = SCENARIO, **manifest: Any) -> Path:
    """Write what a comparison reads of a record."""
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"format_version": 1, "status": "complete", **manifest}))
    (folder / "summary.json").write_text(json.dumps(values))
    (folder / "scenario.yaml").write_text(scenario)
    return folder


def seeds(folder: Path, *p99_ms: float, **values: Any) -> Path:
    """Write a folder of records, one for each value of the time to KV."""
    for seed, time in enumerate(p99_ms, 1):
        record(folder / f"small-{seed}", summary(seed=seed, ttft_ms__p99=time, **values))
    return folder


def row(comparison: Comparison, key: str) -> Row:
    return next(row for row in comparison.rows if row.key == key)


# ---- chance ---------------------------------------------------------------------------


def test_all_divisions_are_counted() -> None:
    first, second = [1.0, 2.0, 3.0, 10.0], [11.0, 12.0, 13.0, 9.0]
    values = first + second
    total = [0, 0]
    for chosen in combinations(range(8), 4):
        one = [values[at] for at in chosen]
        other = [values[at] for at in range(8) if at not in chosen]
        total[abs(sum(one) / 4 - sum(other) / 4) >= 29 / 4] += 1
    assert p_value(first, second) == pytest.approx(total[1] / sum(total))
    assert sum(total) == 70


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [
        ([1, 2, 3, 4], [5, 6, 7, 8], 2 / 70),
        ([5, 6, 7, 8], [1, 2, 3, 4], 2 / 70),
        ([1, 2, 3], [7, 8, 9], 2 / 20),
        ([1, 1, 1, 1], [1, 1, 1, 1], 1.0),
        ([1, 2, 3, 4], [1, 2, 3, 4], 1.0),
        ([-5], [1, 2, 3, 4], 1 / 5),
        ([0.1, 0.2, 0.3, 0.1], [0.1, 0.3, 0.1, 0.2], 1.0),
    ],
)
def test_p_values(first: list[float], second: list[float], p: float) -> None:
    assert p_value(first, second) == pytest.approx(p)


def test_many_seeds_are_drawn_from() -> None:
    first, second = [float(n) for n in range(12)], [float(n) + 4 for n in range(12)]
    # 2.7 million divisions, of which 50,000 are drawn; by the normal approximation 1.1 % differ as much.
    assert p_value(first, second) == pytest.approx(0.012, abs=0.006)
    assert p_value(first, second) == p_value(first, second)
    assert p_value(first, [value + 100 for value in first]) == pytest.approx(1 / 50_000)


def test_three_seeds_cannot_tell() -> None:
    assert smallest_p(3, 3) == 0.1
    assert [can_tell(3, 3), can_tell(4, 4), can_tell(1, 19), can_tell(1, 18)] == [False, True, True, False]


# ---- rows -----------------------------------------------------------------------------


def test_one_seed_each(tmp_path: Path) -> None:
    a = record(tmp_path / "a", summary())
    b = record(
        tmp_path / "b",
        summary(ttft_ms__p99=87.0, verdict__segment="spine"),
        SCENARIO.replace("400kb", "4mb"),
    )
    (found,) = compare(a, b)
    assert [(change.key, change.before, change.after) for change in found.settings] == [
        ("fabric.queue.kmax", "400kb", "4mb")
    ]
    assert [one.key for one in found.differing] == ["verdict.segment", "ttft_ms.p99"]
    changed = row(found, "ttft_ms.p99")
    assert (changed.change.relative, changed.p, changed.judgement()) == (1.0, None, "one seed each")
    assert row(found, "ttft_ms.p50").judgement() == "same"
    assert not any(key.startswith("fidelity.checks") for key in (one.key for one in found.rows))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((40.0, 41.0, 42.0, 43.0), (50.0, 51.0, 52.0, 53.0), "more than seeds differ, p 0.029"),
        ((40.0, 41.0, 42.0, 43.0), (40.5, 41.5, 42.5, 43.5), "within the seeds, p 0.69"),
        ((40.0, 41.0, 42.0), (50.0, 51.0, 52.0), "too few seeds to tell"),
        ((40.0, 41.0), (41.0, 40.0), "same"),
    ],
)
def test_sets_of_seeds(tmp_path: Path, before: Any, after: Any, said: str) -> None:
    (found,) = compare(seeds(tmp_path / "a", *before), seeds(tmp_path / "b", *after))
    assert row(found, "ttft_ms.p99").judgement() == said
    assert row(found, "ttft_ms.p99").change.before == pytest.approx(sum(before) / len(before))


def test_what_is_the_same_in_every_seed_is_the_same_in_more_of_them(tmp_path: Path) -> None:
    (found,) = compare(seeds(tmp_path / "a", 40.0, 41.0), seeds(tmp_path / "b", 40.0, 40.5, 41.0))
    assert row(found, "verdict.segment").judgement() == "same"
    assert row(found, "ttft_ms.p99").judgement() == "too few seeds to tell"


def test_words_are_not_tested(tmp_path: Path) -> None:
    a = seeds(tmp_path / "a", 40.0, 41.0, 42.0, 43.0)
    b = seeds(tmp_path / "b", 40.0, 41.0, 42.0, 43.0, verdict__segment="spine")
    (found,) = compare(a, b)
    assert row(found, "verdict.segment").judgement() == "no numbers to test"


def test_scenarios_are_compared_by_name(tmp_path: Path) -> None:
    for side in "ab":
        record(tmp_path / side / "1", summary(scenario="one"))
        record(tmp_path / side / "2", summary(scenario="two"))
    record(tmp_path / "b" / "3", summary(scenario="three"))
    assert [one.name for one in compare(tmp_path / "a", tmp_path / "b")] == ["one", "two"]


def test_what_only_one_side_has_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("same", "gone"):
        write_outputs(Record.open(write_record(tmp_path / "a" / name, incast(size=2 << 20))))
    for side, folder, scenario in (("a", "gone", "gone|"), ("b", "same", None), ("b", "new", "new")):
        if side == "b":
            write_outputs(Record.open(write_record(tmp_path / "b" / folder, incast(size=2 << 20))))
        path = tmp_path / side / folder / "summary.json"
        if scenario:
            path.write_text(json.dumps({**json.loads(path.read_text()), "scenario": scenario}))
    page, table = tmp_path / "c.html", tmp_path / "c.md"
    words = ["compare", str(tmp_path / "a"), str(tmp_path / "b")]
    assert cli.main([*words, "--html", str(page), "--markdown", str(table)]) == 0
    told = "not compared: gone| (only in A), new (only in B)"
    assert capsys.readouterr().out.endswith(f"\n\n{told}\n")
    assert f">{told}<" in page.read_text()
    assert table.read_text().endswith("\nnot compared: gone\\| (only in A), new (only in B)\n")
    assert cli.main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["not_compared"] == [
        {"side": "A", "scenario": "gone|"},
        {"side": "B", "scenario": "new"},
    ]


def test_a_single_scenario_is_compared_whatever_its_name(tmp_path: Path) -> None:
    a, b = record(tmp_path / "a", summary()), record(tmp_path / "b", summary(scenario="other"))
    assert [one.name for one in compare(a, b)] == ["small and other"]


@pytest.mark.parametrize(
    ("values", "middle"),
    [([1, 2], 1.5), (["a", "b", "b"], "b"), ([None, 0.0], None), ([True, True, False], True), ([None], None)],
)
def test_the_middle_of_several(values: list[Any], middle: Any) -> None:
    assert centre(values) == middle


def test_what_a_run_is_asked_for() -> None:
    found = measures(SUMMARY)
    assert [found[key] for key in RUN] == [8e10, 600, 200.5, 100, 0, None]
    paused = summary(links__leaf2_to_d1__pauses={"count": 3, "total_ms": 0.1})
    assert measures(paused)["run.pauses"] == 3
    assert measures(summary(transfers__last_end_ms=None))["run.goodput_bps"] is None


# ---- what is refused ------------------------------------------------------------------


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    good = record(tmp_path / "good", summary())
    again = "run it again, or compare with the version that made it"
    cases = {
        "none": (None, "no such folder; give a record's, or one that holds records"),
        "empty": ({}, "is no record and holds none; give a folder as runs/incast-1-..."),
        "old": ({"format_version": 0}, f"is a record of format 0, this testbed reads 1; {again}"),
        "aborted": ({"status": "aborted"}, "did not end (aborted); run it again or take it away"),
    }
    for name, (manifest, message) in cases.items():
        if manifest:
            record(tmp_path / name, summary(), **manifest)
        elif manifest is not None:
            (tmp_path / name).mkdir()
        with pytest.raises(InputError, match=f"^{re.escape(f'{tmp_path / name}: {message}')}$"):
            compare(good, tmp_path / name)


def test_summaries_of_two_formats_are_refused(tmp_path: Path) -> None:
    a, b = record(tmp_path / "a", summary()), record(tmp_path / "b", summary(format_version=2))
    message = f"{b}: has a summary of format 2, this testbed reads 1; make it again: testbed report {b}"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        compare(a, b)
    (b / "summary.json").unlink()
    with pytest.raises(InputError, match="summary.json is missing; make it again: testbed report"):
        compare(a, b)


def test_two_settings_in_one_folder_are_refused(tmp_path: Path) -> None:
    for name in "xy":
        record(tmp_path / "a" / name, summary())
    with pytest.raises(InputError, match="y: is a second record of small with seed 1, beside .*x; give each"):
        compare(tmp_path / "a", tmp_path / "a")


def test_nothing_in_common_is_refused(tmp_path: Path) -> None:
    for side in "ab":
        for number in "12":
            record(tmp_path / side / number, summary(scenario=side + number))
    with pytest.raises(
        InputError, match=r"have no scenario in common \(a1, a2 and b1, b2\); compare like with"
    ):
        compare(tmp_path / "a", tmp_path / "b")


# ---- limits ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "before", "after", "breaks"),
    [
        ("ttft_ms.p99 > +5%", [40.0], [42.1], True),
        ("ttft_ms.p99 > +5%", [40.0], [41.9], False),
        ("ttft_ms.p99 > 5%", [40.0], [42.1], True),
        ("ttft_ms.p99 > +2ms", [40.0], [42.1], True),
        ("ttft_ms.p99 > 2200us", [40.0], [42.1], False),
        ("ttft_ms.p99 > 2", [40.0], [42.1], True),
        ("ttft_ms.p99 < -10%", [40.0], [35.0], True),
        ("ttft_ms.p99 < -10%", [40.0], [37.0], False),
        ("ttft_ms.p99 changed", [40.0], [40.0], False),
        ("ttft_ms.p99 changed", [40.0], [40.1], True),
        # With enough seeds, what is within their spread breaks no limit; a word has no spread.
        ("ttft_ms.p99 > +1%", [40.0, 41.0, 42.0, 43.0], [41.0, 42.0, 43.0, 44.0], False),
        ("ttft_ms.p99 > +1%", [40.0, 41.0, 42.0, 43.0], [50.0, 51.0, 52.0, 53.0], True),
        ("ttft_ms.p99 > +1%", [40.0, 41.0, 42.0], [41.0, 42.0, 43.0], True),
    ],
)
def test_limits(tmp_path: Path, text: str, before: list[float], after: list[float], breaks: bool) -> None:
    found = compare(seeds(tmp_path / "a", *before), seeds(tmp_path / "b", *after))
    assert bool(broken([parse_limit(text)], found)) is breaks


def test_a_value_that_is_gone_breaks_a_limit(tmp_path: Path) -> None:
    found = compare(record(tmp_path / "a", summary()), record(tmp_path / "b", summary(ttft_ms__p99=None)))
    (one,) = broken([parse_limit("ttft_ms.p99 > 5%")], found)
    assert one.how == "43.5 -> null, one seed each: no number to compare"


FORM = "write KEY > +5%, KEY < -2ms or KEY changed"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ttft_ms.p99", f"is no limit; {FORM}"),
        ("ttft_ms.p99 >= 5%", f"is no limit; {FORM}"),
        ("ttft_ms.p99 > 5kb", f"ttft_ms.p99 is in milliseconds, 5kb in bytes; {FORM}"),
        ("ttft_ms.p99 > 5parsec", "has the unknown unit 'parsec'; the units are .*"),
        ("ttft_ms.p99 > 5.5.5%", f"could not convert string to float: '5.5.5'; {FORM}"),
        ("ttft_ms.p9 > 5%", r"small has no key 'ttft_ms.p9' on both sides; did you mean 'ttft_ms.p99'\?"),
    ],
)
def test_bad_limits_are_refused(tmp_path: Path, text: str, message: str) -> None:
    found = compare(record(tmp_path / "a", summary()), record(tmp_path / "b", summary()))
    pattern = message if ".*" in message or "\\" in message else re.escape(message)
    with pytest.raises(InputError, match=f"^{re.escape(f'--fail-if {text}: ')}{pattern}$"):
        broken([parse_limit(text)], found)


# ---- the command ----------------------------------------------------------------------


def test_the_command_prints_writes_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = record(tmp_path / "a", summary()), record(tmp_path / "b", summary(ttft_ms__p99=87.0))
    report = tmp_path / "out" / "c.md"
    words = ["compare", str(a), str(b), "--markdown", str(report)]
    assert cli.main(words) == 0
    printed = capsys.readouterr().out.replace("\N{NO-BREAK SPACE}", " ")
    assert re.search(r"^  ttft_ms.p99 +43.5 ms +87 ms +\+100 % +one seed each$", printed, re.MULTILINE)
    assert report.read_text().startswith(
        f"### small: time to KV p99 +100\N{NO-BREAK SPACE}%\n\nA: `{a}`, B: `{b}`\n"
    )
    assert "| `ttft_ms.p99` | 43.5\N{NO-BREAK SPACE}ms | 87\N{NO-BREAK SPACE}ms |" in report.read_text()
    assert cli.main([*words, "--fail-if", "ttft_ms.p99 > +5%"]) == 1
    out, err = capsys.readouterr()
    assert out.endswith("\nBROKEN ttft_ms.p99 > +5% (small): 43.5 -> 87, one seed each\n")
    assert err == "testbed: --fail-if ttft_ms.p99 > +5% (small): 43.5 -> 87, one seed each\n"
    assert "* **ttft_ms.p99 > +5%** is broken (small): 43.5 -> 87, one seed each\n" in report.read_text()
    assert cli.main([*words, "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert one["changes"] == [{"key": "ttft_ms.p99", "before": [43.5], "after": [87.0], "p": None}]


def test_nothing_follows_from_what_is_not_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = record(tmp_path / "a", summary()), record(tmp_path / "b", summary(fidelity__valid=False))
    assert cli.main(["compare", str(a), str(b)]) == 4
    assert (
        capsys.readouterr().err
        == f"testbed: {b}: the measurement is not valid; nothing follows from its values\n"
    )


def test_the_page_has_both_sides(tmp_path: Path) -> None:
    for name, case in (("a", incast(size=2 << 20)), ("b", baseline(size=2 << 20))):
        write_outputs(Record.open(write_record(tmp_path / name, case)))
    target, drawn = tmp_path / "c.html", tmp_path / "c.svg"
    words = ["--html", str(target), "--picture", str(drawn)]
    assert cli.main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), *words]) == 0
    picture = ElementTree.parse(drawn).getroot()  # stands alone: well-formed, with its colours
    assert picture.get("viewBox") == "0 0 1280 356"
    assert len(picture.findall("{*}svg/{*}svg")) == 2
    assert "prefers-color-scheme: dark" in drawn.read_text()
    page = target.read_text()
    assert "<h2>incast and baseline</h2>" in page
    assert page.count("<svg") == 2
    assert re.search(r"Queue of leaf3-d1 and ", page)
    assert "http" not in page.replace("http-equiv", "")  # asks for nothing from anywhere
    assert "<script" not in page
    assert '<i class="seg-dest-leaf"' in page


# ---- charts ---------------------------------------------------------------------------


def test_a_chart_stands_where_its_values_are() -> None:
    series = Series(
        "a", ((0.0, 0.0), (10.0, 5.0)), spread=((0.0, 0.0), (4.0, 6.0)), labels=("first", "<last>")
    )
    drawing = chart([series], Axis("x", str), Axis("y", str), "label")
    assert '<circle cx="88.0" cy="252.0" r="4">' in drawing  # the origin
    # 10 of 10.6 across from 88 to 622; 5 of 6.36 up from 252 to 12.
    assert '<circle cx="591.8" cy="63.3" r="4">' in drawing
    assert 'd="M591.8 101.1V25.6' in drawing
    assert "&lt;last&gt;" in drawing
    assert 'd="M88 252L591.8 63.3"' in drawing


def test_words_stand_in_the_middle_of_their_places() -> None:
    drawing = chart(
        [Series("a", ((0.0, 1.0), (1.0, 1.0)))], Axis("k", str, ("50kb", "100kb")), Axis("y", str), ""
    )
    assert 'cx="221.5"' in drawing
    assert ">50kb</text>" in drawing


def test_steps_go_across_first() -> None:
    drawing = chart([Series("a", ((0.0, 0.0), (1.0, 1.0)), steps=True)], Axis("x", str), Axis("y", str), "")
    assert 'd="M88 252H591.8V25.6"' in drawing


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("ttft_ms.p99", 43.5, "43.5 ms"),
        ("run.queue_max_bytes", 8_000_000, "8 MB"),
        ("links.a.rate_bps", 1e11, "100 Gbit/s"),
        ("run.ce_marks", 18_654, "18,654"),
        ("transfers.jain", 0.98765, "0.9877"),
        ("verdict.segment", "spine", "spine"),
        ("verdict.segment", None, "none"),
        ("fidelity.valid", False, "no"),
    ],
)
def test_values_as_a_reader_wants_them(key: str, value: Any, text: str) -> None:
    assert written(key, value).replace("\N{NO-BREAK SPACE}", " ") == text


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (100.0, 150.0, "+50 %"),
        (100.0, 99.95, "-0.05 %"),
        (100.0, 99.99, "-0.01 %"),
        (100.0, 100.009, "<0.01 %"),
        (100.0, 99.999, "<0.01 %"),
        (0.0, 3.0, "from 0"),
        ("spine", "dest-leaf", ""),
        (1.0, 1.0, "0"),
    ],
)
def test_a_change_as_a_reader_wants_it(before: Scalar, after: Scalar, text: str) -> None:
    found = by(Row("ttft_ms.p99", (before,), (after,), None))
    assert found.replace("\N{NO-BREAK SPACE}", " ") == text
