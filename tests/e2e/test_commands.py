"""Every command from one end to the other, and the exit code of each way a run can end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.command import SMALL, Run, call, manifest, run, settings, write_scenario

ROOT = Path(__file__).parents[2]

DERIVED = ("summary.json", "transfers.csv", "report.html")

HOST_DROPS = """\
name: host-drops
fabric:
  leaves: 2
  mtu: 9000
  host_link: {rate: 10gbit, delay: 1us}
  fabric_link: {rate: 20gbit, delay: 1us}
  queue: {kmin: 20kb, kmax: 20kb, limit: 30kb}
hosts: {prefill: {count: 1}, decode: {count: 1}}
workload:
  requests: {kind: burst, count: 8, window: 0us, kv_bytes: 64kib}
measure: {interval: 200us, progress: 1ms}
"""
"""Eight first windows of ten packets do not fit into a host's own queue of three: what it drops is the lab's
doing and not the network's, so the measurement must not be believed."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("finished")
    return run(folder / "record", write_scenario(folder))


def test_list_names_the_shipped_scenarios() -> None:
    done = call("list")
    assert done.returncode == 0
    shipped = sorted(path.stem for path in (ROOT / "testbed/scenarios").glob("*.yaml"))
    assert {"baseline", "incast"} < set(shipped)
    assert [line.split()[0] for line in done.stdout.splitlines()] == shipped
    listed = json.loads(call("list", "--json").stdout)
    assert [entry["name"] for entry in listed if entry["description"]] == shipped


def test_plan_starts_nothing(tmp_path: Path) -> None:
    done = call("plan", "incast", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    plan = json.loads(done.stdout)
    assert len(plan["transfers"]) == 8
    assert list(tmp_path.iterdir()) == []


def test_plan_of_a_run_is_what_plan_prints(finished: Run) -> None:
    printed = call("plan", finished.out.parent / "scenario.yaml", "--json").stdout
    assert json.loads(printed) == json.loads((finished.out / "plan.json").read_text())


def test_doctor_boots_a_guest_and_is_content() -> None:
    done = call("doctor", "--json")
    assert done.returncode == 0, done.stdout
    checks = {check["name"]: check["ok"] for check in json.loads(done.stdout)["checks"]}
    assert checks["python"] is True
    assert checks["mininet"] is True


def test_report_writes_the_same_bytes_again(finished: Run, tmp_path: Path) -> None:
    moved = tmp_path / "moved elsewhere"
    shutil.copytree(finished.out, moved)
    for name in DERIVED:
        (moved / name).unlink()
    done = call("report", moved)
    assert done.returncode == 0, done.stderr
    for name in DERIVED:
        assert (moved / name).read_bytes() == (finished.out / name).read_bytes(), name


def test_report_shows_damage(finished: Run, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(finished.out, damaged)
    rows = damaged / "raw/samples-fabric.bin"
    rows.write_bytes(rows.read_bytes()[:-4])
    done = call("report", damaged, "--json")
    assert done.returncode == 4
    assert done.stderr.startswith(f"testbed: {damaged}: the record is damaged: raw/samples-fabric.bin has ")
    fidelity = json.loads(done.stdout)["fidelity"]
    assert fidelity["valid"] is False
    assert "raw/samples-fabric.bin" in fidelity["reasons"][0]


def test_run_json_prints_only_the_summary(tmp_path: Path) -> None:
    out = tmp_path / "record"
    done = call("run", write_scenario(tmp_path), "--out", out, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (out / "summary.json").read_text()
    assert json.loads(done.stdout)["scenario"] == "small"


def test_the_usual_folder_has_name_seed_and_hash(tmp_path: Path) -> None:
    done = call("run", write_scenario(tmp_path), "--seed", "7", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (out,) = (tmp_path / "runs").iterdir()
    assert out.name.startswith("small-7-")
    assert manifest(out)["status"] == "complete"


def test_a_run_replaces_its_own_older_record(finished: Run, tmp_path: Path) -> None:
    out = tmp_path / "record"
    shutil.copytree(finished.out, out)
    (out / "raw" / "of-the-older-run").touch()
    again = run(out, finished.out.parent / "scenario.yaml")
    assert not (out / "raw" / "of-the-older-run").exists()
    assert again.summary == finished.summary


def test_an_expectation_that_fails_is_exit_1(tmp_path: Path) -> None:
    scenario = write_scenario(tmp_path, SMALL + "expect:\n  - verdict.segment == spine\n")
    done = run(tmp_path / "record", scenario, expect=1)
    last = done.done.stderr.splitlines()[-1]
    line = len(SMALL.splitlines()) + 2
    assert last == f"testbed: {scenario}:{line}: expected verdict.segment == spine, measured dest-leaf"
    assert manifest(done.out)["status"] == "complete"


def test_a_measurement_that_is_not_valid_is_exit_4(tmp_path: Path) -> None:
    scenario = write_scenario(tmp_path, HOST_DROPS)
    done = run(tmp_path / "record", scenario, expect=4)
    assert done.summary["fidelity"]["valid"] is False
    (reason,) = done.summary["fidelity"]["reasons"]
    assert reason.startswith("hosts dropped packets at their own egress: p1-leaf1 (")
    assert done.done.stderr.splitlines()[-1] == f"testbed: the measurement is not valid: {reason}"
    assert manifest(done.out)["status"] == "complete"
    allowed = run(tmp_path / "allowed", scenario, "--allow-invalid")
    assert allowed.summary == done.summary


def test_clean_says_when_there_is_nothing(finished: Run, tmp_path: Path) -> None:
    assert call("clean", tmp_path / "none").stdout == f"nothing to clean: there is no {tmp_path / 'none'}\n"
    assert call("clean", finished.out.parent).stdout == f"nothing to clean in {finished.out.parent}\n"
    assert manifest(finished.out)["status"] == "complete"


def test_set_changes_one_value_and_the_record_says_so(tmp_path: Path) -> None:
    out = tmp_path / "record"
    done = call("run", write_scenario(tmp_path), "--out", out, *settings(["workload.requests.kv_bytes=1mib"]))
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "summary.json").read_text())["transfers"]["bytes"] == 2 << 20
    again = call("plan", out / "scenario.yaml", "--json")
    assert json.loads(again.stdout) == json.loads((out / "plan.json").read_text())
