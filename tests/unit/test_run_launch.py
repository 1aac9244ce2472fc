"""A run seen from outside: which backend, what the record says at each kind of end, and where time went."""

from __future__ import annotations

import json
import os
import pkgutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import DeadlineError, LabError, MachineError
from testbed.lab.guest_memory import Memory
from testbed.lab.job import Job
from testbed.lab.kernels import Kernel
from testbed.lab.preflight import require_native
from testbed.plan.codec import from_json
from testbed.record import layout
from testbed.record.writer import abandoned
from testbed.run import launch
from testbed.run.launch import Stopwatch, resolve_backend, run_plan
from testbed.run.needs import needs_of
from testbed.signals import Aborted
from tests.support.lab import small_plan
from tests.support.machine import FakeMachine

KERNEL = Kernel(Path("/cache/0123/linux"), "6.12.1-kv", True, Path("/cache/shim.so"), "0123")


# ---- the clock of a run ---------------------------------------------------------------


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(launch.time, "monotonic", clock)
    return clock


def watched(clock: Clock, steps: list[tuple[float, str]]) -> tuple[Stopwatch, list[tuple[str, float]]]:
    told: list[tuple[str, float]] = []
    watch = Stopwatch(lambda name, seconds: told.append((name, seconds)), started=100.0)
    for moment, name in steps:
        clock.now = 100.0 + moment
        watch.step(name)
    return watch, told


def test_phases_of_a_whole_run(clock: Clock) -> None:
    steps = [(0.5, "open vswitch"), (1.0, "controller"), (3.25, "traffic"), (5.0, "done")]
    watch, told = watched(clock, steps)
    clock.now = 106.0
    assert watch.phases() == {"boot_s": 0.5, "build_s": 2.75, "traffic_s": 1.75, "lab_s": 6.0}
    assert told == [(name, moment) for moment, name in steps]


@pytest.mark.parametrize(
    ("steps", "phases"),
    [
        ([], (2.0, 0.0, 0.0)),
        ([(0.5, "open vswitch")], (0.5, 1.5, 0.0)),
        ([(0.5, "open vswitch"), (1.0, "traffic")], (0.5, 0.5, 1.0)),
    ],
)
def test_phases_of_a_run_that_ended_early(
    clock: Clock, steps: list[tuple[float, str]], phases: tuple[float, float, float]
) -> None:
    watch, _ = watched(clock, steps)
    clock.now = 102.0
    found = watch.phases()
    assert (found["boot_s"], found["build_s"], found["traffic_s"]) == phases
    assert found["lab_s"] == 2.0


# ---- backends -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "clock", "native_works", "resolved"),
    [
        ("auto", None, True, ("uml", "virtual")),
        ("auto", "virtual", True, ("uml", "virtual")),
        ("auto", "real", True, ("native", "real")),
        ("auto", "real", False, ("uml", "real")),
        ("uml", None, True, ("uml", "virtual")),
        ("uml", "real", True, ("uml", "real")),
        ("native", None, False, ("native", "real")),
        ("native", "real", False, ("native", "real")),
    ],
)
def test_the_backend_for_what_was_asked(
    backend: str,
    clock: str | None,
    native_works: bool,
    resolved: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launch, "problems", lambda _: [] if native_works else ["no root: use sudo"])
    assert resolve_backend(backend, clock) == resolved


