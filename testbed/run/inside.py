"""The thin entry inside the lab: bring the plan up, run it, leave raw facts behind.

Started by `init.sh` in a guest kernel (backend uml) or in namespaces of its own (backend native),
with the job's folder as its only argument. Talks to the outside through files in that folder:
`progress.log` grows by a line for each step, `result.json` is written last and says how it ended.
Imports nothing that is not needed here.
"""

from __future__ import annotations

import gc
import json
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import DeadlineError, LabError, TestbedError
from testbed.lab.bringup import Lab, bring_up
from testbed.lab.hosts import device_to_bind, namespace, tcp_counters
from testbed.lab.ovs import datapath_flows
from testbed.lab.qdiscs import service_of
from testbed.lab.stages import priority_of, window_of
from testbed.lab.stray import kernel_drops, stray_drops
from testbed.lab.system import go_first, network_namespace, power_off, wait_until
from testbed.plan.codec import from_json
from testbed.plan.dilation import dilated
from testbed.plan.model import Plan, Transfer
from testbed.plan.served import open_files
from testbed.record import layout
from testbed.run.background import Background
from testbed.run.capture import Captures, capture_main
from testbed.run.departures import departures_main
from testbed.run.pauser import pauser_main
from testbed.run.probe import probe_main
from testbed.run.processor import processor_main
from testbed.run.programs import Child, Program, spawn, words_of
from topologies.model import Host
from traffic.pieces import piece_bytes
from traffic.tcp_replay import Endpoint, Flow, Replay

if TYPE_CHECKING:
    from testbed.run.roce import RoceRun
    from testbed.run.serving import ServingRun

NO_CAPTURES = Captures()

HEAD_START_NS = 5_000_000
REAL_HEAD_START_NS = 250_000_000
"""From the moment everybody is ready to the workload's epoch: in scenario time, but on a real clock no less
than it takes all programs to wake up."""

TICKS_NS = 10_000_000
"""In virtual time the epoch is at a whole number of these, so that the kernel's own clocks, which tick in
milliseconds, stand alike in every run, however long the lab took to build. Not of whole seconds: after so
long an idleness this kernel lets ordinary programs go before those that come first, until its next tick."""

DRAIN_NS = 1_000_000
"""How long queues are still sampled after the last transfer, in scenario time, or two intervals."""

POLL_S = 0.001
POLL_MAX_S = 0.05
"""How often the traffic programs are asked whether they have ended: a millisecond of scenario time, but
no less often than this. On a real clock each look takes time from the lab."""

NAMED = 5
"""So many hosts are named one by one in an error."""

GIVEN_UP = "not finished at the deadline"
"""The error of a transfer that the deadline ended."""

CALLED_OFF = "ended because paused ports hold each other in a circle"
"""The error of a transfer that a deadlock ended."""

TOO_FAST = "; or the rates are too high for this machine: raise dilation"
"""What else a missed deadline can mean on a real clock."""


def replay_program(plan: Plan, record: Path) -> Program:
    """Return the program that replays the plan's transfers and writes their outcomes."""

    def program(ready: Callable[[], None], epoch: Callable[[], int]) -> None:
        serving = _serving(plan)
        replay: Replay | RoceRun
        if serving:
            replay = serving.replay
        else:
            planned = [_flow(plan, transfer) for transfer in plan.transfers]
            roce = plan.transport.roce is not None
            replay = _roce_replay(plan, planned, record) if roce else _tcp_replay(plan, planned)
        replay.prepare()
        if plan.clock == "virtual":
            go_first()
        ready()
        epoch_ns = epoch()
        signal.signal(signal.SIGTERM, _call_off)
        try:
            if not replay.run(epoch_ns, epoch_ns + plan.deadline.scenario_ns):
                replay.close_open(GIVEN_UP)
        except _CalledOff:
            replay.close_open(CALLED_OFF)
        (record / layout.OUTCOMES).write_text(json.dumps(replay.outcomes(), indent=1) + "\n")
        if serving:
            serving.write(record)

    return program


class _CalledOff(Exception):
    """The run has to end before its traffic does."""


def _call_off(_number: int, _frame: object) -> None:
    raise _CalledOff


def _in_host(host: str) -> AbstractContextManager[None]:
    return network_namespace(namespace(host))


def _tcp_replay(plan: Plan, flows: list[Flow]) -> Replay:
    return Replay(
        flows,
        congestion_control=plan.transport.congestion_control,
        namespace=_in_host,
        dilation=plan.dilation,
        piece=piece_bytes(len(plan.transfers)),
    )


