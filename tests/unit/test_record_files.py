"""Whole files, and what is said where the file system takes no more."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from testbed.record import files
from testbed.record.files import refusal, refused, write_whole

FULL = OSError(errno.ENOSPC, "No space left on device")


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.json"
    write_whole(path, "old")

    def full(*_: object) -> None:
        raise FULL

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(OSError, match=r"^\[Errno 28\] No space left on device: '.*/plan\.json'$"):
        write_whole(path, "new and longer")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]


def test_a_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    sync, rename = os.fsync, Path.rename

    def synced(descriptor: int) -> None:
        order.append(f"sync {os.fstat(descriptor).st_size}")
        sync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        order.append("rename")
        return rename(path, target)

    monkeypatch.setattr(files.os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    write_whole(tmp_path / "plan.json", "seven..")
    assert order == ["sync 7", "rename"]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "No space left on device; make room there, or give another folder"),
        (errno.EROFS, "Read-only file system; make it writable, or give another folder"),
        (errno.EACCES, "Permission denied; make it writable, or give another folder"),
    ],
)
def test_a_refusal_names_place_reason_and_remedy(number: int, words: str) -> None:
    error = refused(Path("runs/one"), OSError(number, os.strerror(number)))
    assert (str(error), error.exit_code) == (f"runs/one: cannot be written: {words}", 3)


def test_whether_a_folder_takes_more_is_tried(tmp_path: Path) -> None:
    assert refusal(tmp_path) is None
    (tmp_path / "tried.part").symlink_to("/dev/full")
    found = refusal(tmp_path)
    assert found is not None
    assert found.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []
