"""Making, closing, replacing and giving up record directories."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import InputError, LabError
from testbed.record import layout
from testbed.record.writer import RESERVE_BYTES, RecordWriter, abandoned, in_use

_made: list[RecordWriter] = []


@pytest.fixture(autouse=True)
def _locks() -> Iterator[None]:
    """Let go of every lock that a test left held, as the end of a program would."""
    yield
    while _made:
        kill(_made.pop())


def create(path: Path) -> RecordWriter:
    _made.append(RecordWriter.create(path, scenario="name: x\n", plan="{}\n"))
    return _made[-1]


def kill(writer: RecordWriter) -> None:
    writer._lock.close()


def manifest(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((path / layout.MANIFEST).read_text())
    return value


def contents(path: Path) -> list[str]:
    return sorted(str(entry.relative_to(path)) for entry in path.rglob("*"))


def test_a_new_record_says_running_and_holds_its_inputs(tmp_path: Path) -> None:
    create(tmp_path / "runs" / "one")
    record = tmp_path / "runs" / "one"
    assert contents(record) == [".lock", "logs", "manifest.json", "plan.json", "raw", "scenario.yaml"]
    assert manifest(record) == {"format_version": 1, "status": "running", "reason": None, "files": {}}
    assert (record / "scenario.yaml").read_text() == "name: x\n"
    assert (record / "plan.json").read_text() == "{}\n"


def test_the_end_has_size_and_checksum_of_every_file(tmp_path: Path) -> None:
    writer = create(tmp_path)
    (tmp_path / "raw/progress.bin").write_bytes(bytes(16))
    writer.finish(layout.FAILED, "leaf1: no queue", {"processors": 2})
    found = manifest(tmp_path)
    assert (found["status"], found["reason"]) == ("failed", "leaf1: no queue")
    assert list(found["files"]) == ["environment.json", "plan.json", "raw/progress.bin", "scenario.yaml"]
    assert found["files"]["raw/progress.bin"] == {
        "bytes": 16,
        "sha256": hashlib.sha256(bytes(16)).hexdigest(),
    }
    assert json.loads((tmp_path / "environment.json").read_text()) == {"processors": 2}


def test_two_runs_do_not_write_the_same_record(tmp_path: Path) -> None:
    writer = create(tmp_path)
    with pytest.raises(LabError) as caught:
        create(tmp_path)
    message = f"{tmp_path}: another run is writing there; wait for it or give another --out"
    assert str(caught.value) == message
    assert manifest(tmp_path)["status"] == "running"
    writer.finish(layout.COMPLETE, None, {})
    create(tmp_path)


def test_a_link_in_a_record_is_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").touch()
    create(tmp_path / "record").finish(layout.COMPLETE, None, {})
    (tmp_path / "record/link").symlink_to(tmp_path / "mine")
    create(tmp_path / "record")
    assert not (tmp_path / "record/link").is_symlink()
    assert (tmp_path / "mine/notes.txt").exists()


def test_an_older_record_is_replaced_whole(tmp_path: Path) -> None:
    create(tmp_path).finish(layout.COMPLETE, None, {})
    (tmp_path / "raw/progress.bin").touch()
    (tmp_path / "report.html").touch()
    create(tmp_path)
    assert contents(tmp_path) == [".lock", "logs", "manifest.json", "plan.json", "raw", "scenario.yaml"]


FOREIGN = [
    ("notes.txt", "mine"),
    ("manifest.json", '{"name": "an application of the web"}'),
    ("manifest.json", '{"format_version": 1, "status": "draft"}'),
    ("manifest.json", '{"status": "complete"}'),
    ("manifest.json", "[1]"),
    ("manifest.json", "no JSON"),
]


@pytest.mark.parametrize(("name", "text"), FOREIGN)
def test_files_that_are_no_record_are_left_alone(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "src").mkdir()
    with pytest.raises(InputError) as caught:
        create(tmp_path)
    message = f"{tmp_path}: holds files that are no record; give another --out or empty it"
    assert str(caught.value) == message
    assert contents(tmp_path) == sorted([name, "src"])
    assert (tmp_path / name).read_text() == text


def test_a_record_of_another_scenario_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "record"
    for name in ("incast", "incast"):  # its own scenario's record is replaced
        RecordWriter.create(path, scenario="", plan=f'{{"scenario": "{name}"}}').finish("complete", None, {})
    before = (path / layout.MANIFEST).read_text()
    with pytest.raises(InputError) as caught:
        RecordWriter.create(path, scenario="", plan='{"scenario": "baseline"}')
    assert str(caught.value) == f"{path}: holds a record of incast; give another --out or remove it"
    assert (path / layout.MANIFEST).read_text() == before


def test_a_record_whose_plan_does_not_tell_is_replaced(tmp_path: Path) -> None:
    create(tmp_path).finish(layout.FAILED, "nothing", {})
    (tmp_path / layout.PLAN).write_text("cut sho")
    RecordWriter.create(tmp_path, scenario="", plan='{"scenario": "baseline"}').finish("complete", None, {})
    assert manifest(tmp_path)["status"] == "complete"


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


NO_ROOM = "cannot be written: No space left on device; make room there, or give another folder"


def test_a_full_disk_leaves_an_older_record_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tmp_path).finish(layout.COMPLETE, None, {})
    before = contents(tmp_path)
    monkeypatch.setattr(RecordWriter, "_put_aside", full)
    with pytest.raises(LabError) as caught:
        create(tmp_path)
    assert str(caught.value) == f"{tmp_path}: {NO_ROOM}"
    assert (contents(tmp_path), manifest(tmp_path)["status"]) == (before, "complete")


def test_a_record_that_cannot_be_begun_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.record.writer._empty", full)
    with pytest.raises(LabError) as caught:
        create(tmp_path)
    assert str(caught.value) == f"{tmp_path}: {NO_ROOM}"
    assert (manifest(tmp_path)["status"], manifest(tmp_path)["reason"]) == ("failed", str(caught.value))
    assert not in_use(tmp_path)


def test_room_for_the_end_is_kept_from_the_beginning(tmp_path: Path) -> None:
    writer = create(tmp_path)
    assert os.stat(tmp_path / ".lock").st_blocks * 512 >= RESERVE_BYTES
    writer.finish(layout.COMPLETE, None, {})
    assert os.stat(tmp_path / ".lock").st_blocks == 0


def test_whether_a_record_is_in_use_is_asked_without_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not in_use(tmp_path)
    writer = create(tmp_path)
    assert in_use(tmp_path)
    writer.finish(layout.COMPLETE, None, {})
    modes: list[int] = []
    opened = os.open

    def noted(path: Path, flags: int, mode: int) -> int:
        modes.append(flags & os.O_ACCMODE)
        return opened(path, flags, mode)

    monkeypatch.setattr("testbed.record.writer.os.open", noted)
    assert not in_use(tmp_path)
    assert modes == [os.O_RDONLY]


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    create(tmp_path)
    assert manifest(tmp_path)["status"] == "running"


@pytest.mark.parametrize("left", [[".lock"], [".lock", "manifest.json.part"]])
def test_what_a_killed_start_leaves_is_taken_over(tmp_path: Path, left: list[str]) -> None:
    for name in left:
        (tmp_path / name).touch()
    create(tmp_path)
    assert manifest(tmp_path)["status"] == "running"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(InputError) as caught:
        create(tmp_path / "out")
    assert str(caught.value) == f"{tmp_path}/out: is a file; give another --out"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError) as caught:
        create(tmp_path / "file" / "out")
    message = f"{tmp_path}/file/out: cannot be written: Not a directory; give another --out"
    assert str(caught.value) == message


def test_an_abandoned_record_is_found_and_given_up(tmp_path: Path) -> None:
    for name in ("killed", "running", "complete"):
        writer = create(tmp_path / name)
        if name == "complete":
            writer.finish(layout.COMPLETE, None, {})
        if name == "killed":
            kill(writer)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/manifest.json").write_text("no JSON")
    found = abandoned(tmp_path)
    assert [writer.path.name for writer in found] == ["killed"]
    found[0].give_up("the run was killed")
    assert manifest(tmp_path / "killed")["status"] == "aborted"
    assert manifest(tmp_path / "killed")["reason"] == "the run was killed"
    assert abandoned(tmp_path) == []


def test_a_record_that_ends_while_it_is_looked_at_is_not_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = create(tmp_path / "one")

    def late(*arguments: Any) -> None:
        writer.finish(layout.COMPLETE, None, {})
        monkeypatch.undo()
        fcntl.flock(*arguments)

    monkeypatch.setattr("testbed.record.writer.fcntl.flock", late)
    assert abandoned(tmp_path) == []
    assert manifest(tmp_path / "one")["status"] == "complete"


def test_the_lock_of_a_record_is_the_kernels(tmp_path: Path) -> None:
    writer = create(tmp_path)
    descriptor = os.open(tmp_path / ".lock", os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    writer.finish(layout.COMPLETE, None, {})
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)
