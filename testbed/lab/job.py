"""What both backends hand to the lab, and what they get back. Runs outside the lab."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.errors import DeadlineError, LabError, MachineError, ReadbackError
from testbed.lab.code import put_code
from testbed.lab.kernels import PROJECT
from testbed.signals import heard

JOB_DIR = ".lab"
"""Folder inside the record for what only the running lab needs."""

CODE = "code"
"""Folder of the project's modules in there."""

CODE_INSIDE = "/run/code"
"""Where a lab finds them: PYTHONPATH takes no path with a colon, as a record's may be."""

POLL_S = 0.02
"""How often a running lab is looked at from outside; less often when it shares the processors (native)."""

_ERRORS = {error.__name__: error for error in (LabError, ReadbackError, DeadlineError, MachineError)}


def _sleep(_process: subprocess.Popen[bytes], seconds: float) -> None:
    time.sleep(seconds)


@dataclass(frozen=True)
class Job:
    """A record directory prepared for a run, and who may be told of its progress.

    `entry` is the module that runs inside the lab and `settings` what else it is told; `terminal` is a
    descriptor to be the lab's terminal, for a job that has a person in it. `pause` fills the time between
    two looks at the running lab's process, given that and the seconds.
    """

    record: Path
    framework: str
    seed: int
    real_deadline_s: float
    on_progress: Callable[[str, float], None]
    entry: str = "testbed.run.inside"
    settings: dict[str, Any] = field(default_factory=dict)
    terminal: int | None = None
    pause: Callable[[subprocess.Popen[bytes], float], None] = _sleep

    @property
    def folder(self) -> Path:
        """The job's own folder inside the record."""
        return self.record / JOB_DIR


def inside_python() -> tuple[str, str]:
    """Return the interpreter for the lab and the folder where Mininet lives.

    Raises MachineError when Mininet cannot be found.
    """
    spec = importlib.util.find_spec("mininet")
    if spec is None or spec.origin is None:
        raise MachineError("Python cannot find mininet: install the package mininet and run scripts/setup.sh")
    python = getattr(sys, "_base_executable", sys.executable)
    return python, str(Path(spec.origin).parents[1])


def controller_python(framework: str) -> str:
    """Return the interpreter that has the controller framework; MachineError when there is none."""
    if framework == "os-ken":
        return sys.executable
    python = PROJECT / ".venv-ryu/bin/python"
    if not python.exists():
        raise MachineError(f"no Ryu in {PROJECT}/.venv-ryu: run scripts/setup.sh")
    return str(python)


def prepare(job: Job, *, record_inside: str, mounts: str, own_kernel: bool) -> None:
    """Write the job's files: what to run, and the first script of the lab.

    `record_inside` is the record's path as the lab sees it, `mounts` the shell lines that give the
    lab its own file systems; a lab with its own kernel switches that off at the end.
    """
    put_code(job.folder / CODE)
    description = {
        "controller_python": controller_python(job.framework),
        "record": record_inside,
        "power_off": own_kernel,
        **job.settings,
    }
    (job.folder / "job.json").write_text(json.dumps(description) + "\n")
    python, mininet = inside_python()
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/run",
        "TMPDIR": "/run",
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": f"{CODE_INSIDE}:{mininet}",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    settings = " ".join(f"{key}={shlex.quote(value)}" for key, value in environment.items())
    folder = shlex.quote(f"{record_inside}/{JOB_DIR}")
    program = f"{'testbed.lab.at_once ' if own_kernel else ''}{job.entry}"
    (job.folder / "init.sh").write_text(
        f"{mounts}\nexec >>{folder}/init.log 2>&1\nln -s {folder}/{CODE} {CODE_INSIDE}\n"
        "ip link set lo up\ncd /\n"
        f"exec env -i {settings} {shlex.quote(python)} -S -m {program} {folder}\n"
    )


def watch(job: Job, process: subprocess.Popen[bytes], *, poll_s: float = POLL_S) -> None:
    """Wait for the lab's process, passing progress on; end it at the real-time deadline.

    Raises DeadlineError then. Whatever happens, nothing of the process is left afterwards.
    """
    try:
        with heard():
            _await_end(job, process, poll_s)
    finally:
        end_group(process)


def _await_end(job: Job, process: subprocess.Popen[bytes], poll_s: float) -> None:
    started = time.monotonic()
    told = 0
    while process.poll() is None:
        told = _tell(job, told, time.monotonic() - started)
        if time.monotonic() - started > job.real_deadline_s:
            raise DeadlineError(
                f"the run was ended after {job.real_deadline_s:g} s of real time (deadline.real)"
            )
        job.pause(process, poll_s)
    _tell(job, told, time.monotonic() - started)


def _tell(job: Job, told: int, elapsed_s: float) -> int:
    path = job.folder / "progress.log"
    lines = path.read_text().splitlines() if path.exists() else []
    for line in lines[told:]:
        job.on_progress(line, elapsed_s)
    return len(lines)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a process's own session and reap it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def result(job: Job, otherwise: str) -> None:
    """Return if the lab says its job is complete; raise the error it reported.

    LabError with `otherwise` and the end of the lab's log when it left no word.
    """
    path = job.folder / "result.json"
    if not path.exists():
        raise LabError(f"the lab ended without a result: {otherwise}{_last_words(job)}")
    answer: dict[str, Any] = json.loads(path.read_text())
    if answer["reason"] is None:
        return
    raise _ERRORS.get(answer["error"], LabError)(answer["reason"])


def _last_words(job: Job) -> str:
    log = job.folder / "init.log"
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return f" ({lines[-1]})" if lines else ""
