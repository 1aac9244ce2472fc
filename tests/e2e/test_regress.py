"""Check and sweep as a team's CI uses them: planted regressions, goldens, an interruption, two workers.

The scenarios stand in tests/data/regression: each base with what is expected of it, and for each kind of
regression a file that extends one and changes the one value. Another kind is a file and a line in `PLANTED`.
"""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.command import call, command, wait_for

DATA = Path(__file__).resolve().parents[1] / "data" / "regression"
BASES = ("marking", "ecn", "roce", "paths")
PLANTED = {
    "kmax-times-ten": ("marking.yaml:16: expected links.leaf1-d1.queue_bytes.max < 500kb", r"\d{6,}"),
    "ecn-off": ("ecn.yaml:5: expected links.leaf1-d1.queue_bytes.max < 500kb", r"\d{7}"),
    "rate-timer-times-ten": ("roce.yaml:6: expected ttft_ms.p99 < 20ms", r"\d\d\.\d+"),
    "rail-at-half": ("paths.yaml:15: expected verdict.segment == null", "source-rail"),
    "placement-skewed": ("paths.yaml:15: expected verdict.segment == null", "source-leaf"),
}
"""For each planted regression the line of the file that must say so, and what it must say was measured."""


def files(*names: str) -> list[str]:
    return [str(DATA / f"{name}.yaml") for name in names]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("regress")


@pytest.fixture(scope="module")
def goldens(folder: Path) -> Path:
    done = call(
        "check", *files(*BASES), "--golden", "goldens", "--update", "--out", "first", cwd=folder, limit_s=400
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "goldens"


@pytest.mark.slow
def test_unchanged_settings_have_the_same_values(folder: Path, goldens: Path) -> None:
    done = call(
        "check", *files(*BASES), "--golden", goldens, "--out", "again", "--json", cwd=folder, limit_s=400
    )
    assert done.returncode == 0, done.stdout + done.stderr
    judged = json.loads(done.stdout)
    assert [one["scenario"] for one in judged] == list(BASES)
    for one in judged:
        found = one["golden"]
        assert (found["same"], found["changes"], found["new"], found["toolchain"]) == (True, [], [], [])


@pytest.mark.slow
def test_each_planted_regression_fails_with_the_right_line(folder: Path) -> None:
    done = call("check", *files(*PLANTED), "--out", "planted", "--junit", "j.xml", cwd=folder, limit_s=400)
    assert done.returncode == 1, done.stdout + done.stderr
    for name, (line, measured) in PLANTED.items():
        assert re.search(rf"/{re.escape(line)}, measured {measured}\n", done.stdout), f"{name}: {done.stdout}"
        assert re.search(rf"^{name} .* FAILED$", done.stdout, re.MULTILINE)
    failed = ElementTree.parse(folder / "j.xml").getroot()
    assert (failed.get("errors"), failed.get("skipped")) == ("0", "0")
    assert len({suite.get("name") for suite in failed if suite.get("failures") != "0"}) == len(PLANTED)


@pytest.mark.slow
def test_a_seed_whose_hash_collides_fails(folder: Path, goldens: Path) -> None:
    done = call("check", *files("paths"), "--seed", "2", "--out", "collides", cwd=folder)
    assert done.returncode == 1
    assert re.search(
        r"/paths.yaml:15: expected verdict.segment == null, measured (source-leaf|spine)\n", done.stdout
    )
    # A golden of seed 1 says nothing of seed 2.
    refused = call("check", *files("paths"), "--seed", "2", "--golden", goldens, cwd=folder)
    message = f"{goldens}/paths-2.json: there is no golden of paths with seed 2; make it with --update"
    assert (refused.returncode, refused.stderr) == (2, f"testbed: {message}\n")


# ---- sweep ----------------------------------------------------------------------------

VARY = ["--vary", "fabric.queue.kmin=20kb,100kb", "--vary", "fabric.queue.kmax=200kb,400kb"]
SWEEP = ["sweep", *files("marking"), *VARY, "--set", "workload.requests.kv_bytes=1mib"]


def second_point_runs(out: Path) -> bool:
    done, begun = (list(out.glob(f"records/*/{name}")) for name in ("summary.json", ".lab/init.sh"))
    return len(done) == 1 and len(begun) == 1


@pytest.fixture(scope="module")
def swept(folder: Path) -> Path:
    """A sweep of four points that was interrupted after its first and run to its end."""
    out = folder / "sweep"
    words = [*SWEEP, "--jobs", "1", "--out", "sweep"]
    process = subprocess.Popen(command(*words), cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        # The second run is in its lab: killed before, its record says `running`, and is made again as well.
        wait_for(lambda: second_point_runs(out), 150, lambda: "no second point")
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=90)[1]
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGINT, said
    states = sorted(json.loads(path.read_text())["status"] for path in out.glob("records/*/manifest.json"))
    assert states == ["aborted", "complete"]
    assert not (out / "points.csv").exists()
    done = call(*SWEEP, "--jobs", "2", "--out", "sweep", cwd=folder, limit_s=300)
    assert done.returncode == 0, done.stderr
    assert "1 of 4 points are there already" in done.stderr
    assert re.search(r"\b3 of 3: ", done.stderr)
    return out


def rows(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((out / "points.csv").read_text().splitlines()))


@pytest.mark.slow
def test_a_sweep_is_taken_up_where_it_ended(swept: Path) -> None:
    found = rows(swept)
    assert [(row["fabric.queue.kmin"], row["fabric.queue.kmax"]) for row in found] == [
        (kmin, kmax) for kmin in ("20kb", "100kb") for kmax in ("200kb", "400kb")
    ]
    assert {row["status"] for row in found} == {"ok"}
    # A higher K_min keeps a higher queue: the page's trade is there to be seen.
    queues = [float(row["run.queue_mean_bytes"]) for row in found]
    assert max(queues[:2]) < min(queues[2:])
    assert (swept / "sweep.html").read_text().count("<svg") == 6


@pytest.fixture
def workers() -> Iterator[str]:
    """The address of a dask scheduler with two worker processes."""
    program = (
        "import sys\n"
        "from distributed import LocalCluster\n"
        "if __name__ == '__main__':\n"
        "    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:\n"
        "        print(cluster.scheduler_address, flush=True)\n"
        "        sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(DATA.parents[2])},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield process.stdout.readline().strip().replace("tcp://", "dask://")
        process.stdin.close()
        process.wait(30)
    finally:
        process.kill()
        process.stdout.close()


@pytest.mark.slow
def test_two_workers_of_dask_give_the_same_table(folder: Path, swept: Path, workers: str) -> None:
    done = call(*SWEEP, "--executor", workers, "--out", "elsewhere", cwd=folder, limit_s=300)
    assert done.returncode == 0, done.stderr
    assert (folder / "elsewhere" / "points.csv").read_bytes() == (swept / "points.csv").read_bytes()
