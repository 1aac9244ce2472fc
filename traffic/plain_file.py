"""Opening a file that somebody named: a plain one, and never a pipe or a device, which may have no end.

Standard library only. Called wherever a scenario, a trace or a record says what is to be read.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_plain(path: str | Path) -> BinaryIO:
    """Return the file opened for reading; OSError, whose `strerror` says so, where it is no plain file.

    It never waits: for a writer at the other end of a pipe, or for the kernel's next message.
    """
    _check(os.stat(path).st_mode, path)  # some devices do something when they are opened
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _check(os.fstat(descriptor).st_mode, path)
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _check(mode: int, path: str | Path) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        kind = next((name for check, name in _KINDS if check(mode)), "no file")
        raise OSError(errno.EINVAL, f"it is {kind}, and has to be a plain file", str(path))
