"""The memory of a guest kernel: where its file lies, what it touches, and how a shortage shows. Runs outside.

A guest without a swap that is short of memory kills a program, fails an allocation, or throws away the pages
of running programs and reads them again for ever. Each is an error here, and one that says what to set.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import LabError, MachineError
from testbed.machine import Machine

MIB = 1 << 20

SHORT = ("Out of memory", "page allocation failure", "MemoryError", os.strerror(errno.ENOMEM))
"""What a guest's console or the lab's error says when memory has run out."""

READ_MOST_BYTES = 320 * MIB
"""A guest reads the programs, libraries and modules it uses once, 80 MiB in all, as long as it can keep them;
one that cannot reads 40 MiB a second."""


MORE = "set memory to more"

FULL_SHARE = 0.95
"""From here on a guest has touched all of its memory: some of it is never given out."""


@dataclass(frozen=True)
class Memory:
    """What a guest gets: so many `mebibytes`, as a file in `folder`. Only what is touched takes room."""

    mebibytes: int
    folder: Path


@contextmanager
def naming_shortage(memory: Memory, said: Callable[[], str]) -> Iterator[None]:
    """Say of a guest that was short of memory what to set, however that has shown: an allocation that failed
    may have lost packets of a run that seems complete. `said` returns the console's text."""
    error: LabError | None = None
    try:
        yield
    except LabError as raised:
        error = raised
    if any(words in text for words in SHORT for text in (said(), str(error))):
        short = f"the guest ran out of memory: it had {memory.mebibytes} MiB"
        raise LabError(f"{short}; {_more(memory)}") from error
    if error is not None:
        raise error


def _more(memory: Memory) -> str:
    return f"{MORE}, as --set memory={2 * memory.mebibytes}mib"


class Watch:
    """Fills the time between two looks at a guest's process, as `pause` does, and looks at its memory.

    `peak_bytes` is what the guest has touched at most: what its memory takes on the machine. It may read
    `read_most_bytes` (None: as much as it likes).
    """

    def __init__(
        self,
        pause: Callable[[subprocess.Popen[bytes], float], None],
        read_most_bytes: int | None = READ_MOST_BYTES,
    ) -> None:
        self._pause = pause
        self._read_most_bytes = read_most_bytes
        self.peak_bytes = 0

    def pause(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        """Wait, and look. Raises LabError when the guest reads its programs again and again."""
        self._pause(process, seconds)
        self.peak_bytes = max(self.peak_bytes, _value(process.pid, "status", "VmHWM:") << 10)
        most_bytes = self._read_most_bytes
        if most_bytes is not None and _value(process.pid, "io", "rchar:") > most_bytes:
            raise LabError("Out of memory: the guest reads its programs again and again")

    def name_full(self, memory: Memory, error: LabError) -> LabError:
        """Return the error that ended a guest; where it had touched all of its memory, with what to set.

        Programs fail in many ways for want of it, and a guest that has enough never comes near its end.
        """
        if self.peak_bytes < FULL_SHARE * memory.mebibytes * MIB or MORE in str(error):
            return error
        touched = f"it had touched all of its {memory.mebibytes} MiB of memory, which may be why"
        return LabError(f"{error}; {touched}: {_more(memory)}")


def _value(pid: int, file: str, key: str) -> int:
    """Return a number of /proc/PID/FILE; 0 when the process has ended meanwhile."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1])
    return 0


def memory_dir(need_bytes: int = 0) -> Path:
    """Return a folder for the guest's memory file: one that allows execution and has so much room.

    Raises MachineError when neither TMPDIR, /dev/shm nor /tmp does.
    """
    machine = Machine()
    room = {name: machine.free_bytes(name) for name in machine.guest_memory_folders()}
    for name, room_bytes in room.items():
        if room_bytes >= need_bytes:
            return Path(name)
    if not room:
        raise MachineError(
            "no folder for the guest's memory: /dev/shm and /tmp are mounted noexec; set TMPDIR"
        )
    free = ", ".join(f"{name} has {room_bytes >> 20} MiB free" for name, room_bytes in room.items())
    raise MachineError(
        f"the guest's memory file takes up to {need_bytes >> 20} MiB, but {free}: point TMPDIR at a folder "
        "with more room, or enlarge /dev/shm (mount -o remount,size=..., docker run --shm-size)"
    )
