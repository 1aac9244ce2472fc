"""Runs a plan from outside: makes the record, starts the lab, watches it, closes the record.

Called by the command line. What the record means is not looked at here.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from testbed.errors import InputError, LabError, TestbedError
from testbed.lab.guest_memory import READ_MOST_BYTES, Memory, Watch
from testbed.lab.job import JOB_DIR, Job
from testbed.lab.kernels import Kernel, find_kernel
from testbed.lab.native import run_native
from testbed.lab.preflight import problems, require_native
from testbed.lab.uml import run_uml
from testbed.machine import Machine
from testbed.plan.codec import to_json
from testbed.plan.model import Plan
from testbed.record import layout
from testbed.record.files import refusal, refused
from testbed.record.writer import RecordWriter
from testbed.run.capture import Captures
from testbed.run.environment import environment
from testbed.run.room import require_room
from testbed.signals import Aborted, held, obey, termination

PLAN_READS = 8
"""A guest reads its plan once, and outcomes that are no longer: several times as much is no shortage."""

NO_CAPTURES = Captures()


@dataclass
class Stopwatch:
    """Notes when each step of a run began, in seconds since its start."""

    tell: Callable[[str, float], None]
    steps: list[tuple[str, float]] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def step(self, name: str, _seconds: float = 0.0) -> None:
        """Note the step and tell the person."""
        elapsed = time.monotonic() - self.started
        self.steps.append((name, elapsed))
        self.tell(name, elapsed)

    def phases(self) -> dict[str, float]:
        """Return the seconds spent on booting, building the lab and traffic, as far as they came."""
        moments = dict(self.steps)
        end = time.monotonic() - self.started
        boot = moments.get("open vswitch", end)
        build = moments.get("traffic", end)
        done = moments.get("done", end)
        return {
            "boot_s": round(boot, 3),
            "build_s": round(build - boot, 3),
            "traffic_s": round(done - build, 3),
            "lab_s": round(end, 3),
        }


def resolve_backend(backend: str, clock: str | None) -> tuple[str, str]:
    """Return backend and clock for what was asked; `auto` prefers virtual time.

    Raises InputError for a clock that the backend does not have.
    """
    if backend == "native":
        if clock == "virtual":
            raise InputError("--backend native has the real clock only; virtual time needs --backend uml")
        return "native", "real"
    if backend == "auto" and clock == "real" and not problems(Machine()):
        return "native", "real"
    return "uml", clock or "virtual"


def run_plan(
    plan: Plan,
    scenario_text: str,
    out: Path,
    tell: Callable[[str, float], None],
    adapt: Callable[[Job], Job] = lambda job: job,
    command: Sequence[str] = (),
    captures: Captures = NO_CAPTURES,
) -> None:
    """Run `plan` and leave its record in `out`, with a capture of each link that is asked for. `adapt` may
    change the job that the lab gets; `command` are the words a person typed.

    Raises what the lab raises; the record then says `failed` or `aborted` and why. LabError when the record
    cannot be written.
    """
    kernel = find_kernel(plan.clock) if plan.backend == "uml" else None
    if kernel is None:
        require_native()
    watch = Stopwatch(tell)
    settings = {"captures": asdict(captures)}
    memory = require_room(plan, out)
    job = Job(out, plan.framework, plan.seed, plan.deadline.real_s, watch.step, settings=settings)
    # A signal ends the lab, and nothing else in here: a record is not left half made or half closed.
    with termination(), held():
        writer = RecordWriter.create(out, scenario=scenario_text, plan=to_json(plan))
        failure: BaseException | None = None
        looks = Watch(job.pause)
        try:
            obey()
            job = adapt(job)
            looks = _watch(job)
            _start(job, kernel, memory, looks)
            obey()
        except BaseException as error:  # noqa: BLE001 - whatever ends a run stands in its record
            failure = _without_room(out, error)
        _clear(job)
        try:
            facts = environment(plan, scenario_text, kernel, watch.phases(), command)
            writer.finish(*_end(failure), facts | _memory_facts(memory, looks))
        except OSError as error:
            failure = failure or refused(out, error)
        if failure is not None:
            raise failure


def _without_room(out: Path, error: BaseException) -> BaseException:
    """Return the error that ended a run; where nothing more can be written, that is the one.

    The lab writes through the machine's files: what fails there for want of room fails in many ways.
    """
    if isinstance(error, OSError):
        place = Path(str(error.filename or out))
        if place.resolve().is_relative_to(out.resolve()):
            lost = refused(place, error)
        else:
            lost = LabError(f"{place}: {error.strerror}")  # not the record's; what to do is not known
    else:
        found = refusal(out) if isinstance(error, TestbedError) else None
        if found is None:
            return error
        lost = refused(out, found)
    lost.__cause__ = error
    return lost


def _end(failure: BaseException | None) -> tuple[str, str | None]:
    """Return what a record says of its run's end: its status and the reason."""
    if failure is None:
        return layout.COMPLETE, None
    if isinstance(failure, TestbedError):
        return layout.FAILED, str(failure)
    if isinstance(failure, Aborted):
        cause = signal.Signals(failure.number).name
    else:
        cause = "SIGINT" if isinstance(failure, KeyboardInterrupt) else type(failure).__name__
    return layout.ABORTED, f"ended by {cause}"


def _watch(job: Job) -> Watch:
    """Return what looks at the guest's memory. The lab's own entry reads programs and the plan; what a person
    at its prompt reads is not known."""
    if job.entry != Job.entry:
        return Watch(job.pause, None)
    return Watch(job.pause, READ_MOST_BYTES + PLAN_READS * (job.record / layout.PLAN).stat().st_size)


def _start(job: Job, kernel: Kernel | None, memory: Memory | None, looks: Watch) -> None:
    if kernel is None or memory is None:
        run_native(job)
    else:
        try:
            run_uml(replace(job, pause=looks.pause), kernel, memory)
        except LabError as error:
            raise looks.name_full(memory, error) from error.__cause__


def _memory_facts(memory: Memory | None, looks: Watch) -> dict[str, Any]:
    if memory is None:
        return {}
    return {"memory": {"guest_mib": memory.mebibytes, "touched_mib": looks.peak_bytes >> 20}}


def _clear(job: Job) -> None:
    """Keep the lab's first log, remove the rest of the job's folder."""
    log = job.folder / "init.log"
    if log.exists() and log.stat().st_size:
        log.rename(job.record / layout.log("inside"))
    shutil.rmtree(job.record / JOB_DIR, ignore_errors=True)
