"""The command `testbed`: reads what was typed, calls the stages in order, and turns errors into exit codes.

0 done, 1 an expectation failed, 2 bad input, 3 the lab or the machine, 4 finished but not valid.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from testbed.errors import ExpectationError, InputError, MeasurementError, TestbedError
from testbed.progress import Progress, write
from testbed.record.files import REFUSALS, refused
from testbed.screen import open_streams, printable, say, shortened
from testbed.signals import scratch_folder, termination
from testbed.units import whole_number

RUNS = Path("runs")
SEED = whole_number(0, 2**63 - 1)
"""Reads a seed of the command line."""
DAMAGE_NAMED = 3
"""So many damaged files of a record are named in an error; the report has all."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see `{self.prog} --help`")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    # Read here and not with this file: until `main` runs, a signal ends the program by a traceback.
    from testbed.bench.commands import add_commands as add_bench
    from testbed.clocks.commands import add_clocks
    from testbed.regress.commands import add_commands
    from testbed.repeat.commands import add_commands as add_rerun
    from testbed.repeat.commands import add_run_options
    from testbed.validation.commands import add_commands as add_validation

    parser = _Parser(prog="testbed", description="Which stretch of the path held up the first token?")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    _add(commands, "list", "the shipped scenarios", _list, as_json=True)
    doctor = _add(commands, "doctor", "what this machine has and lacks", _doctor, as_json=True)
    doctor.add_argument(
        "--budget", action="store_true", help="measure what it forwards on a real clock, for `plan`"
    )
    plan = _add(commands, "plan", "all that would happen; starts nothing", _plan, as_json=True)
    _add_scenario(plan)
    plan.add_argument("--nixl", metavar="DIR", type=Path, help="write the transfers as NIXL's matrices")
    run = _add(commands, "run", "run a scenario and explain it", _run, as_json=True)
    _add_scenario(run)
    run.add_argument("--out", type=Path, help="the record's folder (default: runs/<name>-<seed>-<hash>)")
    run.add_argument(
        "--allow-invalid", action="store_true", help="exit 0 though the measurement is not valid"
    )
    run.add_argument(
        "--capture",
        metavar="LINK",
        action="append",
        default=[],
        help="write what leaves through a link as pcapng",
    )
    run.add_argument(
        "--snaplen",
        metavar="BYTES",
        type=whole_number(64, 65_535),
        default=65_535,
        help="bytes kept of each captured packet",
    )
    add_run_options(run)
    shell = _add(commands, "shell", "Mininet's prompt in the running lab of a scenario", _shell)
    _add_scenario(shell)
    report = _add(commands, "report", "analysis and page again, from a record", _report, as_json=True)
    report.add_argument("record", metavar="DIR", type=Path, help="a record's folder")
    add_commands(partial(_add, commands), SEED)
    add_validation(partial(_add, commands))
    add_rerun(partial(_add, commands))
    add_clocks(partial(_add, commands))
    add_bench(partial(_add, commands))
    clean = _add(commands, "clean", "remove what interrupted runs left behind", _clean)
    clean.add_argument(
        "folder", metavar="DIR", type=Path, nargs="?", default=RUNS, help="where runs are kept"
    )
    return parser


