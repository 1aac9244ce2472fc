"""A full disk, and too little memory: the run says which, the record what was measured until then.

The disks are small file systems of memory, mounted in the test's own mount namespace.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from testbed.lab.job import JOB_DIR
from testbed.lab.kernels import find_kernel
from testbed.lab.uml import command, explain, link_shim
from testbed.record.reader import Record
from tests.support import command as testbed
from tests.support.command import Machine, call, manifest, settings, write_scenario

SMALL_DISK = """
size=$1 folder=$2 kept=$3; shift 3
mount -t tmpfs -o "exec,size=$size" small "$folder" || exit 99
cp -a "$kept/." "$folder"
"$@"
status=$?
cp -a "$folder/." "$kept"
exit $status
"""
"""Runs a command with `folder` on a small disk that has what `kept` has, and keeps what is there then."""


def on_a_disk(
    size: str, folder: Path, kept: Path, words: list[str], **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the testbed where `folder` is a disk of that size; copy what is there at the end to `kept`."""
    for path in (folder, kept):
        path.mkdir(exist_ok=True)
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    shell = ["unshare", "--mount", *as_root, "sh", "-c", SMALL_DISK, "sh", size, str(folder), str(kept)]
    return subprocess.run(
        [*shell, *testbed.command(*words)],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )


NO_ROOM = "cannot be written: No space left on device; make room there, or give another folder"


def test_a_disk_that_fills_up_while_recording(tmp_path: Path) -> None:
    out, kept, machine = tmp_path / "disk/record", tmp_path / "kept", Machine()
    words = ["run", str(write_scenario(tmp_path)), "--out", str(out)]
    more = settings(["workload.requests.kv_bytes=256mib", "measure.interval=5us"])
    done = on_a_disk("2m", tmp_path / "disk", kept, [*words, *more])
    assert done.returncode == 3, done.stderr
    assert done.stderr.splitlines()[-1] == f"testbed: {out}: {NO_ROOM}"
    record = kept / "record"
    assert (manifest(record)["status"], manifest(record)["reason"]) == ("failed", f"{out}: {NO_ROOM}")
    machine.assert_clean(out)

    opened = Record.open(record)
    assert opened.damage == ()
    assert len(opened.series("leaf2-d1").time_ns) >= 256  # of some 8,700, as far as there was room
    assert opened.progress(0)[1][-1] > 1 << 20
    report = call("report", record)
    assert report.returncode == 0, report.stderr
    assert "NOT VALID   the run is failed: " in report.stdout


def test_a_disk_without_room_for_the_beginning(tmp_path: Path) -> None:
    out = tmp_path / "disk/record"
    words = ["run", str(write_scenario(tmp_path)), "--out", str(out)]
    done = on_a_disk("32k", tmp_path / "disk", tmp_path / "kept", words)
    assert (done.returncode, done.stderr) == (3, f"testbed: {out}: {NO_ROOM}\n")


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


def test_no_room_for_the_guests_memory(tmp_path: Path) -> None:
    out, memory = tmp_path / "record", tmp_path / "memory"
    words = ["run", str(write_scenario(tmp_path)), "--out", str(out)]
    done = on_a_disk("10m", memory, tmp_path / "kept", words, TMPDIR=str(memory))
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith(
        "testbed: the lab ended without a result: "
        f"no room for the guest's memory in {memory}: free some there, or set TMPDIR: "
    )
    assert manifest(out)["status"] == "failed"


# ---- what the guest kernel says at its end --------------------------------------------


def ended(folder: Path, script: str) -> str:
    """Boot a guest that runs `script` and return how its end is explained."""
    kernel = find_kernel("virtual")
    (folder / JOB_DIR).mkdir(parents=True)
    link_shim(folder / JOB_DIR, kernel)
    (folder / JOB_DIR / "init.sh").write_text(f"mount -t devtmpfs devtmpfs /dev\n{script}\n")
    done = subprocess.run(
        command(kernel, 256),
        cwd=folder,
        env={"PATH": os.environ["PATH"], "KV_TESTBED_SEED": "1", "TMPDIR": "/dev/shm"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        start_new_session=True,
    )
    return explain((done.stdout + done.stderr).decode(errors="replace"), done.returncode)


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
