"""What cannot be used is refused: one line, an exit code that says whose fault it is, and nothing begun."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from testbed.lab.preflight import problems
from testbed.machine import Machine
from tests.support.command import Done, call, write_scenario

SHIPPED = sorted(path.stem for path in (Path(__file__).parents[2] / "testbed/scenarios").glob("*.yaml"))

BAD = Path(__file__).resolve().parents[1] / "data" / "scenarios" / "bad"
NAMED = [
    "absurd-rate", "bad-name", "dangling-host", "kmin-above-kmax", "missing-name", "negative-rate",
    "nic-affinity-short", "no-room", "no-unit", "repeated-key", "syntax", "udp-without-rate",
    "unknown-key", "unknown-top-key",
]  # fmt: skip
"""Mistakes a person is likely to make; every bad file is held against the loader in the unit tests."""


def assert_refused(done: Done, code: int, message: str) -> None:
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"testbed: {message}\n")


@pytest.mark.parametrize("name", NAMED)
def test_a_bad_file_is_refused_at_its_line(tmp_path: Path, name: str) -> None:
    scenario = shutil.copy(BAD / f"{name}.yaml", tmp_path)
    message = Path(scenario).read_text().splitlines()[0].removeprefix("# ").replace("{file}", f"{name}.yaml")
    done = call("run", f"{name}.yaml", "--out", "record", cwd=tmp_path)
    assert_refused(done, 2, message)
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.yaml"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["incats"],
            f"incats: is neither a shipped scenario nor a file; shipped are {', '.join(SHIPPED)}; "
            "did you mean 'incast'?",
        ),
        (
            ["incast", "--set", "fabric.mtu=9217"],
            "--set fabric.mtu=9217: fabric.mtu: is out of range (found 9217); 576 to 9216",
        ),
        (
            ["incast", "--seed", "-1"],
            "argument --seed: '-1' is no whole number from 0 to 9223372036854775807; "
            "see `testbed run --help`",
        ),
        (
            ["incast", "--backend", "xen"],
            "argument --backend: invalid choice: 'xen' (choose from 'auto', 'native', 'uml'); "
            "see `testbed run --help`",
        ),
    ],
)
def test_a_bad_word_is_refused(tmp_path: Path, words: list[str], message: str) -> None:
    assert_refused(call("run", *words, cwd=tmp_path), 2, message)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_kernel_names_the_remedy(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    out = tmp_path / "record"
    done = call("run", "incast", "--out", out, env={"KV_KERNEL_CACHE": str(cache)})
    remedy = (
        "run scripts/build-kernel.sh (once, some minutes), "
        "or use --clock real with the distribution's user-mode-linux"
    )
    assert_refused(done, 3, f"no kernel with virtual time in {cache}: {remedy}")
    assert not out.exists()


def test_a_machine_without_modules_says_so(tmp_path: Path) -> None:
    lacking = problems(Machine())
    if not lacking:
        pytest.skip("announced: this machine can run the native backend")
    out = tmp_path / "record"
    done = call("run", "incast", "--backend", "native", "--out", out)
    assert_refused(done, 3, f"the native backend cannot run here: {'; '.join(lacking)}")
    assert not out.exists()


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter1.txt").write_text("all my work")
    done = call("run", "incast", "--out", out)
    assert_refused(done, 2, f"{out}: holds files that are no record; give another --out or empty it")
    assert [path.name for path in out.iterdir()] == ["chapter1.txt"]
    assert (out / "chapter1.txt").read_text() == "all my work"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    out = write_scenario(tmp_path)
    before = out.read_bytes()
    assert_refused(call("run", "incast", "--out", out), 2, f"{out}: is a file; give another --out")
    assert out.read_bytes() == before


def test_report_of_no_record_is_refused(tmp_path: Path) -> None:
    done = call("report", tmp_path)
    assert_refused(done, 2, f"{tmp_path}: this is no record of a run: manifest.json is missing")
    assert list(tmp_path.iterdir()) == []
