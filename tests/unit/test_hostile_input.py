"""Nothing that somebody hands in ends in a traceback, hangs, or is refused without saying where.

The same cases in every run: `KV_HOSTILE=50` tries so many times as many. `python -m tests.support.hostile`
searches for new ones.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed import cli, strict_json
from testbed.errors import InputError
from testbed.record import layout
from testbed.scenario import load_scenario
from tests.support.hostile import TARGETS, attempt
from tests.support.synthetic import edit_json, incast, write_record
from traffic.lengths import read_distribution
from traffic.traces.rows import TraceError

CASES = {"record": 25, "comparison": 25, "limit": 25, "golden": 30}
"""Those that take longest; of each other kind of input there are `FEW`."""
FEW = 40
TIMES = int(os.environ.get("KV_HOSTILE", "1"))


@pytest.mark.parametrize("target", TARGETS)
def test_is_accepted_or_refused(target: str) -> None:
    @settings(
        max_examples=CASES.get(target, FEW) * TIMES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(number=st.integers(0, 2**32))
    def attempts(number: int) -> None:
        attempt(target, Random(f"{target}-{number}"))

    attempts()


def test_both_happen() -> None:
    # A harness that only ever sees refusals, or none, would show nothing.
    for target in ("config", "trace", "comparison"):
        found = {attempt(target, Random(number)) is None for number in range(20)}
        assert found == {True, False}, target


# ---- found so, and mended -------------------------------------------------------------

LONG = "9" * 5000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compare", "a", "b", "--fail-if", f"a.b > {LONG}"], "is longer than 500 characters; "),
        (["sweep", "incast", "--vary", f"{LONG}"], "...: is no list of values; write KEY=VALUE,VALUE,..."),
        (["sweep", "incast", "--vary", f"a={LONG},{LONG}"], "... twice; name each value once"),
        (["report", "a" * 300], "File name too long"),
        (["plan", f"{'a' * 300}.yaml"], "File name too long"),
        (["clean", "a" * 300], "File name too long"),
        (["report", "a\0b"], "testbed: a\\x00b: no such folder"),
    ],
)
def test_words_that_are_none(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("testbed: ")
    assert message in err
    assert len(err) < 1000


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        (layout.PLAN, {"dilation": 1e999}, "is no finite number"),
        (layout.PLAN, {"seed": 10**30}, "is too large a number"),
        (layout.PLAN, {"transfers": [], "mtu": -1}, "plan.mtu is -1"),
        (layout.PLAN, {"expectations": ["=="]}, "plan.expectations has '=='"),
        (
            layout.PLAN,
            {"measure": {"interval_ns": 0, "progress_ns": 1, "departures": []}},
            "an interval of 0",
        ),
        (layout.PLAN, {"framework": {}}, "plan.framework: is dict; expected str"),
        (layout.PLAN, {"k" * 70_000: 1}, "plan.json: plan: the keys differ: missing [], unknown ['kkk"),
        (layout.MANIFEST, {"files": [1]}, "manifest.json: files is list; expected a mapping"),
        (layout.FACTS, {"readback": {"where": 1}}, "raw/facts.json: readback is dict; expected a list"),
        (layout.FACTS, {"readback": [1]}, "raw/facts.json: readback[0] is int; expected a mapping"),
        (layout.TCP_COUNTERS, {"p1": [1]}, "raw/tcp-counters.json: p1 is list; expected a mapping"),
        (layout.samples_header("fabric"), {"links": [["a"]]}, "links[0] is list; expected str"),
        (layout.samples_header("fabric"), {"links": ["x-y"]}, "links that are not in the plan: x-y"),
    ],
)
def test_records_that_are_none(
    tmp_path: Path, name: str, edit: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record = write_record(tmp_path / "record", incast(senders=2, size=1 << 20))
    edit_json(record, name, lambda value: {**value, **edit})
    if name == layout.MANIFEST:  # sealing it anew has mended it
        manifest = json.loads((record / name).read_text())
        (record / name).write_text(json.dumps({**manifest, **edit}))
    assert cli.main(["report", str(record)]) in (0, 2, 4)
    told = "".join(capsys.readouterr())
    assert len(told) < 10_000
    assert message in " ".join(told.split()), told


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        "[" * 100_000,
        "NaN",
        "1e999",
        "-Infinity",
        "9" * 5000,
        '"\\ud800"',
        '{"\\uDC00": 1}',
        "\ufeff{}",
        "{",
        "",
        "\x00",
    ],
)
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(ValueError, match=r"^.{1,200}$"):
        strict_json.loads(text)
    with pytest.raises(ValueError, match=r"^is not UTF-8 text$"):
        strict_json.loads(b"\xff\xfe")


def test_what_is_too_much(tmp_path: Path) -> None:
    path = tmp_path / "scenario.yaml"
    started = time.process_time()
    path.write_text(f"name: small\nexpect: [{'a,' * 300_000}]\n")
    message = f"{path}:2: is beyond 150000 keys and values; no scenario has so many"
    with pytest.raises(InputError) as caught:
        load_scenario(str(path))
    assert str(caught.value) == message
    (tmp_path / "lengths").write_text("1 1\n" * 200_000)
    with pytest.raises(TraceError) as refused:
        read_distribution(str(tmp_path / "lengths"))
    assert str(refused.value).endswith(
        "/lengths:100001: is beyond 100000 points; no distribution needs so many"
    )
    assert time.process_time() - started < 15
