"""The command line: what it refuses, its exit codes, and what goes to which output. No lab is started."""

from __future__ import annotations

import argparse
import errno
import io
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import testbed.run.launch as launch
from testbed import cli
from testbed.cli import main
from testbed.errors import LabError, MachineError, ReadbackError
from testbed.lab.kernels import PROJECT
from testbed.plan.codec import from_json
from testbed.record import layout
from testbed.record.writer import RecordWriter
from testbed.signals import Aborted
from tests.support.lab import DATA
from tests.support.synthetic import MIB, baseline, edit_json, incast, write_record

SMALL = str(DATA / "small.yaml")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every command runs in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Output:
    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def of(self, *words: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        status = main(words)
        return (status, *self._capture.readouterr())


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]) -> Output:
    return Output(capsys)


# ---- what is refused ------------------------------------------------------------------

SEED = "is no whole number from 0 to 9223372036854775807"
REFUSED = [
    (("run", SMALL, "--sed", "1"), "unrecognized arguments: --sed 1; see `testbed --help`"),
    (("run",), "the following arguments are required: S; see `testbed run --help`"),
    (("run", SMALL, "--seed", "-1"), f"argument --seed: '-1' {SEED}; see `testbed run --help`"),
    (("run", SMALL, "--seed", "x"), f"argument --seed: 'x' {SEED}; see `testbed run --help`"),
    (("run", SMALL, "--seed", "1.0"), f"argument --seed: '1.0' {SEED}; see `testbed run --help`"),
    (("run", SMALL, "--seed", "٣"), f"argument --seed: '٣' {SEED}; see `testbed run --help`"),
    (
        ("run", SMALL, "--seed", "9223372036854775808"),
        f"argument --seed: '9223372036854775808' {SEED}; see `testbed run --help`",
    ),
    (
        ("run", SMALL, "--clock", "fast"),
        "argument --clock: invalid choice: 'fast' (choose from 'virtual', 'real'); see `testbed run --help`",
    ),
    ((), "the following arguments are required: COMMAND; see `testbed --help`"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=lambda value: " ".join(value)[:30])
def test_bad_words_are_refused_with_one_line(output: Output, words: tuple[str, ...], message: str) -> None:
    assert output.of(*words) == (2, "", f"testbed: {message}\n")


def test_the_smallest_and_the_largest_seed_are_fine(output: Output) -> None:
    for seed in ("0", "9223372036854775807"):
        status, text, _ = output.of("plan", SMALL, "--seed", seed, "--json")
        assert (status, from_json(text).seed) == (0, int(seed))


BAD_SETS = ["fabric.leafs=2", "fabric.leaves", "fabric.host_link.rate=100", "fabric.leaves=x"]


@pytest.mark.parametrize("change", BAD_SETS)
def test_a_bad_change_of_the_scenario_is_refused_and_starts_nothing(
    output: Output, change: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "run_plan", lambda *_: pytest.fail("started"))
    status, text, error = output.of("run", SMALL, "--set", change)
    assert (status, text, error.count("\n")) == (2, "", 1)
    assert error.startswith("testbed: --set ")
    assert list(folder.iterdir()) == []


def test_an_unknown_scenario_is_refused(output: Output) -> None:
    status, text, error = output.of("plan", "incats")
    assert (status, text, error.count("\n")) == (2, "", 1)
    assert "incast" in error


@pytest.mark.parametrize("words", [("report", "nowhere"), ("report", ".")])
def test_a_folder_that_is_no_record_is_refused(output: Output, words: tuple[str, ...]) -> None:
    status, text, error = output.of(*words)
    assert (status, text, error.count("\n")) == (2, "", 1)


def test_debug_shows_where_an_error_comes_from() -> None:
    with pytest.raises(cli.InputError):
        main(["--debug", "plan", "no-such-scenario"])


# ---- run and report -------------------------------------------------------------------


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stands in for the lab: `case` is what it measures, `edit` changes the plan, `error` what it raises."""
    known: dict[str, Any] = {"case": incast(size=2 * MIB), "edit": None, "error": None, "plans": []}

    def run_plan(
        plan: Any, scenario: str, out: Path, tell: Any, command: Any = (), captures: Any = ()
    ) -> None:
        known["plans"].append((plan, scenario, out))
        tell("open vswitch", 0.5)
        if known["error"]:
            raise known["error"]
        write_record(out, known["case"])
        if known["edit"]:
            edit_json(out, *known["edit"])

    monkeypatch.setattr(launch, "run_plan", run_plan)
    return known


def expecting(*texts: str) -> tuple[str, Any]:
    def edit(plan: dict[str, Any]) -> None:
        plan["expectations"] = list(texts)

    return layout.PLAN, edit


def invalidate(facts: dict[str, Any]) -> None:
    facts["readback"][0]["ok"] = False


def test_a_run_that_went_well(output: Output, runs: dict[str, Any], folder: Path) -> None:
    status, text, error = output.of("run", SMALL, "--seed", "7")
    assert status == 0
    ((plan, scenario, out),) = runs["plans"]
    assert (plan.scenario, plan.seed, plan.backend, plan.clock) == ("small", 7, "uml", "virtual")
    assert out.parent == Path("runs")
    assert out.name.startswith("small-7-")
    assert scenario.startswith("name: small\n")
    assert text.splitlines()[-1] == f"  report      {out}/report.html"
    assert max(map(len, text.splitlines()[:-1])) <= 80
    assert error == "   0.5 s  open vswitch\n"
    for name in set(layout.DERIVED) - {layout.REQUESTS_TABLE}:
        assert (folder / out / name).stat().st_size > 0


def test_the_folders_name_depends_on_the_plan(output: Output, runs: dict[str, Any]) -> None:
    for words in ((), (), ("--seed", "2"), ("--set", "fabric.queue.kmin=50kb"), ("--clock", "real")):
        output.of("run", SMALL, "--backend", "uml", *words)
    names = [out.name for _, _, out in runs["plans"]]
    assert names[0] == names[1]
    assert len(set(names)) == 4


def test_json_is_the_summary_and_nothing_else(output: Output, runs: dict[str, Any], folder: Path) -> None:
    status, text, error = output.of("run", SMALL, "--json", "--out", "here")
    assert (status, error) == (0, "")
    assert text == (folder / "here/summary.json").read_text()
    assert json.loads(text)["verdict"]["segment"] == "dest-leaf"


def test_a_report_is_made_again_from_the_record(output: Output, folder: Path) -> None:
    write_record(folder / "record", incast(size=2 * MIB))
    status, text, error = output.of("report", "record", "--json")
    assert (status, error) == (0, "")
    assert json.loads(text)["scenario"] == "incast"
    assert (folder / "record/report.html").exists()


def test_an_expectation_that_fails_is_exit_1(output: Output, runs: dict[str, Any]) -> None:
    runs["edit"] = expecting("transfers.count == 8", "verdict.segment == spine")
    status, text, error = output.of("run", SMALL)
    assert status == 1
    assert "  FAILS       verdict.segment == spine (measured: dest-leaf)" in text.splitlines()
    last = error.splitlines()[-1]
    assert last == "testbed: expected verdict.segment == spine, measured dest-leaf"


def test_expectations_that_hold_are_exit_0(output: Output, runs: dict[str, Any]) -> None:
    runs["case"] = baseline(size=2 * MIB)
    runs["edit"] = expecting("verdict.segment == null")
    assert output.of("run", SMALL, "--json")[0] == 0


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (LabError("no ovs"), 3),
        (MachineError("no kernel: run scripts/build-kernel.sh"), 3),
        (ReadbackError("leaf1-p1: limit is 7, the plan says 8"), 3),
    ],
)
def test_the_lab_or_the_machine_is_exit_3(
    output: Output, runs: dict[str, Any], error: Exception, status: int
) -> None:
    runs["error"] = error
    assert output.of("run", SMALL, "--json") == (status, "", f"testbed: {error}\n")


def test_a_measurement_that_is_not_valid_is_exit_4_unless_allowed(
    output: Output, runs: dict[str, Any]
) -> None:
    runs["edit"] = (layout.FACTS, invalidate)
    status, text, error = output.of("run", SMALL, "--json", "--out", "one")
    assert (status, json.loads(text)["fidelity"]["valid"]) == (4, False)
    assert error.startswith("testbed: the measurement is not valid: ")
    assert output.of("run", SMALL, "--json", "--out", "two", "--allow-invalid")[0] == 0
    assert output.of("report", "one", "--json")[0] == 0


def test_a_report_of_an_invalid_run_still_holds_it_against_its_expectations(
    output: Output, runs: dict[str, Any]
) -> None:
    runs["edit"] = (layout.FACTS, invalidate)
    output.of("run", SMALL, "--json", "--out", "one", "--allow-invalid")
    edit_json(Path("one"), *expecting("verdict.segment == spine"))
    assert output.of("report", "one")[0] == 1


def test_a_run_that_did_not_end_is_not_held_against_its_expectations(output: Output, folder: Path) -> None:
    record = write_record(folder / "cut", baseline(size=MIB), "aborted", "ended by SIGTERM")
    edit_json(record, *expecting("verdict.segment == spine"))
    status, text, error = output.of("report", "cut")
    assert (status, error) == (0, "")
    assert "FAILS" not in text
    assert "NOT VALID   the run is aborted: ended by SIGTERM" in text


@pytest.mark.parametrize(
    ("error", "status", "name"),
    [(KeyboardInterrupt(), 130, "SIGINT"), (Aborted(signal.SIGTERM), 143, "SIGTERM")],
)
def test_a_run_that_was_ended_has_the_status_of_the_signal(
    output: Output, runs: dict[str, Any], error: BaseException, status: int, name: str
) -> None:
    runs["error"] = error
    assert output.of("run", SMALL, "--json") == (status, "", f"testbed: ended by {name}\n")


# ---- the other commands ---------------------------------------------------------------


def test_list(output: Output) -> None:
    status, text, _ = output.of("list")
    assert status == 0
    assert [line.split()[0] for line in text.splitlines()][:2] == ["average-lies", "baseline"]
    listed = json.loads(output.of("list", "--json")[1])
    assert [item["name"] for item in listed] == [line.split()[0] for line in text.splitlines()]


def test_a_plan_as_json_can_be_read_back(output: Output) -> None:
    status, text, error = output.of("plan", SMALL, "--json")
    assert (status, error) == (0, "")
    assert from_json(text).scenario == "small"


def test_doctor_boots_what_there_is(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    booted: list[tuple[str, bool]] = []

    def find(clock: str) -> str:
        if clock == "virtual":
            raise MachineError("none")
        return clock

    monkeypatch.setattr("testbed.lab.kernels.find_kernel", find)
    monkeypatch.setattr(
        "testbed.lab.uml.check_boot", lambda kernel, folder: booted.append((kernel, folder.is_dir()))
    )
    cli._boot_check()
    assert booted == [("real", True)]


def test_clean_marks_what_was_killed_and_keeps_the_rest(output: Output, folder: Path) -> None:
    killed = RecordWriter.create(folder / "runs/killed", scenario="", plan="")
    (folder / "runs/killed/.lab").mkdir()
    (folder / "runs/killed/.lab/memory").touch()
    killed._lock.close()
    running = RecordWriter.create(folder / "runs/running", scenario="", plan="")
    write_record(folder / "runs/complete", baseline(size=MIB))
    before = (folder / "runs/complete/manifest.json").read_text()
    assert output.of("clean") == (0, "runs/killed: marked as aborted, temporary files removed\n", "")
    manifest = json.loads((folder / "runs/killed/manifest.json").read_text())
    reason = "the run was killed; found by `testbed clean`"
    assert (manifest["status"], manifest["reason"]) == ("aborted", reason)
    assert not (folder / "runs/killed/.lab").exists()
    assert (folder / "runs/complete/manifest.json").read_text() == before
    assert output.of("clean") == (0, "nothing to clean in runs\n", "")
    running.finish(layout.COMPLETE, None, {})


def test_clean_without_runs(output: Output) -> None:
    assert output.of("clean", "elsewhere") == (0, "nothing to clean: there is no elsewhere\n", "")


def test_every_command_has_help() -> None:
    parser = cli.build_parser()
    commands = next(item for item in parser._actions if isinstance(item, argparse._SubParsersAction))
    assert {"list", "doctor", "plan", "run", "report", "clean"} <= set(commands.choices)
    for command in commands.choices.values():
        assert command.description
        assert all(action.help for action in command._actions if action.dest not in ("backend",))


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    command = f"{sys.executable} -m testbed.cli plan {SMALL} --json | head -c 1 >/dev/null"
    script = f"set -o pipefail; {command}; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], cwd=PROJECT, capture_output=True, text=True, timeout=20)
    assert "Traceback" not in done.stderr
    assert done.stdout.strip() in ("0", "141")


# ---- progress -------------------------------------------------------------------------


def test_progress_on_a_terminal_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    progress = cli.Progress(quiet=False)
    progress.step("open vswitch", 0.5)
    progress.step("traffic", 12.25)
    progress.end()
    erase = "\r\033[K"
    assert capsys.readouterr().err == f"{erase}   0.5 s  open vswitch{erase}  12.2 s  traffic{erase}"


def test_quiet_progress_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    progress = cli.Progress(quiet=True)
    progress.step("traffic", 1.0)
    progress.end()
    assert capsys.readouterr() == ("", "")


def test_a_shell_without_terminal_and_commands_is_refused(
    output: Output, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    status, printed, errors = output.of("shell", SMALL)
    assert (status, printed) == (2, "")
    assert errors.startswith("testbed: shell needs a terminal, or commands on standard input, as in: ")
    assert list(folder.iterdir()) == []


class Closed(io.StringIO):
    def write(self, _text: str) -> int:
        raise OSError(errno.EIO, "Input/output error")


def test_a_terminal_that_was_closed_does_not_change_how_a_run_ends(
    monkeypatch: pytest.MonkeyPatch, runs: dict[str, Any]
) -> None:
    runs["error"] = Aborted(signal.SIGHUP)
    monkeypatch.setattr("sys.stderr", Closed())
    assert main(["run", SMALL]) == 128 + signal.SIGHUP
