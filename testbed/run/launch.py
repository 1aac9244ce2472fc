"""Runs a plan from outside: makes the record, starts the lab, watches it, closes the record.

Called by the command line. What the record means is not looked at here.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

from testbed.errors import InputError, MachineError, TestbedError
from testbed.lab.job import JOB_DIR, Job
from testbed.lab.kernels import Kernel, find_kernel
from testbed.lab.native import missing, run_native
from testbed.lab.uml import run_uml
from testbed.plan.codec import to_json
from testbed.plan.model import Plan
from testbed.record import layout
from testbed.record.writer import RecordWriter
from testbed.run.capture import Captures
from testbed.run.environment import environment

BASE_MEMORY_MB = 1024
HOST_MEMORY_MB = 16
"""Guest memory: the system, Open vSwitch, controller and programs, and for each host its buffers. Only what
is touched takes room on the machine."""

NO_CAPTURES = Captures()


class Aborted(KeyboardInterrupt):
    """The system asked the run to end, by the signal `number`; Control-C is its parent class."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


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
    if backend == "auto" and clock == "real" and not missing():
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

    Raises what the lab raises; the record then says `failed` or `aborted` and why.
    """
    kernel = find_kernel(plan.clock) if plan.backend == "uml" else None
    if kernel is None and missing():
        raise MachineError(f"the native backend cannot run here: {missing()[0]}")
    writer = RecordWriter.create(out, scenario=scenario_text, plan=to_json(plan))
    watch = Stopwatch(tell)
    settings = {"captures": asdict(captures)}
    job = adapt(Job(out, plan.framework, plan.seed, plan.deadline.real_s, watch.step, settings=settings))
    status, reason = layout.COMPLETE, None
    try:
        with termination():
            _start(job, kernel, plan)
    except TestbedError as error:
        status, reason = layout.FAILED, str(error)
        raise
    except BaseException as error:
        status, reason = layout.ABORTED, f"ended by {_cause(error)}"
        raise
    finally:
        _clear(job)
        writer.finish(status, reason, environment(plan, kernel, watch.phases(), command))


def _cause(error: BaseException) -> str:
    if isinstance(error, Aborted):
        return signal.Signals(error.number).name
    return "SIGINT" if isinstance(error, KeyboardInterrupt) else type(error).__name__


def _start(job: Job, kernel: Kernel | None, plan: Plan) -> None:
    if kernel is None:
        run_native(job)
    else:
        run_uml(job, kernel, BASE_MEMORY_MB + HOST_MEMORY_MB * len(plan.topology.nics))


@contextmanager
def termination() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into `Aborted`, so that what was begun is ended and closed in order."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Aborted(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _clear(job: Job) -> None:
    """Keep the lab's first log, remove the rest of the job's folder."""
    log = job.folder / "init.log"
    if log.exists() and log.stat().st_size:
        log.rename(job.record / layout.log("inside"))
    shutil.rmtree(job.record / JOB_DIR, ignore_errors=True)
