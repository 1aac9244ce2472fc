"""What a job hands to the lab, how it is watched, and how its end is told."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.errors import DeadlineError, LabError, MachineError, ReadbackError
from testbed.lab import job as job_module
from testbed.lab.job import Job, controller_python, end_group, inside_python, prepare, result, watch
from tests.support.command import state_of, wait_for


def make_job(folder: Path, deadline_s: float = 30.0, told: list[str] | None = None) -> Job:
    steps = [] if told is None else told
    return Job(folder, "os-ken", 1, deadline_s, lambda step, seconds: steps.append(step))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    made = make_job(tmp_path)
    made.folder.mkdir()
    return made


def start(script: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sh", "-c", script], start_new_session=True)


# ---- preparing ------------------------------------------------------------------------


def test_the_jobs_files(tmp_path: Path) -> None:
    made = make_job(tmp_path)
    prepare(made, record_inside="/mnt", mounts="mount -t proc proc /proc", own_kernel=True)
    assert json.loads((made.folder / "job.json").read_text()) == {
        "controller_python": sys.executable,
        "record": "/mnt",
        "power_off": True,
    }
    lines = (made.folder / "init.sh").read_text().splitlines()
    python, mininet = inside_python()
    assert lines[:5] == [
        "mount -t proc proc /proc",
        "exec >>/mnt/.lab/init.log 2>&1",
        "ln -s /mnt/.lab/code /run/code",
        "ip link set lo up",
        "cd /",
    ]
    assert lines[5].startswith("exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TMPDIR=/run ")
    settings = f"PYTHONPATH=/run/code:{mininet} PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1"
    assert f"{settings} {python} -S" in lines[5]
    assert lines[5].endswith(" -m testbed.lab.at_once testbed.run.inside /mnt/.lab")
    assert len(lines) == 6


def test_a_record_with_a_space_in_its_name_stays_one_word(tmp_path: Path) -> None:
    record = tmp_path / "my run"
    record.mkdir()
    prepare(make_job(record), record_inside=str(record), mounts="true", own_kernel=False)
    script = (record / ".lab/init.sh").read_text()
    opened = script.splitlines()[1]
    done = subprocess.run(["sh", "-c", opened], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")
    assert (record / ".lab/init.log").exists()


def test_the_labs_python_needs_nothing_but_the_jobs_code_and_mininet(tmp_path: Path) -> None:
    prepare(make_job(tmp_path), record_inside="/mnt", mounts="", own_kernel=True)
    python, mininet = inside_python()
    modules = "testbed.run.inside, testbed.run.prompt, testbed.run.pauser, testbed.run.probe, controller.main"
    code = f"import mininet, {modules}; print(testbed.run.inside.__file__)"
    environment = {"PYTHONPATH": f"{tmp_path}/.lab/code:{mininet}"}
    done = subprocess.run(
        [python, "-S", "-c", code], env=environment, cwd="/", capture_output=True, text=True, timeout=20
    )
    assert (done.stdout, done.stderr) == (f"{tmp_path}/.lab/code/testbed/run/inside.pyc\n", "")


def test_without_mininet_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MachineError) as caught:
        inside_python()
    message = "Python cannot find mininet: install the package mininet and run scripts/setup.sh"
    assert str(caught.value) == message


def test_the_interpreter_of_the_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "PROJECT", tmp_path)
    assert controller_python("os-ken") == sys.executable
    with pytest.raises(MachineError, match=f"^no Ryu in {tmp_path}/.venv-ryu: run scripts/setup.sh$"):
        controller_python("ryu")
    (tmp_path / ".venv-ryu/bin").mkdir(parents=True)
    (tmp_path / ".venv-ryu/bin/python").touch()
    assert controller_python("ryu") == f"{tmp_path}/.venv-ryu/bin/python"


# ---- watching -------------------------------------------------------------------------


def test_each_step_is_told_once_and_in_order(tmp_path: Path) -> None:
    told: list[str] = []
    made = make_job(tmp_path, told=told)
    made.folder.mkdir()
    log = made.folder / "progress.log"
    watch(made, start(f"echo boot >>{log}; sleep 0.1; echo build >>{log}; echo done >>{log}"))
    assert told == ["boot", "build", "done"]


def test_a_lab_that_does_not_end_is_ended_with_all_its_children(tmp_path: Path) -> None:
    made = make_job(tmp_path, deadline_s=0.3)
    made.folder.mkdir()
    child = tmp_path / "child"
    process = start(f"sleep 60 & echo $! >{child}; wait")
    wait_for(lambda: child.exists() and child.read_text() != "", 10, lambda: "no child")
    with pytest.raises(
        DeadlineError, match=r"^the run was ended after 0\.3 s of real time \(deadline\.real\)$"
    ):
        watch(made, process)
    assert process.returncode == -9
    assert gone(int(child.read_text()))


def test_whatever_interrupts_the_watch_ends_the_lab(tmp_path: Path) -> None:
    def interrupt(_step: str, _seconds: float) -> None:
        raise KeyboardInterrupt

    made = Job(tmp_path, "os-ken", 1, 30.0, interrupt)
    made.folder.mkdir()
    process = start(f"echo boot >{made.folder}/progress.log; exec sleep 60")
    with pytest.raises(KeyboardInterrupt):
        watch(made, process)
    assert process.returncode == -9


def test_children_that_outlive_the_lab_are_ended(job: Job, tmp_path: Path) -> None:
    watch(job, start(f"sleep 60 & echo $! >{tmp_path}/child"))
    assert gone(int((tmp_path / "child").read_text()))


def test_ending_a_group_that_has_ended_is_fine() -> None:
    process = start("exit 3")
    process.wait()
    end_group(process)
    assert process.returncode == 3


def gone(pid: int) -> bool:
    """Whether a process has ended, or ends within ten seconds (a zombie has)."""
    for _ in range(1000):
        if state_of(pid) in "XZ":
            return True
        time.sleep(0.01)
    return False


# ---- the end --------------------------------------------------------------------------


def test_a_complete_job_is_no_error(job: Job) -> None:
    (job.folder / "result.json").write_text('{"status": "complete", "reason": null}')
    result(job, "unused")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("LabError", LabError),
        ("ReadbackError", ReadbackError),
        ("DeadlineError", DeadlineError),
        ("MachineError", MachineError),
        ("defect", LabError),
    ],
)
def test_the_labs_error_comes_out_as_itself(job: Job, name: str, kind: type[Exception]) -> None:
    answer = {"status": "failed", "error": name, "reason": "leaf1: rules is 4, the plan says 5"}
    (job.folder / "result.json").write_text(json.dumps(answer))
    with pytest.raises(kind, match=r"^leaf1: rules is 4, the plan says 5$") as caught:
        result(job, "unused")
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("log", "words"),
    [(None, ""), ("", ""), ("one\nmount: permission denied\n", " (mount: permission denied)")],
)
def test_a_lab_that_left_no_word(job: Job, log: str | None, words: str) -> None:
    if log is not None:
        (job.folder / "init.log").write_text(log)
    with pytest.raises(LabError) as caught:
        result(job, "it ended with status 1")
    assert str(caught.value) == f"the lab ended without a result: it ended with status 1{words}"
