"""The bench: which sections are chosen, what becomes of their figures, the page, and the large record."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from testbed import cli
from testbed.analysis import summarise
from testbed.bench import growth, results, scale, suite, trace
from testbed.bench.figures import Figure, Found, from_json, ratios
from testbed.bench.page import listing, page, text
from testbed.bench.programs import Spent, timed
from testbed.bench.results import Result
from testbed.bench.sections import Section, Setting, select
from testbed.bench.synthetic import large_record
from testbed.errors import InputError, LabError
from testbed.plan.build import build_plan
from testbed.record.reader import Record
from testbed.scenario import load_scenario
from traffic.traces import mooncake

FIGURE = Figure("boot", (0.5, 0.7, 0.51234), "s", "testbed bench startup", "as fast as | it gets")
FOUND = Found((FIGURE, Figure("lines", (12.0,), "", "wc -l")), "Said of it.\n")


def section(name: str) -> Section:
    return Section(name, f"about {name}", lambda _setting: FOUND)


SECTIONS = [section("startup"), section("packets")]


# ---- figures --------------------------------------------------------------------------


def test_the_median_counts_and_the_extremes_stand_beside_it() -> None:
    assert (FIGURE.median, FIGURE.shown, FIGURE.spread) == (0.51234, "0.512 s", "0.5 to 0.7, 3 runs")
    single = Figure("packets", (123456.7,), "packets", "")
    assert (single.shown, single.spread) == ("123,457 packets", "")


def test_ratios_are_those_of_each_run() -> None:
    assert ratios([10, 30], [5, 10]) == (2.0, 3.0)
    with pytest.raises(ValueError, match="shorter"):
        ratios([1, 2], [1])


# ---- selection ------------------------------------------------------------------------


def test_sections_come_in_their_own_order_and_all_without_a_name() -> None:
    assert [each.name for each in select(SECTIONS, ["packets", "startup"])] == ["startup", "packets"]
    assert [each.name for each in select(SECTIONS, ["packets"])] == ["packets"]
    assert [each.name for each in select(SECTIONS, [])] == ["startup", "packets"]


def test_an_unknown_section_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        select(SECTIONS, ["pakcets"])
    assert str(caught.value) == (
        "pakcets: no section is called so; see `testbed bench --list`; did you mean 'packets'?"
    )


def test_names_of_sections_are_unique_and_names_of_files() -> None:
    names = [each.name for each in suite.SECTIONS]
    assert len(set(names)) == len(names)
    assert all(name.isalnum() for name in names)


def test_a_section_gets_a_folder_that_goes() -> None:
    seen: list[Setting] = []

    def measured(setting: Setting) -> Found:
        seen.append(setting)
        assert setting.folder.is_dir()
        return FOUND

    assert suite.measure(Section("one", "", measured), 3, lambda _step: None) == FOUND
    assert seen[0].runs == 3
    assert not seen[0].folder.exists()


# ---- results and page -----------------------------------------------------------------


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    result = Result("startup", FOUND, {"system": "Linux"})
    results.write(tmp_path / "new", result)
    assert results.read(tmp_path / "new", "startup") == result
    assert results.read(tmp_path / "new", "packets") is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"format_version": 2}', "format 2, expected 1; measure the section again"),
        ("{}", "no result of `testbed bench` ('format_version'); measure the section again"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "startup.json"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        results.read(tmp_path, "startup")
    assert str(caught.value) == f"{path}: {message}"


def test_the_machine_is_named_without_its_name() -> None:
    said = results.machine()
    assert set(said) == {"processor", "system", "lab kernel", "packages", "testbed"}
    assert said["processor"].endswith("GB of memory")


def test_the_page_has_prose_table_and_machine_of_each_section() -> None:
    made = page(SECTIONS, [Result("packets", FOUND, {"system": "Linux"})], "testbed bench --page x")
    after = made.partition("Made by `testbed bench --page x`; do not edit.\n\n")[2]
    assert after == (
        "## packets: about packets\n\nSaid of it.\n\n"
        "| what | median | least to most | aim | command |\n|---|---|---|---|---|\n"
        "| boot | 0.512 s | 0.5 to 0.7, 3 runs | as fast as \\| it gets | `testbed bench startup` |\n"
        "| lines | 12 |  |  | `wc -l` |\n\nMeasured with system: Linux.\n"
    )


def test_the_table_in_the_terminal_has_80_columns() -> None:
    long = Figure("a " * 60 + "end", (1.0,), "s", "")
    shown = text([Result("packets", Found((FIGURE, long)), {})])
    assert shown.splitlines()[:2] == [
        "packets",
        "  boot: 0.512 s (0.5 to 0.7, 3 runs); aim: as fast as | it gets",
    ]
    assert max(map(len, shown.splitlines())) <= 80


# ---- the command ----------------------------------------------------------------------


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "SECTIONS", tuple(SECTIONS))


@pytest.mark.usefixtures("measured")
def test_the_command_keeps_results_and_writes_a_page_of_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, made = tmp_path / "kept", tmp_path / "page.md"
    words = ["bench", "--results", str(kept), "--page", str(made)]
    assert cli.main([*words, "startup", "--json"]) == 0
    assert from_json(json.loads(capsys.readouterr().out)["startup"]) == FOUND
    assert "## startup" in made.read_text()
    assert "## packets" not in made.read_text()
    assert cli.main([*words, "packets"]) == 0
    assert "## startup" in made.read_text()
    assert "## packets" in made.read_text()
    (kept / "packets.json").unlink()
    capsys.readouterr()
    assert cli.main([*words, "--measured"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "startup"
    assert not (kept / "packets.json").exists()
    assert "## packets" not in made.read_text()


@pytest.mark.usefixtures("measured")
def test_the_list_measures_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "--list"]) == 0
    assert capsys.readouterr().out == listing(SECTIONS) + "\n"
    assert listing(SECTIONS) == "startup  about startup\npackets  about packets"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--page", "x.md"], "--page and --measured show what is in --results; give that folder too"),
        (["--measured"], "--page and --measured show what is in --results; give that folder too"),
        (["--results", ".", "--page", "no/x.md"], "no/x.md: cannot be written; give another --page"),
        (
            ["--runs", "0"],
            "argument --runs: '0' is no whole number from 1 on; see `testbed bench --help`",
        ),
    ],
)
@pytest.mark.usefixtures("measured")
def test_what_cannot_be_used_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", *words]) == 2
    assert capsys.readouterr().err == f"testbed: {message}\n"


# ---- programs and the large record ----------------------------------------------------


def test_a_program_is_timed_with_its_memory_and_output() -> None:
    spent = timed([sys.executable, "-c", "x = bytearray(200 << 20); print(len(x))"])
    assert spent.output == f"{200 << 20}\n"
    assert 200 < spent.peak_mb < 400
    assert 0 < spent.processor_s < 20


def test_a_program_that_fails_is_an_error_with_its_last_words() -> None:
    with pytest.raises(LabError) as caught:
        timed([sys.executable, "-c", "raise SystemExit('no such thing')"])
    assert str(caught.value).endswith("ended with status 1: no such thing")
    assert timed([sys.executable, "-c", "raise SystemExit(4)"], allowed=(0, 4)).output == ""


def test_a_large_record_is_one_that_the_analysis_believes(tmp_path: Path) -> None:
    record = Record.open(large_record(tmp_path, 50, 30_000))
    readings = sum(len(group.rows) * len(group.links) for group in record.groups)
    assert readings == pytest.approx(30_000, rel=0.1)
    summary = summarise(record)
    assert summary["fidelity"]["reasons"] == []
    assert summary["transfers"]["completed"] == 50
    assert summary["links"]["leaf3-d1"]["utilisation"]["mean"] == pytest.approx(0.6, abs=0.1)


# ---- scale and growth -----------------------------------------------------------------


def test_an_exponent_is_the_slope_of_the_logarithms() -> None:
    assert growth.exponent([1, 2, 4, 8], [3, 12, 48, 192]) == pytest.approx(2)
    assert growth.exponent([10, 20], [5, 5]) == pytest.approx(0)


def test_the_made_up_trace_is_the_same_every_time_and_can_be_read() -> None:
    rows = list(trace.lines(200))
    assert rows == list(trace.lines(200))
    assert rows != list(trace.lines(200, seed=2))
    assert all(mooncake.is_sign(row) for row in rows)
    tokens = sorted(json.loads(row)["input_length"] for row in rows)
    assert 1_500 < tokens[100] < 2_700


def test_large_examples_are_as_large_as_they_say(tmp_path: Path) -> None:
    cases = [scale.Case(name, str(scale.EXAMPLES / f"{name}.yaml")) for name in scale.LARGE[:-1]]
    cases.append(scale.traced(tmp_path, 500))
    sizes = {}
    for case in cases:
        plan = build_plan(
            load_scenario(case.scenario, case.overrides), seed=1, backend="uml", clock="virtual"
        )
        sizes[case.name] = (len(plan.topology.hosts), len(plan.topology.switches), len(plan.transfers))
    assert sizes == {
        "incast-64": (65, 2, 64),
        "incast-256": (250, 2, 256),
        "fabric-128": (128, 16, 128),
        "trace of 500": (32, 8, 500),
    }


def test_a_case_whose_trace_is_gone_afterwards_names_the_section_that_makes_it(tmp_path: Path) -> None:
    case = scale.traced(tmp_path, 500)
    assert case.overrides[0] == f"workload.requests.path={tmp_path}/trace.jsonl"
    assert case.command == "testbed bench scale"


def test_a_growing_series_doubles_hosts_and_keeps_what_each_moves(tmp_path: Path) -> None:
    series = growth._series(Setting(1, tmp_path, lambda text: None))
    assert [tuple(cases) for cases in series.values()] == [growth.HOSTS, growth.MEBIBYTES, growth.TRANSFERS]
    for count, case in series["hosts"].items():
        plan = build_plan(
            load_scenario(case.scenario, case.overrides), seed=1, backend="uml", clock="virtual"
        )
        assert (len(plan.topology.hosts), len(plan.transfers)) == (count, count)
        assert {transfer.bytes for transfer in plan.transfers} == {4 << 20}


def test_a_case_says_what_it_cost_and_what_was_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def ran(command: list[str], allowed: tuple[int, ...]) -> Spent:
        out = Path(command[command.index("--out") + 1])
        out.mkdir()
        (out / "environment.json").write_text(json.dumps({"memory": {"touched_mib": 130}}))
        (out / "rows").write_bytes(bytes(3 << 20))
        commands.append(command)
        return Spent(4.5, 4.0, 140.0, "")

    monkeypatch.setattr(scale, "timed", ran)
    case = scale.Case("small incast", "incast", ("workload.requests.kv_bytes=1mib",))
    figures = scale._figures(case, scale._runs(Setting(2, tmp_path, print), case, 2), whole=True)
    values = {figure.what: figure.median for figure in figures}
    needs = case.needs()
    assert len(commands) == 2
    assert (values["small incast: seconds"], values["small incast: processor seconds"]) == (4.5, 4.0)
    assert values["small incast: guest's memory"] == 130
    assert values["small incast: record"] == pytest.approx(3, abs=0.001)
    assert values["small incast: estimate of processor seconds"] == pytest.approx(needs.real_s / 4.0)
    assert figures[0].command == "testbed run incast --set workload.requests.kv_bytes=1mib"
