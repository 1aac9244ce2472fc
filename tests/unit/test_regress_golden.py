"""Goldens: what is stored, what differs, in which order it is told, and what is no golden."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import InputError
from testbed.regress import toolchain as tools_module
from testbed.regress.flat import Change, changes, flatten, shown_change
from testbed.regress.golden import (
    REAL_CLOCK,
    Golden,
    Tolerance,
    difference,
    golden_path,
    read_golden,
    settings_of,
    write_golden,
)
from testbed.regress.text import golden_lines
from testbed.regress.toolchain import differing, toolchain
from testbed.scenario import load_scenario
from tests.support.regress import SUMMARY, summary

TOOLS = {"kernel": "6.12.1-kv", "iproute2": "6.1.0-3"}
SETTINGS: dict[str, Any] = {"fabric.queue.kmax": "400kb", "name": "small"}


def stored(folder: Path, values: dict[str, Any] = SUMMARY) -> Golden:
    path = golden_path(folder, values["scenario"], values["seed"])
    write_golden(path, values, SETTINGS, TOOLS)
    return read_golden(path, values["scenario"], values["seed"], values["clock"])


# ---- flat -----------------------------------------------------------------------------


def test_a_summary_is_flat_without_its_wording() -> None:
    flat = flatten({"a": {"b": 1, "c": ["x", "y"]}, "d": [{"e": None}], "verdict": {"text": "said"}})
    assert flat == {"a.b": 1, "a.c": "x, y", "d.0.e": None}


def test_changes_are_told_by_group_and_effect() -> None:
    before = flatten(SUMMARY)
    after = flatten(
        summary(
            ttft_ms__p99=87.0,
            ttft_ms__p50=50.0,
            transfers__jain=0.9,
            links={**SUMMARY["links"], "p1-leaf1": {**SUMMARY["links"]["p1-leaf1"], "drops": 7}},
            verdict__text="Said in another way.",
        )
    )
    assert [shown_change(change) for change in changes(before, after)] == [
        "ttft_ms.p99: 43.5 -> 87 (+100.0 %)",
        "ttft_ms.p50: 40 -> 50 (+25.0 %)",
        "transfers.jain: 0.99 -> 0.9 (-9.1 %)",
        "links.p1-leaf1.drops: 0 -> 7",
    ]


@pytest.mark.parametrize(
    ("before", "after", "effect", "relative"),
    [
        (100, 80, 0.2, -0.2),
        (80, 100, 0.2, 0.25),
        (0, 5, 1.0, None),
        (5, 0, 1.0, -1.0),
        (-1, 1, 1.0, -2.0),
        (None, 5, 1.0, None),
        ("spine", "dest-leaf", 1.0, None),
        (True, False, 1.0, None),
    ],
)
def test_an_effect_is_a_share_of_the_larger(before: Any, after: Any, effect: float, relative: Any) -> None:
    change = Change("a", before, after)
    assert (change.effect, change.relative) == (pytest.approx(effect), relative)


# ---- the virtual clock ----------------------------------------------------------------


def test_the_same_values_hold(tmp_path: Path) -> None:
    found = difference(stored(tmp_path), json.loads(json.dumps(SUMMARY)), SETTINGS, TOOLS)
    assert (found.same, found.changes, found.missing, found.new) == (True, (), (), ())
    assert golden_lines(found) == [f"{tmp_path}/small-1.json: same values"]


def test_the_last_digit_counts(tmp_path: Path) -> None:
    found = difference(stored(tmp_path), summary(ttft_ms__p99=43.5000001), SETTINGS, TOOLS)
    assert found.changes == (Change("ttft_ms.p99", 43.5, 43.5000001),)
    assert not found.same


def test_other_words_are_no_difference(tmp_path: Path) -> None:
    golden = stored(tmp_path)
    assert "It was the leaf" not in golden.path.read_text()
    assert difference(golden, summary(verdict__text="The leaf it was."), SETTINGS, TOOLS).same


def test_a_new_key_is_told_and_holds(tmp_path: Path) -> None:
    found = difference(stored(tmp_path), summary(links__leaf2_to_d1__pauses=3), SETTINGS, TOOLS)
    assert (found.same, found.new) == (True, ("links.leaf2-d1.pauses",))
    assert golden_lines(found)[1:] == [
        "  1 keys are new and not compared (links.leaf2-d1.pauses, ...); --update takes them in"
    ]


def test_a_key_that_is_gone_fails(tmp_path: Path) -> None:
    values = summary()
    del values["ttft_ms"]["max"]
    found = difference(stored(tmp_path), values, SETTINGS, TOOLS)
    assert (found.same, found.missing) == (False, ("ttft_ms.max",))
    assert "  ttft_ms.max: is gone" in golden_lines(found)


def test_settings_and_toolchain_are_named(tmp_path: Path) -> None:
    golden = stored(tmp_path)
    values = summary(ttft_ms__p99=50.0, transfers__jain=0.5, links__leaf2_to_d1__ce_marks=0)
    found = difference(
        golden,
        values,
        {"name": "small", "fabric.queue.kmax": "4mb", "hosts.x": "1"},
        {**TOOLS, "iproute2": "6.9"},
    )
    assert golden_lines(found) == [
        f"{tmp_path}/small-1.json: 3 values differ",
        "  first of all, largest first:",
        "    ttft_ms.p99: 43.5 -> 50 (+14.9 %)",
        "  of the whole run, largest first:",
        "    transfers.jain: 0.99 -> 0.5 (-49.5 %)",
        "  of links and moments, largest first:",
        "    links.leaf2-d1.ce_marks: 100 -> 0 (-100.0 %)",
        "  the settings are not those of the golden:",
        "    fabric.queue.kmax: 400kb -> 4mb",
        "    hosts.x: null -> 1",
        "  the toolchain is not the golden's, values may differ for that alone:",
        "    iproute2 6.1.0-3 (golden) and 6.9 (here)",
    ]
    assert golden_lines(difference(golden, values, SETTINGS, TOOLS))[-2:] == [
        "  the settings are those of the golden",
        "  the toolchain is the golden's: kernel and packages are not the reason",
    ]


def test_only_the_largest_of_many_are_listed(tmp_path: Path) -> None:
    many = summary(verdict__shares={f"s{number:02}": 1.0 for number in range(12)})
    other = summary(verdict__shares={f"s{number:02}": 1.0 + number for number in range(12)})
    lines = golden_lines(difference(stored(tmp_path, many), other, SETTINGS, TOOLS))
    assert lines[2] == "    verdict.shares.s11: 1 -> 12 (+1100.0 %)"
    assert lines[10] == "    and 3 more"


# ---- the file -------------------------------------------------------------------------


def test_a_golden_is_reviewable(tmp_path: Path) -> None:
    links = {f"leaf{number}-d1": SUMMARY["links"]["leaf2-d1"] for number in range(1, 9)}
    lines = stored(tmp_path, summary(links=links)).path.read_text().splitlines()
    (link,) = [line for line in lines if line.strip().startswith('"leaf2-d1"')]
    assert link.strip() == (
        '"leaf2-d1": {"ce_marks": 100, "drops": 0, '
        '"queue_bytes": {"max": 600, "mean": 200.5, "p99": 500}, "segment": "dest-leaf"},'
    )
    assert ' "scenario": "small",' in lines
    assert (
        stored(tmp_path, summary(links=links)).path.read_text().splitlines() == lines
    )  # written again, the same


def test_settings_are_what_the_file_says(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("name: s\nextends: one-sender-landing\ndescription: no matter\nexpect: []\n")
    settings = settings_of(load_scenario(str(path), ["hosts.prefill.leaves=[1]"]))
    assert settings["hosts.decode.nic_to_gpu"] == "40gbit"
    assert settings["hosts.prefill.leaves"] == "1"
    assert not {"description", "expect"} & settings.keys()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scenario": "other"}, "is a golden for scenario other, this is scenario small"),
        ({"seed": 2}, "is a golden for seed 2, this is seed 1"),
        ({"clock": "real"}, "is a golden for clock real, this is clock virtual"),
        ({"format_version": 9}, "has format_version 9; this testbed reads 1"),
        ({"toolchain": None}, "is no golden: TypeError(\"'NoneType' object is not iterable\")"),
    ],
)
def test_another_golden_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = stored(tmp_path).path
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError, match=f"^{re.escape(f'{path}: {message}; make it with --update')}$"):
        read_golden(path, "small", 1, "virtual")


def test_no_golden_is_refused(tmp_path: Path) -> None:
    path = golden_path(tmp_path, "small", 1)
    message = f"{path}: there is no golden of small with seed 1; make it with --update"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        read_golden(path, "small", 1, "virtual")
    path.write_text("{")
    with pytest.raises(InputError, match=r"small-1\.json: is no golden: JSONDecodeError"):
        read_golden(path, "small", 1, "virtual")


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/small-1\.json: cannot be written: "):
        write_golden(tmp_path / "file" / "small-1.json", SUMMARY, SETTINGS, TOOLS)


# ---- the real clock -------------------------------------------------------------------


def test_the_real_clock_has_the_tolerances_the_golden_declares(tmp_path: Path) -> None:
    golden = stored(tmp_path, summary(clock="real"))
    assert golden.tolerances == REAL_CLOCK
    # 40 ms may differ by a quarter and half a millisecond; marks are not held at all.
    near = summary(clock="real", transfers__fct_ms__p50=50.5, links__leaf2_to_d1__ce_marks=7)
    assert difference(golden, near, SETTINGS, TOOLS).same
    far = difference(golden, summary(clock="real", transfers__fct_ms__p50=50.6), SETTINGS, TOOLS)
    assert far.changes == (Change("transfers.fct_ms.p50", 40.0, 50.6),)
    other = difference(golden, summary(clock="real", verdict__segment="spine"), SETTINGS, TOOLS)
    assert not other.same
    none = difference(golden, summary(clock="real", transfers__fct_ms__p50=None), SETTINGS, TOOLS)
    assert not none.same


def test_tolerances_that_were_written_by_hand_stay(tmp_path: Path) -> None:
    path = stored(tmp_path, summary(clock="real")).path
    own = {"keys": "ttft_ms.*", "relative": 0.1, "absolute": 0.0}
    path.write_text(json.dumps({**json.loads(path.read_text()), "tolerances": [own]}))
    golden = stored(tmp_path, summary(clock="real"))
    assert golden.tolerances == (Tolerance("ttft_ms.*", 0.1, 0.0),)
    assert replace(golden, tolerances=()) != golden


# ---- the toolchain --------------------------------------------------------------------


def test_what_differs_between_two_toolchains() -> None:
    assert list(differing({"a": "1", "b": "1"}, {"a": "1", "b": "2", "c": "3"})) == [
        "b 1 (golden) and 2 (here)",
        "c none (golden) and 3 (here)",
    ]


def test_the_toolchain_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "linux").write_bytes(b"abc")
    kernel = type("Kernel", (), {"version": "6.12.1-kv", "key": "abc", "path": tmp_path / "linux"})
    monkeypatch.setattr(tools_module, "find_kernel", lambda clock: kernel)
    found = toolchain("uml", "virtual")
    assert (found["kernel"], found["kernel key"]) == ("6.12.1-kv", "abc")
    assert found["kernel image"] == "ba7816bf8f01cfea"  # SHA-256 of "abc" (FIPS 180-2)
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", found["os-ken"])
    if shutil.which("dpkg-query"):  # Python's revision is no part of its version
        assert f"python{found['python']}-minimal" in found
    native = toolchain("native", "real")
    assert "kernel key" not in native
    monkeypatch.setattr(tools_module, "PROGRAMS", ("no-such-package-anywhere",))
    assert "no-such-package-anywhere" not in toolchain("uml", "virtual")
