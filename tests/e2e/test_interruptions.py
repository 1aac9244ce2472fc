"""Control-C, SIGTERM and SIGHUP at any moment of any command: ended at once, in order, and nothing left.

What a signal does to each part by itself is in tests/unit/test_signals.py and test_run_launch.py.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from testbed.record.reader import Record
from testbed.run.rows import FLUSH_ROWS
from tests.support.command import (
    COMES_WITHIN_S,
    await_handlers,
    await_step,
    call,
    command,
    ends_within_s,
    manifest,
    settings,
    start,
    wait_for,
    write_scenario,
)

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NUMBERS = {number.name: number for number in SIGNALS}


@dataclass
class Command:
    """A command that works in a folder of its own, temporary files included."""

    process: subprocess.Popen[str]
    folder: Path

    @classmethod
    def begin(cls, folder: Path, *words: str | Path) -> Command:
        (folder / "scratch").mkdir(parents=True)
        return cls(
            subprocess.Popen(
                command(*words),
                cwd=folder,
                env={**os.environ, "TMPDIR": str(folder / "scratch")},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            ),
            folder,
        )

    def records(self) -> dict[Path, str]:
        """The status of each record below the folder, whose subfolders come and go meanwhile."""
        found = {}
        for folder, _, names in os.walk(self.folder):
            if "manifest.json" in names:
                with contextlib.suppress(FileNotFoundError):
                    found[Path(folder)] = manifest(Path(folder))["status"]
        return found

    def living(self) -> dict[int, str]:
        """The processes that were told of the folder's temporary one: the command, its runs, their guests."""
        mark, found = str(self.folder / "scratch").encode(), {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if mark in (entry / "environ").read_bytes():
                        found[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace")
                except OSError:
                    continue
        return found

    def end(self, number: signal.Signals) -> str:
        """Send a signal, and return what the command said when it had ended; AssertionError when anything
        is left of it, or not in order."""
        self.process.send_signal(number)
        begun = time.monotonic()
        _, said = self.process.communicate(timeout=ends_within_s())
        wait_for(lambda: not self.living(), ends_within_s(), lambda: f"still there: {self.living()}")
        assert time.monotonic() - begun < ends_within_s()
        assert list((self.folder / "scratch").iterdir()) == []
        assert [
            path for path in self.folder.rglob("*") if path.name == ".lab" or path.suffix == ".part"
        ] == []
        assert "running" not in self.records().values()
        return said


def test_no_moment_of_a_run_leaves_anything(tmp_path: Path) -> None:
    scenario, moments = write_scenario(tmp_path), 5
    begun = time.monotonic()
    assert call("run", scenario, "--out", tmp_path / "whole").returncode == 0
    whole_s = time.monotonic() - begun
    ends = []
    for at in range(moments):
        number = SIGNALS[at % len(SIGNALS)]
        run = Command.begin(tmp_path / f"{at}", "run", scenario, "--out", "record")
        await_handlers(run.process)
        time.sleep(whole_s * at / moments)
        said = run.end(number)
        status = run.records().get(tmp_path / f"{at}/record")
        if run.process.returncode == 0:
            assert status == "complete"  # it was faster than the first
            continue
        ends.append(at)
        assert run.process.returncode == 128 + number
        assert said.splitlines()[-1] == f"testbed: ended by {number.name}"
        assert status in (None, "aborted", "complete")
        if status == "aborted":
            assert manifest(tmp_path / f"{at}/record")["reason"] == f"ended by {number.name}"
    assert ends[0] == 0  # the others may all have been much faster than the first


def test_what_was_measured_until_a_signal_can_be_read(tmp_path: Path) -> None:
    out, long = tmp_path / "record", settings(["workload.requests.kv_bytes=4gib"])
    process = start("run", write_scenario(tmp_path), "--out", out, *long)
    await_step(process, "traffic")
    rows = out / "raw/progress.bin"  # two in each 100 us: a piece of them is 12.8 ms
    wait_for(lambda: rows.stat().st_size > 0, COMES_WITHIN_S, lambda: "no progress was written")
    process.terminate()
    process.communicate(timeout=ends_within_s())
    record = Record.open(out)
    assert record.damage == ()
    assert record.manifest["status"] == "aborted"
    series, (times, received) = record.series("leaf2-d1"), record.progress(0)
    assert len(series.time_ns) >= FLUSH_ROWS
    assert received[-1] > 1 << 20
    # Each file lacks less than a piece: their ends are no further apart than the longer of them.
    piece_ns = max(FLUSH_ROWS * record.plan.measure.interval_ns, FLUSH_ROWS * record.plan.measure.progress_ns)
    assert abs(int(series.time_ns[-1]) - int(times[-1])) < piece_ns
    done = call("report", out)
    assert done.returncode == 0, done.stderr
    assert "the run is aborted: ended by SIGTERM" in " ".join(done.stdout.split())


RUNS = [
    ("check", ["check", "SCENARIO", "--seeds", "2", "--jobs", "2", "--out", "runs"], 2),
    ("sweep", ["sweep", "SCENARIO", "--vary", "fabric.mtu=4200,9000", "--jobs", "2", "--out", "runs"], 2),
    ("seeds", ["run", "SCENARIO", "--seeds", "2", "--jobs", "2", "--out", "runs"], 2),
    ("validate", ["validate", "closed_forms", "diagnosis.incast", "--quick", "--jobs", "2"], 2),
    ("diagnosis", ["validate", "diagnosis.incast", "diagnosis.baseline", "--jobs", "2"], 2),
    ("clocks", ["clocks", "SCENARIO", "--dilation", "2000"], 1),
    ("rerun", ["rerun", "DONE"], 2),
]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("done")
    assert call("run", write_scenario(folder), "--out", folder / "record").returncode == 0
    return folder / "record"


@pytest.mark.parametrize(("name", "words", "records"), RUNS, ids=[name for name, _, _ in RUNS])
def test_a_command_of_several_runs_ends_them_all(
    tmp_path: Path, done: Path, name: str, words: list[str], records: int
) -> None:
    number = SIGNALS[len(name) % len(SIGNALS)]
    scenario = write_scenario(tmp_path)
    scenario.write_text(f"{scenario.read_text()}expect: [verdict.segment == dest-leaf]\n")
    places = {"SCENARIO": scenario, "DONE": tmp_path / "own/done"}
    if name == "rerun":
        subprocess.run(["cp", "-a", done, tmp_path], check=True)
        places["DONE"] = tmp_path / "record"
        records = 1
    several = Command.begin(tmp_path / "own", *(places.get(word, word) for word in words))
    wait_for(
        lambda: len(several.records()) >= records,
        COMES_WITHIN_S,
        lambda: f"only {several.records()} began",
    )
    wait_for(lambda: "linux" in str(several.living()), COMES_WITHIN_S, lambda: "no guest was started")
    said = several.end(number)
    assert several.process.returncode == 128 + number
    assert said.splitlines()[-1] == f"testbed: ended by {number.name}"
    assert set(several.records().values()) <= {"aborted"}