def _add(
    commands: Any, name: str, text: str, action: Callable[..., int], *, as_json: bool = False
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(action=action)
    if as_json:
        parser.add_argument("--json", action="store_true", help="print only JSON on standard output")
    return parser


def _add_scenario(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", metavar="S", help="a shipped scenario's name, or a file")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="change one value of the scenario"
    )
    parser.add_argument("--seed", type=SEED, default=1, help="chooses everything random (default 1)")
    parser.add_argument("--backend", choices=["auto", "native", "uml"], default="auto")
    parser.add_argument("--clock", choices=["virtual", "real"], help="default: virtual where it can be had")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    if arguments is None:
        open_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    with termination(last=arguments is None):
        try:
            options = build_parser().parse_args(words)
            options.words = ("testbed", *words)
            return int(options.action(options))
        except TestbedError as error:
            if "--debug" in words:
                raise
            write(printable(f"testbed: {error}\n"))
            return error.exit_code
        except KeyboardInterrupt as error:
            number = signal.Signals(getattr(error, "number", signal.SIGINT))  # `signals.Aborted` has one
            write(f"testbed: ended by {number.name}\n")
            return 128 + number
        except BrokenPipeError:
            sys.stderr.close()
            return 141
        except OSError as error:
            if "--debug" in words or not (error.errno in REFUSALS or error.filename):
                raise
            said = _of_a_file(error)
            write(printable(f"testbed: {said}\n"))
            return said.exit_code


def _of_a_file(error: OSError) -> TestbedError:
    """Return what is said of a file that cannot be used: its name is to blame, or what it lies on."""
    name = shortened(str(error.filename or "a file"))
    if error.errno in REFUSALS:
        return refused(name, error)
    return InputError(f"{name}: cannot be used: {error.strerror}")


# ---- commands -------------------------------------------------------------------------


def _list(options: argparse.Namespace) -> int:
    from testbed.scenario import shipped_scenarios

    scenarios = shipped_scenarios()
    if options.json:
        print(json.dumps([{"name": name, "description": text} for name, text in scenarios], indent=1))
        return 0
    width = max(len(name) for name, _ in scenarios)
    for name, text in scenarios:
        print(f"{name:{width}}  {text}")
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from testbed.doctor import run_doctor

    if options.budget:
        return _budget(options)
    return run_doctor(options.json, _boot_check)


def _budget(options: argparse.Namespace) -> int:
    """Measure this machine's budget of packets on a real clock."""
    from dataclasses import asdict

    from testbed.run.calibrate import measure
    from testbed.run.launch import resolve_backend

    backend, _ = resolve_backend("auto", "real")
    progress = Progress(quiet=options.json)
    try:
        budget = measure(backend, progress.step)
    finally:
        progress.end()
    print(json.dumps(asdict(budget)) if options.json else f"{backend}, real clock: {budget.words}")
    return 0


def _boot_check() -> None:
    """Boot a guest kernel for real: the one with virtual time, or else the distribution's."""
    from testbed.errors import MachineError
    from testbed.lab.kernels import find_kernel
    from testbed.lab.uml import check_boot

    try:
        kernel = find_kernel("virtual")
    except MachineError:
        kernel = find_kernel("real")
    with scratch_folder("doctor") as folder:
        check_boot(kernel, folder)


def _make_plan(options: argparse.Namespace) -> tuple[Any, Any]:
    from testbed.plan.build import build_plan
    from testbed.run.launch import resolve_backend
    from testbed.scenario import load_scenario

    scenario = load_scenario(options.scenario, options.set)
    backend, clock = resolve_backend(options.backend, options.clock)
    return scenario, build_plan(scenario, seed=options.seed, backend=backend, clock=clock)


def _plan(options: argparse.Namespace) -> int:
    from testbed.plan.codec import to_json
    from testbed.run.needs import needs_of
    from testbed.run.room import obstacles, require_memory
    from testbed.terminal import plan_text

    _, plan = _make_plan(options)
    if options.nixl is not None:
        from testbed.plan.matrices import write_matrices

        write_matrices(plan, options.nixl)
    say(to_json(plan) if options.json else plan_text(plan, needs_of(plan)))
    if plan.clock == "real" and not options.json:
        from testbed.plan.budget import advice
        from testbed.plan.timers import own_time
        from testbed.run.calibrate import known

        for sentence in filter(None, (advice(plan, known(plan.backend)), own_time(plan))):
            print("\n".join(textwrap.wrap(sentence, 78, initial_indent="  ")))
    require_memory(plan)
    for obstacle in obstacles(plan, RUNS):
        write(printable(f"testbed: `run` would refuse this: {obstacle}\n"))
    return 0


def _run(options: argparse.Namespace) -> int:
    from testbed.plan.codec import plan_hash
    from testbed.repeat.commands import run_seeds, run_twice
    from testbed.run.launch import run_plan
    from testbed.scenario.dump import scenario_yaml

    scenario, plan = _make_plan(options)
    captures = _captures(plan, options)
    if options.seeds > 1:
        if options.capture:
            raise InputError("--capture is for one run; leave --seeds out")
        several = RUNS / f"{plan.scenario}-{plan.seed}-to-{plan.seed + options.seeds - 1}-{plan_hash(plan)}"
        return run_seeds(options, plan, options.out or several)
    if options.twice and plan.clock != "virtual":
        raise InputError("--twice needs the virtual clock; on a real clock no two runs are the same")
    # A capture takes part in the lab and moves exact values a little: its record is another one.
    captured = "-captured" if options.capture else ""
    out = options.out or RUNS / f"{plan.scenario}-{plan.seed}-{plan_hash(plan)}{captured}"
    progress = Progress(quiet=options.json)
    try:
        run_plan(plan, scenario_yaml(scenario), out, progress.step, command=options.words, captures=captures)
    finally:
        progress.end()
    differs = run_twice(plan, scenario_yaml(scenario), out, progress, captures) if options.twice else None
    try:
        return _conclude(out, options, scenario.expect_places, allow_invalid=options.allow_invalid)
    finally:  # also where an expectation failed
        if options.twice:
            _conclude_twice(differs, options)


def _conclude_twice(differs: str | None, options: argparse.Namespace) -> None:
    """Say what came of the second run; MeasurementError where it differs."""
    if not options.json:
        say(f"  twice       {differs or 'the second run gave the same bytes'}")
    if differs and not options.allow_invalid:
        raise MeasurementError(f"the second run differs: {differs}")


def _captures(plan: Any, options: argparse.Namespace) -> Any:
    """Return what is to be captured; InputError for a link that the scenario does not have."""
    from testbed.run.capture import Captures
    from testbed.scenario.problems import nearest

    cables = [link.name for link in plan.topology.links]
    for name in options.capture:
        if name not in cables:
            wrong = f"--capture {name}: is no cable of {plan.scenario}; one is {cables[0]}"
            raise InputError(wrong + nearest(name, cables))
    return Captures(tuple(dict.fromkeys(options.capture)), options.snaplen)


def _shell(options: argparse.Namespace) -> int:
    from testbed.run.shell import read_commands, run_shell
    from testbed.scenario.dump import scenario_yaml

    scenario, plan = _make_plan(options)
    commands = read_commands(sys.stdin, sys.stdout)
    out = RUNS / f"shell-{plan.scenario}-{os.getpid()}"
    progress = Progress(quiet=False)

    def tell(step: str, elapsed_s: float) -> None:
        if step == "prompt":
            progress.end()
        else:
            progress.step(step, elapsed_s)

    try:
        run_shell(plan, scenario_yaml(scenario), out, tell, commands)
    finally:
        progress.end()
    return 0


def _report(options: argparse.Namespace) -> int:
    from testbed.record.writer import in_use

    if not options.record.is_dir():
        raise InputError(f"{options.record}: no such folder; give a record's, as runs/incast-1-...")
    if in_use(options.record):
        raise InputError(f"{options.record}: a run is still writing there; wait for its end")
    return _conclude(options.record, options, (), allow_invalid=True)


def _conclude(out: Path, options: argparse.Namespace, places: Sequence[str], *, allow_invalid: bool) -> int:
    """Analyse a record, write its outputs, print them, and return the exit code they mean.

    `places` are those of the expectations, as `file:line`, where they are known.
    """
    from testbed.checks import evaluate
    from testbed.record import layout
    from testbed.report.outputs import make_outputs
    from testbed.terminal import summary_text

    record, summary = make_outputs(out)
    ended = record.manifest.get("status") == layout.COMPLETE
    results = evaluate(record.plan.expectations, summary) if ended else []  # or they say nothing of the run
    if options.json:
        print((out / "summary.json").read_text(), end="")
    else:
        say(summary_text(summary, results, out))
    if record.damage:
        raise MeasurementError(f"{out}: the record is damaged: {'; '.join(record.damage[:DAMAGE_NAMED])}")
    if not summary["fidelity"]["valid"] and not allow_invalid:
        raise MeasurementError(f"the measurement is not valid: {summary['fidelity']['reasons'][0]}")
    failed = next((number for number, result in enumerate(results) if not result.ok), None)
    if failed is not None:
        at = f"{places[failed]}: " if places else ""
        result = results[failed]
        raise ExpectationError(f"{at}expected {result.expectation}, measured {result.measured}")
    return 0


def _clean(options: argparse.Namespace) -> int:
    """Remove the leftovers of runs that were killed, and say so; records themselves stay."""
    from testbed.record.writer import abandoned

    if not options.folder.exists():
        say(f"nothing to clean: there is no {options.folder}")
        return 0
    found = abandoned(options.folder)
    for writer in found:
        shutil.rmtree(writer.path / ".lab", ignore_errors=True)
        writer.give_up("the run was killed; found by `testbed clean`")
        say(f"{writer.path}: marked as aborted, temporary files removed")
    if not found:
        say(f"nothing to clean in {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
