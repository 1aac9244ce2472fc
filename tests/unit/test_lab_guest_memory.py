"""A guest's memory: the folder of its file, what it touches, and what is said when it is short of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import DeadlineError, LabError, MachineError
from testbed.lab import guest_memory
from testbed.lab.guest_memory import MIB, READ_MOST_BYTES, Memory, Watch, naming_shortage


class Mounts:
    """Answers statvfs: which folders are mounted noexec, and how many mebibytes are free in others."""

    def __init__(self, *noexec: str, **free_mib: int) -> None:
        self.noexec, self.free_mib = noexec, free_mib

    def __call__(self, name: str) -> Any:
        flags = os.ST_NOEXEC if name in self.noexec else 0
        free = self.free_mib.get(Path(name).name, 0)
        return os.statvfs_result((4096, 1 << 20, 0, 0, free, 0, 0, 0, flags, 255))


@pytest.mark.parametrize(
    ("noexec", "folder"),
    [((), "/chosen"), (("/chosen",), "/dev/shm"), (("/chosen", "/dev/shm"), "/tmp")],
)
def test_the_guests_memory_lies_where_it_may_be_executed(
    noexec: tuple[str, ...], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", "/chosen")
    monkeypatch.setattr(guest_memory.os, "access", lambda name, mode: True)
    monkeypatch.setattr(guest_memory.os, "statvfs", Mounts(*noexec))
    assert guest_memory.memory_dir() == Path(folder)


def test_without_a_place_for_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(guest_memory.os, "statvfs", Mounts("/dev/shm", "/tmp"))
    with pytest.raises(MachineError) as caught:
        guest_memory.memory_dir()
    message = "no folder for the guest's memory: /dev/shm and /tmp are mounted noexec; set TMPDIR"
    assert str(caught.value) == message


@pytest.mark.parametrize(("need_mib", "folder"), [(0, "/chosen"), (11, "/dev/shm"), (65, "/tmp")])
def test_the_guests_memory_lies_where_there_is_room(
    need_mib: int, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", "/chosen")
    monkeypatch.setattr(guest_memory.os, "access", lambda name, mode: True)
    monkeypatch.setattr(guest_memory.os, "statvfs", Mounts(chosen=10, shm=64, tmp=900))
    assert guest_memory.memory_dir(need_mib << 20) == Path(folder)


def test_without_room_for_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(guest_memory.os, "statvfs", Mounts(shm=64, tmp=300))
    with pytest.raises(MachineError) as caught:
        guest_memory.memory_dir(301 << 20)
    assert str(caught.value) == (
        "the guest's memory file takes up to 301 MiB, but /dev/shm has 64 MiB free, /tmp has 300 MiB free: "
        "point TMPDIR at a folder with more room, or enlarge /dev/shm (mount -o remount,size=..., docker run "
        "--shm-size)"
    )


def test_a_folder_that_is_not_there_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/no/such/folder")
    monkeypatch.setattr(guest_memory.os, "statvfs", Mounts("/dev/shm"))
    assert guest_memory.memory_dir() == Path("/tmp")


# ---- memory ---------------------------------------------------------------------------

FAILED = "python3: page allocation failure: order:0, mode:0x820(GFP_ATOMIC), nodemask=(null)"
SHORT = "the guest ran out of memory: it had 300 MiB; set memory to more, as --set memory=600mib"


def end_guest(console: str, error: LabError | None) -> None:
    with naming_shortage(Memory(300, Path("/tmp")), lambda: console):
        if error is not None:
            raise error


@pytest.mark.parametrize(
    ("console", "error"),
    [
        ("Out of memory: Killed process 31 (python3)", LabError("controller ended with status -9")),
        ("Kernel panic - not syncing: Out of memory: compulsory", LabError("no result")),
        (FAILED, None),
        ("", LabError("'ip -batch -' ended with status 1: RTNETLINK answers: Cannot allocate memory")),
        ("", LabError("MemoryError: ")),
        ("Out of memory: Killed process 31", DeadlineError("it took too long")),
    ],
)
def test_a_guest_short_of_memory_says_what_to_set(console: str, error: LabError | None) -> None:
    with pytest.raises(LabError) as caught:
        end_guest(console, error)
    assert str(caught.value) == SHORT
    assert type(caught.value) is LabError


def test_other_ends_are_left_alone() -> None:
    error = DeadlineError("it took too long")
    end_guest("Linux version 6.12", None)
    with pytest.raises(DeadlineError) as caught:
        end_guest("", error)
    assert caught.value is error


def holding(mebibytes: int, *, reads: int = 0) -> subprocess.Popen[bytes]:
    """A process that has touched so much and read so much, and waits."""
    code = (
        f"held = bytearray({mebibytes} << 20); into = bytearray(1 << 20); zero = open('/dev/zero', 'rb', 0)\n"
        f"for _ in range({reads}): zero.readinto(into)\n"
        "print(flush=True); input()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_what_a_guest_touches_is_noted_and_stays_when_it_has_ended() -> None:
    waited: list[float] = []
    watch = Watch(lambda process, seconds: waited.append(seconds))
    with holding(64) as process:
        watch.pause(process, 0.5)
        process.kill()
    assert 64 * MIB <= watch.peak_bytes < 128 * MIB
    peak = watch.peak_bytes
    watch.pause(process, 0.25)
    assert (watch.peak_bytes, waited) == (peak, [0.5, 0.25])


def test_a_guest_that_reads_its_programs_again_and_again_is_short_of_memory() -> None:
    with holding(1, reads=330) as process:
        for most in (READ_MOST_BYTES + 32 * MIB, None):
            Watch(lambda process, seconds: None, most).pause(process, 0.0)
        with pytest.raises(LabError, match="^Out of memory: "):
            Watch(lambda process, seconds: None).pause(process, 0.0)
        process.kill()


@pytest.mark.parametrize(
    ("touched_mib", "said", "named"),
    [
        (94, "the probe failed", "the probe failed"),
        (
            95,
            "the probe failed",
            "the probe failed; it had touched all of its 100 MiB of memory, which may be why: set memory "
            "to more, as --set memory=200mib",
        ),
        (100, "short; set memory to more, as", "short; set memory to more, as"),
    ],
)
def test_an_error_of_a_guest_that_touched_all_it_had_says_so(touched_mib: int, said: str, named: str) -> None:
    watch = Watch(lambda process, seconds: None)
    watch.peak_bytes = touched_mib * MIB
    assert str(watch.name_full(Memory(100, Path("/tmp")), LabError(said))) == named