def _roce_replay(plan: Plan, flows: list[Flow], record: Path) -> RoceRun:
    # Imported here: each module's pages are paid for.
    from testbed.run.roce import RoceRun

    return RoceRun(plan, flows, record)


def _serving(plan: Plan) -> ServingRun | None:
    if plan.serving is None:
        return None
    # Imported here: it draws from the guest's entropy (`random`), which would change runs without it.
    from testbed.run.serving import ServingRun

    return ServingRun(plan, plan.serving, partial(_flow, plan), _in_host)


def _flow(plan: Plan, transfer: Transfer) -> Flow:
    src, dst = plan.topology.host(transfer.src), plan.topology.host(transfer.dst)
    return Flow(
        id=transfer.id,
        src=_endpoint(src, transfer.src_nic, transfer.src_port),
        dst=_endpoint(dst, transfer.dst_nic, transfer.dst_port),
        bytes=transfer.bytes,
        start_ns=transfer.start_ns,
        pace_bps=transfer.pace_bps,
        priority=priority_of(plan, transfer),
        service=service_of(plan, transfer),
        window_bytes=window_of(plan, transfer),
        nic_bps=plan.topology.link(src.nic(transfer.src_nic).up).rate_bps,
    )


def _endpoint(host: Host, nic: int, port: int) -> Endpoint:
    return Endpoint(host.name, host.nic(nic).ip, port, device_to_bind(host, nic))


def background_program(plan: Plan, record: Path, work_dir: Path) -> Program:
    """Return the program that runs the plan's iperf3 flows."""

    def program(ready: Callable[[], None], epoch: Callable[[], int]) -> None:
        background = Background(plan, work_dir)
        background.prepare()
        ready()
        background.run(epoch())
        (record / layout.BACKGROUND).write_text(json.dumps(background.reports(), indent=1) + "\n")

    return program


def _hosts(plan: Plan) -> str:
    """Name the hosts between which the plan's transfers go."""
    hosts = plan.topology.hosts
    receivers = [host.name for host in hosts if any(one.dst == host.name for one in plan.transfers)]
    senders = [host.name for host in hosts if any(one.src == host.name for one in plan.transfers)]
    if plan.serving:  # it decides later who sends what to whom
        return f"senders and receivers on {_some([host.name for host in hosts])}"
    return f"receivers on {_some(receivers)}, senders on {_some(senders)}"


