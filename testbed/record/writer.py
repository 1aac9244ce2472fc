"""Writing a record directory: the manifest, the inputs, and the end's checksums.

The raw facts themselves are written inside the lab, straight into the directory. A record says
`running` until its end is known, so that a crash shows.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import IO, Any

from testbed import strict_json
from testbed.errors import InputError, LabError
from testbed.record import layout
from testbed.record.files import REFUSALS, part_of, refused, write_whole
from traffic.plain_file import open_plain

LOCK = ".lock"
RESERVE_BYTES = 64 << 10
"""So much room the lock's file takes while a run writes and gives back at its end: how the run ended can be
written although the disk is full."""


class RecordWriter:
    """A record being made. Holds the directory's lock until `finish`."""

    def __init__(self, path: Path, lock: IO[str]) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def create(cls, path: Path, *, scenario: str, plan: str) -> RecordWriter:
        """Make `path` a new record with its inputs; an older record of the same scenario there is replaced.

        Raises InputError when `path` holds something else, LabError when another run writes there or the file
        system takes no more.
        """
        if path.exists() and not path.is_dir():
            raise InputError(f"{path}: is a file; give another --out")
        try:
            if _holds_something_else(path):
                raise InputError(f"{path}: holds files that are no record; give another --out or empty it")
            other = _scenario_of(path)
            if other not in (None, _named_in(plan)):
                raise InputError(f"{path}: holds a record of {other}; give another --out or remove it")
            path.mkdir(parents=True, exist_ok=True)
            writer = cls(path, lock_record(path))
            try:
                writer._begin(scenario, plan)
            except BaseException:
                writer._lock.close()
                raise
        except OSError as error:
            if error.errno in REFUSALS and error.errno != errno.EROFS:
                raise refused(path, error) from None
            raise InputError(f"{path}: cannot be written: {error.strerror}; give another --out") from None
        return writer

    def _begin(self, scenario: str, plan: str) -> None:
        self._put_aside()
        # From here on it is a record, whenever the program is killed.
        self._manifest(layout.RUNNING, None, {})
        try:
            _empty(self.path)
            for folder in (layout.RAW, layout.LOGS):
                (self.path / folder).mkdir()
            write_whole(self.path / layout.SCENARIO, scenario)
            write_whole(self.path / layout.PLAN, plan)
        except OSError as error:
            self._lock.truncate(0)
            self._manifest(layout.FAILED, str(refused(self.path, error)), {})
            raise

    def _put_aside(self) -> None:
        """Take the room for the last words. Written, because not every file system can be asked to reserve
        it (a hostfs), and the C library's way around that refuses a file that is appended to."""
        self._lock.truncate(0)
        left = RESERVE_BYTES
        while left:
            left -= os.write(self._lock.fileno(), bytes(left))

    def finish(self, status: str, reason: str | None, environment: dict[str, Any]) -> None:
        """Write how the run ended, what made it, and a checksum of every raw file; give the lock back.

        OSError when that cannot be written: the record goes on to say `running`.
        """
        with self._lock:
            self._lock.truncate(0)
            write_whole(self.path / layout.ENVIRONMENT, json.dumps(environment, indent=1) + "\n")
            names = sorted(
                str(path.relative_to(self.path))
                for path in self.path.rglob("*")
                if path.is_file() and path.name not in (LOCK, layout.MANIFEST)
            )
            self._manifest(status, reason, {name: _digest(self.path / name) for name in names})

    def give_up(self, reason: str) -> None:
        """Close a record whose run is gone: its status becomes `aborted`."""
        with self._lock:
            self._lock.truncate(0)
            self._manifest(layout.ABORTED, reason, {})

    def _manifest(self, status: str, reason: str | None, files: dict[str, Any]) -> None:
        manifest = {
            "format_version": layout.FORMAT_VERSION,
            "status": status,
            "reason": reason,
            "files": files,
        }
        write_whole(self.path / layout.MANIFEST, json.dumps(manifest, indent=1) + "\n")


def abandoned(folder: Path) -> list[RecordWriter]:
    """Return the records below `folder` that say `running` although nobody holds their lock."""
    found = []
    for manifest in sorted(folder.glob(f"*/{layout.MANIFEST}")):
        if _status(manifest.parent) != layout.RUNNING:
            continue
        try:
            lock = lock_record(manifest.parent)
        except LabError:
            continue  # a run is still writing there
        if _status(manifest.parent) == layout.RUNNING:
            found.append(RecordWriter(manifest.parent, lock))
        else:
            lock.close()  # it has ended in between
    return found


def in_use(path: Path) -> bool:
    """Tell whether a run is writing the record in `path` at this moment."""
    try:
        _flock(path, "r").close()  # a folder that may only be read can be asked too
    except LabError:
        return True
    except OSError:
        return False  # there is none, or none of a run's
    return False


def _status(path: Path) -> str | None:
    """Return the status in a record's manifest, None when there is none or it is no record's."""
    try:
        manifest = strict_json.loads(_read(path / layout.MANIFEST))
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(manifest, dict) or "format_version" not in manifest:
        return None
    status = manifest.get("status")
    return status if status in layout.STATUSES else None


def _scenario_of(path: Path) -> str | None:
    """Return the scenario of the record in `path`, None when there is none or its plan does not tell."""
    try:
        return _named_in(_read(path / layout.PLAN))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _read(path: Path) -> bytes:
    with open_plain(path) as file:
        return file.read()


def _named_in(plan: str | bytes) -> str | None:
    try:
        return str(strict_json.loads(plan)["scenario"])
    except (ValueError, KeyError, TypeError):
        return None


def _holds_something_else(path: Path) -> bool:
    """Whether a folder has contents that must not be replaced; all of a record may be."""
    if not path.is_dir() or _status(path) is not None:
        return False
    return any(entry.name not in (LOCK, part_of(layout.MANIFEST)) for entry in path.iterdir())


def lock_folder(path: Path) -> IO[str]:
    """Make a folder for the records of several runs and return its lock, held until it is closed.

    LabError when somebody holds it, InputError when it cannot be written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        return lock_record(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}; give another --out") from None


def lock_record(path: Path) -> IO[str]:
    """Return the record's lock, held until it is closed. LabError when a run or a report holds it, OSError
    when the folder cannot be written."""
    if (path / LOCK).is_symlink() or (path / LOCK).is_fifo():
        (path / LOCK).unlink()  # no run has made that
    return _flock(path, "a")


def _flock(path: Path, mode: str) -> IO[str]:
    lock = open(path / LOCK, mode, opener=_as_it_stands)  # noqa: SIM115 - it is held until it is closed
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise LabError(f"{path}: another run is writing there; wait for it or give another --out") from None
    return lock


def _as_it_stands(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)


def _empty(path: Path) -> None:
    for entry in path.iterdir():
        if entry.name in (LOCK, layout.MANIFEST):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _digest(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": os.path.getsize(path), "sha256": digest}
