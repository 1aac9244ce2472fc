"""A full disk, and too little memory: the run says which, the record what was measured until then.

The disks are small file systems of memory, mounted in the test's own mount namespace.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from testbed.lab.job import JOB_DIR
from testbed.lab.kernels import find_kernel
from testbed.lab.uml import command, explain, link_shim
from testbed.record.reader import Record
from tests.support import command as testbed
from tests.support.command import Machine, call, manifest, settings, write_scenario

SMALL_DISK = """
size=$1 folder=$2 kept=$3 begun=$4; shift 4
mount -t tmpfs -o "size=$size" small "$folder" || exit 99
cp -a "$kept/." "$folder"
if [ "$begun" ]; then
    (until [ -s "$folder/$begun" ]; do sleep 0.05; done; cat /dev/zero >"$folder/filler" 2>/dev/null) &
fi
"$@"
status=$?
rm -f "$folder/filler"
cp -a "$folder/." "$kept"
exit $status
"""
"""Runs a command with `folder` on a small disk that has what `kept` has, and keeps what is there then. Once
the file `begun` has something in it, somebody else takes the rest of the disk."""


AS_ROOT = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]


def on_a_disk(
    size: str, folder: Path, kept: Path, words: list[str], *, begun: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the testbed where `folder` is a disk of that size; copy what is there at the end to `kept`."""
    for path in (folder, kept):
        path.mkdir(exist_ok=True)
    shell = [*AS_ROOT, "sh", "-c", SMALL_DISK, "sh", size, str(folder), str(kept), begun]
    return subprocess.run(
        [*shell, *testbed.command(*words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )


NO_ROOM = "cannot be written: No space left on device; make room there, or give another folder"


def test_a_disk_that_fills_up_while_recording(tmp_path: Path) -> None:
    out, kept, machine = tmp_path / "disk/record", tmp_path / "kept", Machine()
    words = ["run", str(write_scenario(tmp_path)), "--out", str(out)]
    more = settings(["workload.requests.kv_bytes=1gib"])
    begun = "record/raw/progress.bin"
    done = on_a_disk("64m", tmp_path / "disk", kept, [*words, *more], begun=begun)
    assert done.returncode == 3, done.stderr
    assert done.stderr.splitlines()[-1] == f"testbed: {out}: {NO_ROOM}"
    record = kept / "record"
    assert (manifest(record)["status"], manifest(record)["reason"]) == ("failed", f"{out}: {NO_ROOM}")
    machine.assert_clean(out)

    opened = Record.open(record)
    assert opened.damage == ()
    assert len(opened.series("leaf2-d1").time_ns) >= 256  # of some 8,700
    assert opened.progress(0)[1][-1] > 1 << 20
    report = call("report", record)
    assert report.returncode == 0, report.stderr
    assert "NOT VALID   the run is failed: " in report.stdout


def test_a_disk_without_room_for_the_report(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    first = testbed.run(kept / "record", write_scenario(tmp_path))
    page = (first.out / "report.html").read_bytes()
    used_kb = sum(-(-path.stat().st_size // 4096) * 4 for path in first.out.rglob("*") if path.is_file())
    out = tmp_path / "disk/record"
    done = on_a_disk(f"{used_kb + 32}k", tmp_path / "disk", kept, ["report", str(out)])
    assert done.returncode == 3
    assert done.stderr == f"testbed: {out}/report.html: {NO_ROOM}\n"
    assert (first.out / "report.html").read_bytes() == page
    assert sorted(path.name for path in first.out.iterdir() if ".part" in path.name) == []


# ---- what the guest kernel says at its end --------------------------------------------


SMALL_MEMORY = [*AS_ROOT, "sh", "-c", 'mount -t tmpfs -o exec,size=10m small "$TMPDIR"; exec "$@"', "sh"]
"""Runs a command with a folder of 10 MB for temporary files."""


def ended(folder: Path, script: str, *before: str) -> str:
    """Boot a guest that runs `script`, by a command `before` if there is one, and return how its end is
    explained."""
    kernel = find_kernel("virtual")
    (folder / JOB_DIR).mkdir(parents=True)
    link_shim(folder / JOB_DIR, kernel)
    (folder / JOB_DIR / "init.sh").write_text(f"mount -t devtmpfs devtmpfs /dev\n{script}\n")
    done = subprocess.run(
        [*before, *command(kernel, 256)],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "KV_TESTBED_SEED": "1", "TMPDIR": os.environ["TMPDIR"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        start_new_session=True,
    )
    return explain((done.stdout + done.stderr).decode(errors="replace"), done.returncode)


@pytest.fixture(autouse=True)
def _memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each guest's memory lies in a folder of its own."""
    (tmp_path / "memory").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "memory"))


def test_no_room_for_the_guests_memory(tmp_path: Path) -> None:
    takes = "mount -t tmpfs tmpfs /run; head -c 50000000 /dev/zero >/run/file; exit 1"
    assert ended(tmp_path / "guest", takes, *SMALL_MEMORY) == (
        f"no room for the guest's memory in {tmp_path}/memory: free some there, or set TMPDIR: "
        "Kernel mode signal 7; see logs/guest-kernel.log"
    )


def test_a_guest_whose_first_process_ends_has_panicked(tmp_path: Path) -> None:
    assert ended(tmp_path / "guest", "exit 3") == (
        "the guest kernel panicked: Attempted to kill init! exitcode=0x00000300; see logs/guest-kernel.log"
    )


def test_the_panics_of_virtual_time_are_recognised_on_a_real_console(tmp_path: Path) -> None:
    # Their causes cannot be made; the kernel's own sentences (arch/um/kernel/time.c) can be printed by it.
    says = "echo '<0>Kernel panic - not syncing: {}' >/dev/kmsg; exit 1"
    sleep = "The system was going to sleep forever, aborting"
    back = "time-travel: time goes backwards 10 -> 5"
    assert ended(tmp_path / "sleep", says.format(sleep)) == (
        f"nothing in the lab will ever happen again (every program waits for another): {sleep}; "
        "see logs/guest-kernel.log"
    )
    assert ended(tmp_path / "back", says.format(back)) == (
        f"the guest's virtual clock went backwards: {back}; see logs/guest-kernel.log"
    )
