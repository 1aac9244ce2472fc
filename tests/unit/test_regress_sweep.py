"""The sweep: its grid, what is refused before anything runs, taking up again, the table and the page."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed import cli
from testbed.errors import InputError, MachineError
from testbed.regress import commands
from testbed.regress import grid as grid_module
from testbed.regress.executors import executor
from testbed.regress.front import front, groups
from testbed.regress.grid import Vary, build_grid, parse_vary
from testbed.regress.sweep import NOT_VALID, OK, Measured, finished, points_csv
from testbed.regress.sweep_page import page
from tests.support.regress import StandIn, summary

SCENARIO = """\
name: small
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 2, queue: {kmin: 100kb, kmax: 400kb, pmax: 0.2, limit: 8mb}}
hosts: {prefill: {count: 1}, decode: {count: 1}}
workload: {requests: {kv_bytes: 1mib}}
expect: [verdict.segment == spine]
"""
VARY = ["--vary", "fabric.queue.kmin=20kb,50kb", "--vary", "fabric.queue.kmax=200kb,400kb"]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SCENARIO)
    return StandIn(tmp_path / "stand-in", monkeypatch)


def sweep(*words: str) -> int:
    return cli.main(["sweep", "small.yaml", *VARY, "--out", "out", *words])


# ---- the grid -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("a.b=1kb,2kb", "a.b", ("1kb", "2kb")),
        ("a = x , y ", "a", ("x", "y")),
        ("a=[1,2],[3]", "a", ("[1,2]", "[3]")),
        ("a={b: 1, c: 2},{b: 2}", "a", ("{b: 1, c: 2}", "{b: 2}")),
    ],
)
def test_values_are_split(text: str, key: str, values: tuple[str, ...]) -> None:
    assert parse_vary(text) == Vary(key, values)


def test_every_combination_and_seed_is_a_point(runs: StandIn) -> None:
    varied = [parse_vary(text) for text in VARY[1::2]]
    grid = build_grid("small.yaml", varied, (3, 4), Path("out"), overrides=["fabric.mtu=1500"])
    assert [(point.values, point.seed) for point in grid.points] == [
        ((kmin, kmax), seed) for kmin in ("20kb", "50kb") for kmax in ("200kb", "400kb") for seed in (3, 4)
    ]
    assert len({point.task.out for point in grid.points}) == 8
    task = grid.points[2].task
    assert task.overrides == (
        *("fabric.mtu=1500", "fabric.queue.kmin=20kb", "fabric.queue.kmax=400kb", "expect=[]"),
    )
    assert (task.backend, task.clock, task.seed) == ("uml", "virtual", 3)
    assert task.scenario == str(Path("small.yaml").resolve())  # workers may stand in another folder
    assert task.out.parent == Path("out").resolve() / "records"


KEYS = "the keys are kmin, kmax, pmax, limit, xoff"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--vary", "fabric.queue.kmn=1kb"],
            f"--set fabric.queue.kmn=1kb: fabric.queue.kmn: is no known key; {KEYS}.*; did you mean 'kmin'?",
        ),
        # Out of its range only together with the other key's last value.
        (
            ["--vary", "fabric.queue.limit=8mb,300kb"],
            "--set fabric.queue.kmax=400kb: fabric.queue.kmax: is above limit (found 400kb); "
            "at most limit, 300kb",
        ),
        (
            ["--vary", "fabric.queue.kmin=20kb"],
            "--vary fabric.queue.kmin: is varied twice; give all its values at once",
        ),
        (["--vary", "a="], "--vary a=: is no list of values; write KEY=VALUE,VALUE,..."),
        (["--vary", "a=1,,2"], "--vary a=1,,2: is no list of values; write KEY=VALUE,VALUE,..."),
        (["--vary", "a=1,2,1"], "--vary a=1,2,1: has 1 twice; name each value once"),
        (
            ["--executor", "ssh://host"],
            "--executor ssh://host: is no address; write dask://HOST:PORT, a dask scheduler's",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_runs(
    runs: StandIn, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert sweep(*words) == 2
    pattern = re.escape(message).replace(r"\.\*", ".*")
    assert re.fullmatch(f"testbed: {pattern}\n", capsys.readouterr().err)
    assert runs.asked == []
    assert not Path("out").exists()


def test_a_long_planning_says_how_far_it_is(
    runs: StandIn, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.answers(all=(0, "", summary()))
    assert sweep("--seeds", "2") == 0
    assert "are planned" not in capsys.readouterr().err
    monkeypatch.setattr(commands, "PLANNING_TOLD_S", 0)
    assert sweep("--seeds", "2") == 0
    told = [line.partition(" s  ")[2] for line in capsys.readouterr().err.splitlines()]
    assert told[:5] == [*(f"{done} of 8 points are planned" for done in (2, 4, 6, 8)), told[4]]
    assert told[4] == "8 of 8 points are there already"


def test_a_setting_written_in_two_ways_is_one_run(runs: StandIn) -> None:
    runs.answers(all=(0, "", summary()))
    words = ["sweep", "small.yaml", "--vary", "fabric.queue.kmin=20kb,0.02mb", "--out", "out"]
    assert cli.main(words) == 0
    assert len(runs.asked) == 1
    lines = Path("out/points.csv").read_text().splitlines()
    assert [line.partition(",1,ok,dest-leaf,")[0] for line in lines[1:]] == ["20kb", "0.02mb"]


def test_a_grid_has_a_limit(runs: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid_module, "POINTS_MOST", 3)
    with pytest.raises(InputError, match="^--vary: 4 runs are more than 3; vary less at once$"):
        build_grid("small.yaml", [Vary("fabric.mtu", ("1500", "4200"))], (1, 2), Path("out"))


# ---- running and taking up again ------------------------------------------------------


def test_finished_points_are_not_run_again(runs: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    runs.answers(all=(0, "", summary()))
    assert sweep("--seeds", "2") == 0
    table = Path("out/points.csv").read_bytes()
    assert len(runs.asked) == 8
    assert Path("out/sweep.svg").read_text().count('class="chart"') == 2
    first, second, third, *_ = sorted(Path("out/records").iterdir())
    # What a killed run leaves is no finished point; the testbed replaces it, the stand-in wants it away.
    for record in (first, second, third):
        shutil.rmtree(record)
    capsys.readouterr()
    assert sweep("--seeds", "2") == 0
    err = capsys.readouterr().err
    assert "5 of 8 points are there already" in err
    assert "3 of 3: " in err
    assert len(runs.asked) == 11
    assert Path("out/points.csv").read_bytes() == table
    # Once more with a value more: only the new points run.
    assert sweep("--seeds", "3") == 0
    assert len(runs.asked) == 15


@pytest.mark.parametrize(
    "damage",
    [
        lambda record: (record / "manifest.json").write_text('{"format_version": 1, "status": "running"}'),
        lambda record: (record / "manifest.json").write_text('{"format_version": 0, "status": "complete"}'),
        lambda record: (record / "summary.json").unlink(),
        lambda record: (record / "summary.json").write_text("{"),
        lambda record: (record / "summary.json").write_text(json.dumps(summary(format_version=0))),
    ],
)
def test_half_a_record_is_none(runs: StandIn, damage: Any) -> None:
    runs.answers(all=(0, "", summary()))
    assert sweep() == 0
    point = build_grid("small.yaml", [parse_vary(text) for text in VARY[1::2]], (1,), Path("out")).points[0]
    assert finished(point) is not None
    damage(point.task.out)
    assert finished(point) is None


def test_failures_are_told_and_the_rest_goes_on(runs: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    invalid = summary(fidelity={"valid": False, "reasons": ["a hole"], "checks": []})
    bad = "fabric.queue.kmin=20kb fabric.queue.kmax=400kb expect=[] 1"
    runs.answers(**{bad: (4, "testbed: a hole", invalid), "all": (0, "", summary())})
    assert sweep() == 4
    err = capsys.readouterr().err
    assert err.endswith("testbed: 1 of 4 runs not valid; the first is 20kb, 400kb, seed 1: a hole\n")
    runs.answers(**{bad: (3, "testbed: no kernel", None), "all": (0, "", summary())})
    assert sweep("--out", "other") == 3
    assert capsys.readouterr().err.endswith("runs failed; the first is 20kb, 400kb, seed 1: no kernel\n")
    lines = Path("other/points.csv").read_text().splitlines()
    assert lines[2].startswith("20kb,400kb,1,failed,,")
    assert lines[1].startswith("20kb,200kb,1,ok,dest-leaf,0.9,40.0,43.5,")
    assert "1 of 4 runs are left out" in Path("other/sweep.html").read_text()


def test_a_sweep_of_which_nothing_came_has_an_empty_page(runs: StandIn) -> None:
    runs.answers(all=(3, "testbed: no kernel", None))
    assert sweep() == 3
    assert "4 of 4 runs are left out" in Path("out/sweep.html").read_text()
    assert len(Path("out/points.csv").read_text().splitlines()) == 5
    assert not Path("out/sweep.svg").exists()


def test_what_the_scenario_expects_is_not_asked_of_a_sweep(runs: StandIn) -> None:
    runs.answers(all=(0, "", summary()))
    assert sweep() == 0
    assert all("--set expect=[]" in line for line in runs.asked)


# ---- the table and the page -----------------------------------------------------------


def measured(runs: StandIn) -> tuple[Any, list[Measured]]:
    """Return a grid of 2 x 2 with two seeds, and values that rise with K_min and seed."""
    grid = build_grid("small.yaml", [parse_vary(text) for text in VARY[1::2]], (1, 2), Path("out"))
    found = []
    for number, point in enumerate(grid.points):
        values = {"ttft_ms.p99": 40.0 - number, "run.queue_max_bytes": 1000 + 10 * number}
        found.append(Measured(point, OK, {**values, "run.goodput_bps": 8e10, "run.queue_mean_bytes": 7.0}))
    return grid, found


def test_a_group_is_a_setting_over_its_seeds(runs: StandIn) -> None:
    _, found = measured(runs)
    first = groups(found)[0]
    assert (first.values, first.seeds) == (("20kb", "200kb"), 2)
    spread = first.spreads["ttft_ms.p99"]
    assert (spread.mean, spread.low, spread.high) == (39.5, 39.0, 40.0)
    assert first.mean("run.pauses") is None
    spoilt = [Measured(one.point, NOT_VALID, one.values) if not at else one for at, one in enumerate(found)]
    assert [group.values for group in groups(spoilt)] == [
        ("20kb", "400kb"),
        ("50kb", "200kb"),
        ("50kb", "400kb"),
    ]


@pytest.mark.parametrize(
    ("points", "higher", "kept"),
    [
        ([(1, 5), (2, 4), (3, 4.5), (4, 1), (2, 9)], False, [0, 1, 3]),
        ([(1, 5), (2, 4), (3, 6)], True, [0, 2]),
        ([(1, 1), (1, 1), (1, 0)], False, [2]),
        ([(2, 2), (2, 2)], False, [0, 1]),
        ([(2, 2), (1, 3), (2, 2), (3, 3)], False, [1, 0, 2]),
        ([], False, []),
    ],
)
def test_the_front(points: list[tuple[float, float]], higher: bool, kept: list[int]) -> None:
    assert front(points, higher_y=higher) == kept


def test_the_page_shows_maps_lines_and_trades(runs: StandIn) -> None:
    text = page(*measured(runs))
    assert "<h1>small: 4 settings, 2 seeds each</h1>" in text
    assert text.count("<svg") == 6  # two trades, four quantities
    assert text.count('<table class="heat">') == 3
    assert "the darker, the higher" in text
    assert "http" not in text.replace("http-equiv", "")
    # The best of both is the last: fewest milliseconds; the first has the smallest queue.
    fronts = re.findall(r"<tr><th scope=\"row\">(kmin [^<]*)</th>", text)
    assert fronts[:4] == [
        *("kmin 20kb, kmax 200kb", "kmin 20kb, kmax 400kb", "kmin 50kb, kmax 200kb", "kmin 50kb, kmax 400kb"),
    ]


def test_one_key_has_lines_and_no_map(runs: StandIn) -> None:
    grid = build_grid("small.yaml", [parse_vary(VARY[1])], (1,), Path("out"))
    found = [Measured(point, OK, {"ttft_ms.p99": 40.0}) for point in grid.points]
    text = page(grid, found)
    assert (text.count("<svg"), text.count('class="heat"')) == (1, 0)


def test_the_table_is_the_grid_in_order(runs: StandIn) -> None:
    grid, found = measured(runs)
    head, first, *_ = points_csv(grid, found).splitlines()
    assert head.startswith("fabric.queue.kmin,fabric.queue.kmax,seed,status,verdict.segment,")
    assert first == "20kb,200kb,1,ok,,,,40.0,,,,,,,,,80000000000.0,1000,7.0,,,"


# ---- workers elsewhere ----------------------------------------------------------------


def test_without_the_package_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(MachineError, match=r"needs dask\.distributed: pip install kv-testbed\[dask\]$"),
        executor("dask://localhost:1"),
    ):
        pass


def test_this_machine_needs_no_executor() -> None:
    with executor(None) as pool:
        assert pool is None


def test_settings_that_make_no_difference_are_said_to(runs: StandIn) -> None:
    grid, found = measured(runs)
    same = {"ttft_ms.p99": 40.0, "run.queue_max_bytes": 1000, "run.goodput_bps": 8e10}
    found = [Measured(one.point, OK, same) for one in found]
    text = page(grid, found).replace("\N{NO-BREAK SPACE}", " ")
    words = "time to kv, p99 is 40 ms, throughput is 80 Gbit/s, highest queue is 1 kB."
    assert f"The settings make no difference: whatever they are, {words}" in text
    for heading in ("What is gained for what", "Maps", "the darker"):
        assert heading not in text
    assert text.count("<svg") == 3  # the lines, which show it
    assert "make no difference" not in page(*measured(runs))
