"""Writing whole files, and what is said when the file system takes no more.

Not the raw facts, which the lab writes itself. Called by whatever writes a record, a report or a golden.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from testbed.errors import LabError

REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG)
"""What a file system says that is full, or has gone read-only under its writer, or is broken."""

TRIED_BYTES = 64 << 10
"""So much is written to see whether anything can be."""


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader, after a crash as well, sees the old one or the new one, never a part.

    OSError, with the file's name, when it cannot be written; nothing is left of it then.
    """
    part = path.with_name(part_of(path.name))
    try:
        part.unlink(missing_ok=True)  # what was left there may be a link to another file
        with part.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # or a crash may keep the new name and lose what it names
        part.rename(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from None


def part_of(name: str) -> str:
    """Return the name that file `name` has while it is written."""
    return name + ".part"


def refused(place: Path | str, error: OSError) -> LabError:
    """Return the error that says that nothing more can be written at `place`, why, and what to do."""
    remedy = "make it writable" if error.errno in (errno.EROFS, errno.EACCES) else "make room there"
    return LabError(f"{place}: cannot be written: {error.strerror}; {remedy}, or give another folder")


def refusal(folder: Path) -> OSError | None:
    """Try to write a little into `folder` and return what the file system says against it, if it does."""
    tried = folder / part_of("tried")
    try:
        with tried.open("wb") as file:
            file.write(bytes(TRIED_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error
    finally:
        with contextlib.suppress(OSError):
            tried.unlink()
    return None
