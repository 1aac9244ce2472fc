"""Writing a record directory: the manifest, the inputs, and the end's checksums.

The raw facts themselves are written inside the lab, straight into the directory. A record says
`running` until its end is known, so that a crash shows.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import IO, Any

from testbed.errors import InputError, LabError
from testbed.record import layout

LOCK = ".lock"


class RecordWriter:
    """A record being made. Holds the directory's lock until `finish`."""

    def __init__(self, path: Path, lock: IO[str]) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def create(cls, path: Path, *, scenario: str, plan: str) -> RecordWriter:
        """Make `path` a new record with its inputs; an older record of the same scenario there is replaced.

        Raises InputError when `path` holds something else, LabError when another run writes there.
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
            writer = cls(path, _lock(path))
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}; give another --out") from None
        # From here on it is a record, whenever the program is killed.
        writer._manifest(layout.RUNNING, None, {})
        _empty(path)
        for folder in (layout.RAW, layout.LOGS):
            (path / folder).mkdir()
        write_atomically(path / layout.SCENARIO, scenario)
        write_atomically(path / layout.PLAN, plan)
        return writer

    def finish(self, status: str, reason: str | None, environment: dict[str, Any]) -> None:
        """Write how the run ended, what made it, and a checksum of every raw file; give the lock back."""
        write_atomically(self.path / layout.ENVIRONMENT, json.dumps(environment, indent=1) + "\n")
        names = sorted(
            str(path.relative_to(self.path))
            for path in self.path.rglob("*")
            if path.is_file() and path.name not in (LOCK, layout.MANIFEST)
        )
        self._manifest(status, reason, {name: _digest(self.path / name) for name in names})
        self._lock.close()

    def give_up(self, reason: str) -> None:
        """Close a record whose run is gone: its status becomes `aborted`."""
        self._manifest(layout.ABORTED, reason, {})
        self._lock.close()

    def _manifest(self, status: str, reason: str | None, files: dict[str, Any]) -> None:
        manifest = {
            "format_version": layout.FORMAT_VERSION,
            "status": status,
            "reason": reason,
            "files": files,
        }
        write_atomically(self.path / layout.MANIFEST, json.dumps(manifest, indent=1) + "\n")


def abandoned(folder: Path) -> list[RecordWriter]:
    """Return the records below `folder` that say `running` although nobody holds their lock."""
    found = []
    for manifest in sorted(folder.glob(f"*/{layout.MANIFEST}")):
        if _status(manifest.parent) != layout.RUNNING:
            continue
        try:
            lock = _lock(manifest.parent)
        except LabError:
            continue  # a run is still writing there
        if _status(manifest.parent) == layout.RUNNING:
            found.append(RecordWriter(manifest.parent, lock))
        else:
            lock.close()  # it has ended in between
    return found


def in_use(path: Path) -> bool:
    """Tell whether a run is writing the record in `path` at this moment."""
    if not (path / LOCK).exists():
        return False
    try:
        _lock(path).close()
    except (LabError, OSError):
        return True
    return False


def _status(path: Path) -> str | None:
    """Return the status in a record's manifest, None when there is none or it is no record's."""
    try:
        manifest = json.loads((path / layout.MANIFEST).read_text())
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(manifest, dict) or "format_version" not in manifest:
        return None
    status = manifest.get("status")
    return status if status in layout.STATUSES else None


def _scenario_of(path: Path) -> str | None:
    """Return the scenario of the record in `path`, None when there is none or its plan does not tell."""
    try:
        return _named_in((path / layout.PLAN).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
        return None


def _named_in(plan: str) -> str | None:
    try:
        return str(json.loads(plan)["scenario"])
    except (ValueError, KeyError, TypeError):
        return None


def _holds_something_else(path: Path) -> bool:
    """Whether a folder has contents that must not be replaced; all of a record may be."""
    if not path.is_dir() or _status(path) is not None:
        return False
    return any(entry.name not in (LOCK, _part(layout.MANIFEST)) for entry in path.iterdir())


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part."""
    part = path.with_name(_part(path.name))
    part.write_text(text, encoding="utf-8")
    part.rename(path)


def _part(name: str) -> str:
    return name + ".part"


def _lock(path: Path) -> IO[str]:
    lock = (path / LOCK).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise LabError(f"{path}: another run is writing there; wait for it or give another --out") from None
    return lock


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
