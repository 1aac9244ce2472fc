"""The check: what passes, what does not and why, the worst outcome, and what is written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from testbed import cli
from testbed.regress import toolchain as tools_module
from tests.support.regress import StandIn, summary

SCENARIO = """\
name: small
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 2}
hosts: {prefill: {count: 1}, decode: {count: 1}}
workload: {requests: {kv_bytes: 1mib}}
expect:
  - verdict.segment == dest-leaf
  - ttft_ms.p99 <= 44
"""
SPINE = summary(verdict__segment="spine")
INVALID = summary(fidelity={"valid": False, "reasons": ["a hole in the samples"], "checks": []})


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    kernel = type("Kernel", (), {"version": "6.12.1-kv", "key": "abc", "path": Path(__file__)})
    monkeypatch.setattr(tools_module, "find_kernel", lambda clock: kernel)
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SCENARIO)
    return StandIn(tmp_path / "stand-in", monkeypatch)


def check(*words: str) -> int:
    return cli.main(["check", "small.yaml", *words])


@pytest.mark.parametrize(
    ("answer", "code", "outcome", "told"),
    [
        ((0, "", summary()), 0, "passed", ""),
        (
            (1, "testbed: expected", SPINE),
            1,
            "FAILED",
            "small.yaml:6: expected verdict.segment == dest-leaf, measured spine",
        ),
        ((4, "testbed: not valid", INVALID), 4, "NOT VALID", "a hole in the samples"),
        ((2, "testbed: record: is a file", None), 2, "BAD INPUT", "record: is a file"),
        ((3, "testbed: leaf3-d1: rate is 9", None), 3, "LAB FAILED", "leaf3-d1: rate is 9"),
        ((130, "testbed: ended by SIGINT", None), 3, "LAB FAILED", "ended by SIGINT"),
    ],
)
def test_the_outcome_of_a_run(
    runs: StandIn, capsys: pytest.CaptureFixture[str], answer: Any, code: int, outcome: str, told: str
) -> None:
    runs.answers(all=answer)
    assert check() == code
    out, err = capsys.readouterr()
    held = {0: "2 of 2", 1: "1 of 2", 4: "2 of 2"}.get(code, "0 of 2")
    assert re.search(rf"^small +1 +{held} +none +{outcome}$", out, re.MULTILINE)
    if code:
        assert f"\nsmall, seed 1: {outcome}\n  {told}\n  record: runs/small-1-" in out
        assert err.endswith(f"testbed: 1 of 1 runs did not pass; small, seed 1: {told}\n")
    assert f"1 of 1: small, seed 1: {outcome}" in err


def test_the_worst_outcome_counts(runs: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    fine, fails, invalid = (0, "", summary()), (1, "", SPINE), (4, "", INVALID)
    bad, lab = (2, "testbed: bad", None), (3, "testbed: lab", None)
    for answers, code in [
        ([fine, fails, fine], 1),
        ([fails, invalid, fine], 4),
        ([invalid, bad, fails], 2),
        ([bad, lab, invalid], 3),
    ]:
        runs.answers(**{str(seed): answer for seed, answer in enumerate(answers, 1)})
        assert check("--seeds", "3", "--out", f"runs{code}") == code
    assert "2 of 3 runs did not pass; small, seed 2: a hole" in capsys.readouterr().err


def test_seeds_and_settings_reach_the_runs(runs: StandIn) -> None:
    runs.answers(all=(0, "", summary()))
    assert check("--seed", "5", "--seeds", "2", "--set", "fabric.mtu=1500", "--jobs", "1") == 0
    assert [line.partition(" --out")[0] for line in runs.asked] == [
        f"run small.yaml --seed {seed} --backend uml --clock virtual --set fabric.mtu=1500" for seed in (5, 6)
    ]


def test_as_json(runs: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    runs.answers(all=(1, "", SPINE))
    assert check("--json") == 1
    (one,) = json.loads(capsys.readouterr().out)
    assert one["record"].startswith("runs/small-1-")
    assert one["expectations"][0] == {
        "place": "small.yaml:6",
        "expectation": "verdict.segment == dest-leaf",
        "measured": "spine",
        "ok": False,
    }
    assert (one["outcome"], one["golden"], one["reason"]) == ("failed", None, None)


def test_a_golden_is_made_holds_and_fails(runs: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    runs.answers(all=(0, "", summary()))
    assert check("--golden", "g", "--update") == 0
    assert "1 of 1 goldens written to g/" in capsys.readouterr().out
    assert check("--golden", "g", "--out", "again") == 0
    assert re.search(r"^small +1 +2 of 2 +same +passed$", capsys.readouterr().out, re.MULTILINE)
    runs.answers(all=(0, "", summary(ttft_ms__p99=43.6)))
    assert check("--golden", "g", "--out", "other") == 1
    out, err = capsys.readouterr()
    assert re.search(r"^small +1 +2 of 2 +differs +FAILED$", out, re.MULTILINE)
    assert "    ttft_ms.p99: 43.5 -> 43.6 (+0.2 %)\n" in out
    assert err.endswith("small, seed 1: its golden g/small-1.json does not hold\n")


def test_no_golden_is_made_of_what_does_not_pass(runs: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    runs.answers(**{"1": (0, "", summary()), "2": (1, "", SPINE), "3": (4, "", INVALID)})
    assert check("--seeds", "3", "--golden", "g", "--update") == 4
    assert "1 of 3 goldens written" in capsys.readouterr().out
    assert [path.name for path in Path("g").iterdir()] == ["small-1.json"]


def test_junit_counts_what_was_not_measured_as_an_error(runs: StandIn) -> None:
    runs.answers(**{"1": (0, "", summary()), "2": (0, "", summary(seed=2))})
    check("--seeds", "2", "--golden", "g", "--update")
    runs.answers(**{"1": (1, "", SPINE), "2": (3, "testbed: lab", None)})
    assert check("--seeds", "2", "--golden", "g", "--out", "r", "--junit", "out/j.xml") == 3
    root = ElementTree.parse("out/j.xml").getroot()
    assert [root.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["8", "2", "4", "0"]
    first, second = root
    assert (first.get("name"), second.get("name")) == ("small, seed 1", "small, seed 2")
    case = first[1]
    assert (case.get("name"), case.get("file"), case.get("line")) == (
        "verdict.segment == dest-leaf",
        "small.yaml",
        "6",
    )
    assert case[0].get("message") == "expected verdict.segment == dest-leaf, measured spine"
    assert [(one.tag, one.get("message")) for case in second for one in case] == [
        ("error", "LAB FAILED: lab"),
        ("error", "LAB FAILED: not measured"),
        ("error", "LAB FAILED: not measured"),
        ("error", "LAB FAILED: not measured"),
    ]


def test_junit_is_xml_whatever_an_error_says(runs: StandIn) -> None:
    runs.answers(all=(3, "testbed: \x1b[31m\x07 ]]></testcase>&lt; \ufffe", None))
    assert check("--junit", "j.xml") == 3
    ((suite),) = ElementTree.parse("j.xml").getroot()
    message = "LAB FAILED: \\x1b[31m\\x07 ]]></testcase>&lt; \\ufffe"
    assert suite.findall("testcase/error")[0].get("message") == message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--golden", "g"], "g/small-1.json: there is no golden of small with seed 1; make it with --update"),
        (["--update"], "--update writes goldens; say where, with --golden DIR"),
        (["small.yaml"], "small.yaml: has the name of another, small, seed 1; name each once"),
        (
            ["--set", "expect=[]"],
            "small.yaml: expects nothing, so that nothing would be checked; write expect, or give --golden",
        ),
        (
            ["--set", "expect=[verdict.segmnt == x]"],
            "--set expect=[verdict.segmnt == x]: expect.0: asks verdict for 'segmnt' "
            "(found verdict.segmnt == x); the keys of verdict; did you mean 'segment'?",
        ),
        (
            ["--seeds", "0"],
            "argument --seeds: '0' is no whole number from 1 to 10000; see `testbed check --help`",
        ),
    ],
)
def test_what_cannot_be_judged_is_refused_before_anything_runs(
    runs: StandIn, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    runs.answers(all=(0, "", summary()))
    assert check(*words) == 2
    assert capsys.readouterr().err == f"testbed: {message}\n"
    assert runs.asked == []
