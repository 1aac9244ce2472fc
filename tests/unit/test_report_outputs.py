"""All that is made from a record: under its lock, on a disk that may be full, of files that may be bad."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from testbed import cli
from testbed.errors import LabError, MeasurementError
from testbed.record import layout
from testbed.record.writer import lock_record
from testbed.report import outputs
from testbed.report.outputs import make_outputs
from tests.support.synthetic import incast, write_record


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_record(tmp_path / "run", incast(senders=2, size=1 << 20))


def test_all_outputs_are_made(folder: Path) -> None:
    record, summary = make_outputs(folder)
    assert record.path == folder
    assert summary["transfers"]["completed"] == 2
    made = {path.name for path in folder.iterdir()}
    assert made >= {layout.SUMMARY, layout.TRANSFERS, layout.REPORT}


def test_a_run_that_begins_in_the_record_is_waited_for(folder: Path) -> None:
    with lock_record(folder), pytest.raises(LabError) as caught:
        make_outputs(folder)
    assert str(caught.value) == f"{folder}: another run is writing there; wait for it or give another --out"
    assert not (folder / layout.SUMMARY).exists()
    make_outputs(folder)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_outputs_that_cannot_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(LabError) as caught:
        make_outputs(folder)
    expected = f"{folder}/summary.json: cannot be written: {os.strerror(number)}; "
    assert str(caught.value).startswith(expected)


def broken(*_: object) -> None:
    raise KeyError("leaf3")


def test_a_record_too_damaged_for_a_report(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / layout.FACTS).unlink()
    monkeypatch.setattr(outputs, "write_outputs", broken)
    with pytest.raises(MeasurementError) as caught:
        make_outputs(folder)
    assert str(caught.value) == f"{folder}: the record is damaged beyond a report: raw/facts.json is missing"
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_defect_of_the_analysis_is_not_taken_for_damage(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "write_outputs", broken)
    with pytest.raises(KeyError, match="^'leaf3'$"):
        make_outputs(folder)


def test_a_command_that_finds_a_full_disk_anywhere_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "somewhere/budget.json")

    monkeypatch.setattr("testbed.scenario.shipped_scenarios", full)
    assert cli.main(["list"]) == 3
    where = "somewhere/budget.json: cannot be written: No space left on device"
    assert capsys.readouterr().err == f"testbed: {where}; make room there, or give another folder\n"


def test_another_error_of_the_system_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def childless(*_: object) -> None:
        raise ChildProcessError(errno.ECHILD, "No child processes")

    monkeypatch.setattr("testbed.scenario.shipped_scenarios", childless)
    with pytest.raises(ChildProcessError):
        cli.main(["list"])


@pytest.mark.parametrize(
    "words",
    [
        ["sweep", "incast", "--vary", "fabric.queue.kmin=50kb,100kb", "--out", "runs"],
        ["run", "incast", "--seeds", "2", "--out", "runs"],
    ],
    ids=["sweep", "seeds"],
)
def test_two_of_a_kind_do_not_write_one_folder(
    tmp_path: Path,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    with lock_record(Path("runs")):
        assert cli.main(words) == 3
    said = "testbed: runs: another run is writing there; wait for it or give another --out\n"
    assert capsys.readouterr().err == said
    assert [path.name for path in Path("runs").iterdir()] == [".lock"]