def _some(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


class Progress:
    """Writes one line for each step, for the person outside."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._path.touch()

    def __call__(self, step: str) -> None:
        with self._path.open("a") as file:
            file.write(step + "\n")


def run_traffic(
    plan: Plan,
    lab: Lab,
    record: Path,
    work_dir: Path,
    progress: Progress,
    captures: Captures = NO_CAPTURES,
) -> None:
    """Run the workload in a lab that is up, and write everything measured."""
    logs, dropped, files = record / layout.LOGS, kernel_drops(), open_files(plan)
    gc.collect()
    gc.freeze()  # forked children touch fewer of the parent's pages
    probe = spawn("probe", partial(probe_main, plan, record), logs, files=files)
    watchers = [probe]
    if plan.measure.departures:
        watchers.append(spawn("departures", partial(departures_main, plan, record), logs))
    if plan.pausing:
        pauser: Program = partial(pauser_main, plan, record)
        watchers.append(spawn("pauses", pauser, logs, files=files))
    if plan.clock == "real":
        watchers.append(spawn("processor", partial(processor_main, record), logs))
    workers = [spawn("traffic", replay_program(plan, record), logs, _hosts(plan), files=files)]
    if plan.background:
        workers.append(spawn("background", background_program(plan, record, work_dir), logs))
    if captures.links:
        watchers.append(spawn("capture", partial(capture_main, plan, captures, record), logs))
    for child in (*watchers, *workers):
        child.wait_ready()
    epoch_ns = _epoch_ns(plan, time.monotonic_ns())
    progress("traffic")
    for child in (*watchers, *workers):
        child.go(epoch_ns)
    _await_workers(workers, watchers, lab, plan, record)
    time.sleep(max(DRAIN_NS * plan.dilation, 2 * plan.measure.interval_ns) / 1e9)
    for child in watchers:
        child.stop()
    (record / layout.DATAPATH_FLOWS).write_text(datapath_flows())
    counters = {host.name: tcp_counters(host.name) for host in plan.topology.hosts}
    (record / layout.TCP_COUNTERS).write_text(json.dumps(counters, indent=1) + "\n")
    stray = stray_drops([host.name for host in plan.topology.hosts], dropped)
    (record / layout.STRAY_DROPS).write_text(json.dumps(stray, indent=1) + "\n")
    _require_finished(plan, record)


def _captures(job: dict[str, Any]) -> Captures:
    wanted = job.get("captures")
    return Captures(tuple(wanted["links"]), wanted["snaplen"]) if wanted else Captures()


def _require_finished(plan: Plan, record: Path) -> None:
    """Raise DeadlineError when transfers were given up; what was measured of them stays."""
    outcomes = json.loads((record / layout.OUTCOMES).read_text())
    what = "transfers"
    if plan.serving:
        what, outcomes = "requests", json.loads((record / layout.REQUESTS).read_text())["requests"]
    given_up = [outcome["id"] for outcome in outcomes if outcome["error"] == GIVEN_UP]
    if given_up:
        deadline_ms = plan.deadline.scenario_ns / plan.dilation / 1e6
        ends = {transfer.id: f", {transfer.src} -> {transfer.dst}" for transfer in plan.transfers}
        raise DeadlineError(
            f"{len(given_up)} of {len(outcomes)} {what} had not ended after {deadline_ms:g} ms "
            f"of scenario time, the first is {given_up[0]}{ends.get(given_up[0], '')} "
            f"(deadline.scenario{TOO_FAST if plan.clock == 'real' else ''})"
        )


def _epoch_ns(plan: Plan, now_ns: int) -> int:
    """Return the moment at which the workload begins."""
    if plan.clock == "virtual":
        return -(-(now_ns + HEAD_START_NS) // TICKS_NS) * TICKS_NS
    return now_ns + max(round(HEAD_START_NS * plan.dilation), REAL_HEAD_START_NS)


def _await_workers(workers: list[Child], watchers: list[Child], lab: Lab, plan: Plan, record: Path) -> None:
    """Wait for all workers; the traffic itself ends at the deadline, this is the net below it."""
    left = list(workers)

    def all_ended() -> bool:
        lab.check()
        for child in watchers:
            if child.ended():
                raise LabError(f"{child.name} ended before the traffic; see logs/{child.name}.log")
        if plan.pausing and (record / layout.DEADLOCK).exists():
            _call_off_all(left)
        left[:] = [child for child in left if not child.ended()]
        return not left

    deadline_s = plan.deadline.scenario_ns / 1e9
    step_s = min(POLL_S * plan.dilation, POLL_MAX_S, deadline_s)
    wait_until(all_ended, deadline_s + 5, "the traffic programs to end", step_s=step_s)


def _call_off_all(workers: list[Child]) -> None:
    """End the traffic early, with its outcomes written; what runs beside it goes with the lab."""
    workers[:] = [child for child in workers if child.name == "traffic"]
    for child in workers:
        child.stop()
    workers.clear()


Use = Callable[[Plan, Lab, Path, Path, Progress], None]
"""What is done with a lab that is up: gets the plan, the lab, the record, a work folder and the progress."""


def run_job(job_dir: Path, job: dict[str, Any], use: Use | None = None) -> dict[str, Any]:
    """Run the job in `job_dir` and return how it ended: {"status": ..., "reason": ...}.

    The lab is put to `use`; without one, to the plan's traffic.
    """
    record = Path(job["record"])
    progress = Progress(job_dir / "progress.log")
    plan = dilated(from_json((record / layout.PLAN).read_text()))
    work_dir = Path("/run/testbed")
    work_dir.mkdir(parents=True, exist_ok=True)
    try:
        lab = bring_up(
            plan,
            controller_python=job["controller_python"],
            work_dir=work_dir,
            log_dir=record / layout.LOGS,
            progress=progress,
        )
        (record / layout.FACTS).write_text(json.dumps(lab.facts, indent=1) + "\n")
        (use or partial(run_traffic, captures=_captures(job)))(plan, lab, record, work_dir, progress)
        lab.stop()
    except DeadlineError as error:
        return {"status": layout.FAILED, "error": "DeadlineError", "reason": str(error)}
    except TestbedError as error:
        return {"status": layout.FAILED, "error": type(error).__name__, "reason": str(error)}
    except Exception as error:  # noqa: BLE001 - a defect must reach the person outside
        traceback.print_exc()
        return {"status": layout.FAILED, "error": "defect", "reason": words_of(error)}
    progress("done")
    return {"status": layout.COMPLETE, "reason": None}


def main(use: Use | None = None) -> None:
    """Run the job named on the command line, write its result and switch the guest off."""
    job_dir = Path(sys.argv[1])
    job = json.loads((job_dir / "job.json").read_text())
    result = run_job(job_dir, job, use)
    part = job_dir / "result.json.part"
    part.write_text(json.dumps(result) + "\n")
    part.rename(job_dir / "result.json")
    if job["power_off"]:
        power_off()


if __name__ == "__main__":
    main()
