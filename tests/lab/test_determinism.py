"""Same scenario, seed and kernel: the same bytes, whatever the machine does meanwhile and wherever it is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.command import RUN_LIMIT_S, SMALL, call, start, write_scenario

TOGETHER = 3
EIGHT_MIB = SMALL.replace("kv_bytes: 4mib", "kv_bytes: 8mib").replace("count: 2", "count: 4")


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scenario(tmp_path_factory.mktemp("scenario"), EIGHT_MIB)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, scenario: Path) -> Path:
    """A run by itself, in a folder of another length, with a blank, started from yet another folder."""
    folder = tmp_path_factory.mktemp("alone")
    out = folder / "a much longer name with blanks" / "record"
    done = call("run", scenario, "--out", out, cwd=folder)
    assert done.returncode == 0, done.stderr
    return out


def results(out: Path) -> tuple[bytes, bytes]:
    return (out / "summary.json").read_bytes(), (out / "transfers.csv").read_bytes()


def test_three_at_once_and_one_alone_give_the_same_bytes(tmp_path: Path, scenario: Path, alone: Path) -> None:
    outs = [tmp_path / f"run{number}" for number in range(TOGETHER)]
    processes = [start("run", scenario, "--out", out) for out in outs]
    for process in processes:
        _, errors = process.communicate(timeout=RUN_LIMIT_S)
        assert process.returncode == 0, errors
    assert [results(out) == results(alone) for out in outs] == [True] * TOGETHER


def test_raw_facts_are_the_same_too(tmp_path: Path, scenario: Path, alone: Path) -> None:
    """Not promised by the summary alone: the progress of every transfer, to the nanosecond."""
    out = tmp_path / "record"
    relative = call("run", scenario.name, "--out", str(out), cwd=scenario.parent)
    assert relative.returncode == 0, relative.stderr
    assert results(out) == results(alone)
    for name in ("raw/progress.bin", "raw/outcomes.json", "raw/samples-fabric.bin", "raw/samples-hosts.bin"):
        assert (out / name).read_bytes() == (alone / name).read_bytes(), name


def test_another_seed_gives_other_bytes(tmp_path: Path, scenario: Path, alone: Path) -> None:
    out = tmp_path / "record"
    done: subprocess.CompletedProcess[str] = call("run", scenario, "--seed", "2", "--out", out)
    assert done.returncode == 0, done.stderr
    assert (out / "transfers.csv").read_bytes() != (alone / "transfers.csv").read_bytes()