# ---- runs -----------------------------------------------------------------------------


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A machine with a kernel, and a lab that does what `behave` says."""
    known: dict[str, Any] = {"behave": lambda job: None, "memory": None}

    def run_uml(job: Job, kernel: Kernel, memory: Memory) -> None:
        known["memory"] = memory
        job.folder.mkdir()
        (job.folder / "init.log").write_text(known.get("log", ""))
        known["behave"](job)

    monkeypatch.setattr(launch, "find_kernel", lambda clock: KERNEL)
    monkeypatch.setattr(launch, "run_uml", run_uml)
    return known


def start(out: Path, told: list[str] | None = None) -> None:
    steps = [] if told is None else told
    run_plan(small_plan(), "name: small\n", out, lambda name, seconds: steps.append(name))


def manifest(out: Path) -> tuple[str, str | None]:
    value = json.loads((out / layout.MANIFEST).read_text())
    return value["status"], value["reason"]


def test_a_run_leaves_a_complete_record(tmp_path: Path, lab: dict[str, Any]) -> None:
    told: list[str] = []
    lab["behave"] = lambda job: job.on_progress("traffic", 1.0)
    start(tmp_path, told)
    assert manifest(tmp_path) == ("complete", None)
    assert told == ["traffic"]
    assert from_json((tmp_path / layout.PLAN).read_text()) == small_plan()
    assert (tmp_path / layout.SCENARIO).read_text() == "name: small\n"
    assert not (tmp_path / ".lab").exists()
    assert lab["memory"].mebibytes == needs_of(small_plan()).memory_mib
    environment = json.loads((tmp_path / layout.ENVIRONMENT).read_text())
    assert (environment["kernel"]["version"], environment["kernel"]["key"]) == ("6.12.1-kv", "0123")
    assert environment["machine"]["processors"] == os.cpu_count()
    assert (environment["scenario"], environment["resolved_scenario"]) == ("small", "name: small\n")
    assert environment["memory"] == {"guest_mib": lab["memory"].mebibytes, "touched_mib": 0}
    assert set(environment["seconds"]) == {"boot_s", "build_s", "traffic_s", "lab_s"}


@pytest.mark.parametrize(("said", "logs"), [("", []), ("mount: no\n", ["inside.log"])])
def test_what_the_lab_said_is_kept_where_it_said_something(
    tmp_path: Path, lab: dict[str, Any], said: str, logs: list[str]
) -> None:
    lab["log"] = said
    start(tmp_path)
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == logs


def raising(error: BaseException) -> Any:
    def behave(_job: Job) -> None:
        raise error

    return behave


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (DeadlineError("it took too long"), "failed", "it took too long"),
        (KeyboardInterrupt(), "aborted", "ended by SIGINT"),
        (Aborted(signal.SIGHUP), "aborted", "ended by SIGHUP"),
        (ZeroDivisionError("x"), "aborted", "ended by ZeroDivisionError"),
    ],
)
def test_the_record_says_how_a_run_ended(
    tmp_path: Path, lab: dict[str, Any], error: BaseException, status: str, reason: str
) -> None:
    lab["behave"] = raising(error)
    with pytest.raises(type(error)):
        start(tmp_path)
    assert manifest(tmp_path) == (status, reason)
    assert not (tmp_path / ".lab").exists()


def test_a_signal_ends_the_run_and_closes_the_record(tmp_path: Path, lab: dict[str, Any]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    lab["behave"] = lambda job: signal.raise_signal(signal.SIGTERM)
    with pytest.raises(Aborted) as caught:
        start(tmp_path / "out")
    assert caught.value.number == signal.SIGTERM
    assert manifest(tmp_path / "out") == ("aborted", "ended by SIGTERM")
    assert signal.getsignal(signal.SIGTERM) is before
    assert abandoned(tmp_path) == []


def on_call(monkeypatch: pytest.MonkeyPatch, name: str, action: Callable[[], object]) -> None:
    """Do `action` whenever the function or method `name` is called, before it."""
    module, _, attribute = name.partition(":")
    owner = pkgutil.resolve_name(module)
    before = getattr(owner, attribute)

    def called(*arguments: Any, **named: Any) -> Any:
        action()
        return before(*arguments, **named)

    monkeypatch.setattr(owner, attribute, called)


def terminate() -> None:
    signal.raise_signal(signal.SIGTERM)


def test_a_signal_while_the_record_is_begun_leaves_it_closed(
    tmp_path: Path, lab: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Job] = []
    lab["behave"] = started.append
    on_call(monkeypatch, "testbed.record.writer:_empty", terminate)
    with pytest.raises(Aborted):
        start(tmp_path)
    assert started == []
    assert manifest(tmp_path) == ("aborted", "ended by SIGTERM")


@pytest.mark.parametrize("step", ["run.launch:_clear", "run.launch:environment", "record.writer:_digest"])
def test_a_signal_while_the_record_is_closed_waits_for_that(
    tmp_path: Path, lab: dict[str, Any], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    on_call(monkeypatch, f"testbed.{step}", terminate)
    with pytest.raises(Aborted):
        start(tmp_path)
    assert manifest(tmp_path) == ("complete", None)
    assert not (tmp_path / ".lab").exists()


FULL = "cannot be written: No space left on device; make room there, or give another folder"


def fill(job: Job) -> None:
    """Stand for a file system that takes no more."""
    (job.record / "tried.part").symlink_to("/dev/full")


@pytest.mark.parametrize(
    "error",
    [LabError("probe failed with status 1"), OSError(28, "No space left on device"), DeadlineError("late")],
)
def test_a_run_that_found_no_room_says_so_and_where(
    tmp_path: Path, lab: dict[str, Any], error: Exception
) -> None:
    def behave(job: Job) -> None:
        fill(job)
        raise error

    lab["behave"] = behave
    with pytest.raises(LabError) as caught:
        start(tmp_path)
    assert str(caught.value) == f"{tmp_path}: {FULL}"
    assert caught.value.__cause__ is error
    assert manifest(tmp_path) == ("failed", f"{tmp_path}: {FULL}")


def test_a_file_that_could_not_be_written_though_there_is_room(tmp_path: Path, lab: dict[str, Any]) -> None:
    lab["behave"] = raising(PermissionError(13, "Permission denied"))
    with pytest.raises(LabError) as caught:
        start(tmp_path)
    reason = f"{tmp_path}: cannot be written: Permission denied; make it writable, or give another folder"
    assert str(caught.value) == reason
    assert manifest(tmp_path) == ("failed", reason)


def test_a_file_of_somewhere_else_is_named_without_a_remedy(tmp_path: Path, lab: dict[str, Any]) -> None:
    lab["behave"] = raising(FileNotFoundError(2, "No such file or directory", "/proc/1/environ"))
    with pytest.raises(LabError, match=r"^/proc/1/environ: No such file or directory$"):
        start(tmp_path)
    assert manifest(tmp_path) == ("failed", "/proc/1/environ: No such file or directory")


@pytest.mark.parametrize("inside", [True, False])
def test_what_lies_in_the_record_cannot_be_written(tmp_path: Path, lab: dict[str, Any], inside: bool) -> None:
    place = tmp_path / "raw" / "facts.json" if inside else tmp_path
    lab["behave"] = raising(OSError(28, "No space left on device", str(place) if inside else None))
    with pytest.raises(LabError) as caught:
        start(tmp_path)
    assert str(caught.value) == f"{place}: {FULL}"


def test_a_record_that_cannot_be_closed_goes_on_to_say_running(
    tmp_path: Path, lab: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "record"

    def full() -> None:
        raise OSError(28, "No space left on device")

    on_call(monkeypatch, "testbed.record.writer:_digest", full)
    with pytest.raises(LabError) as caught:
        start(out)
    assert str(caught.value) == f"{out}: {FULL}"
    assert manifest(out) == ("running", None)
    (left,) = abandoned(tmp_path)  # nobody holds its lock
    left.give_up("")


def test_without_a_kernel_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing_kernel(_clock: str) -> Kernel:
        raise MachineError("no kernel: run scripts/build-kernel.sh")

    monkeypatch.setattr(launch, "find_kernel", missing_kernel)
    with pytest.raises(MachineError, match=r"^no kernel: run scripts/build-kernel\.sh$"):
        start(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_where_native_cannot_run_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = partial(require_native, FakeMachine(lacks={"unshare"}))
    monkeypatch.setattr(launch, "require_native", lacking)
    plan = small_plan(clock="real", backend="native")
    with pytest.raises(MachineError, match=r"^the native backend cannot run here: no unshare: "):
        run_plan(plan, "", tmp_path / "out", lambda name, seconds: None)
    assert not (tmp_path / "out").exists()
