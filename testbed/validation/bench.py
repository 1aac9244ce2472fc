"""Runs scenarios for the validation and keeps their records until it is closed.

Each run is a `testbed run` of its own, so several go side by side. The same run asked for twice is made once.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from testbed.analysis.summary import summarise
from testbed.errors import LabError
from testbed.record.reader import Record
from testbed.run.many import Children, Ended, Task


@dataclass(frozen=True)
class Run:
    """What is to be run: the text of a scenario or a shipped one's name, settings, and a seed."""

    scenario: str
    sets: tuple[str, ...] = ()
    seed: int = 1
    shipped: bool = False


class Bench:
    """A folder of records, made as they are asked for, from any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children = Children()
        self._runs: dict[Run, Future[Ended]] = {}
        self._lock = threading.Lock()
        self.count = 0

    def end(self) -> None:
        """Ask every run that is under way to end; whoever waits for one gets a CancelledError."""
        self._children.end()

    def run(self, scenario: str, sets: Sequence[str] = (), *, seed: int = 1) -> Record:
        """Run the scenario of that text and return its record, valid or not. LabError when it did not end."""
        return Record.open(self._record(Run(scenario, tuple(sets), seed)), verify=False)

    def valid(self, scenario: str, sets: Sequence[str] = (), *, seed: int = 1) -> Record:
        """Run the scenario of that text; LabError, with the reason, when its measurement is not valid."""
        record = self.run(scenario, sets, seed=seed)
        fidelity = summarise(record)["fidelity"]
        if not fidelity["valid"]:
            raise LabError(
                f"a run of the validation is not valid: {fidelity['reasons'][0]} ({' '.join(sets)})"
            )
        return record

    def shipped(self, name: str, *, seed: int = 1) -> Path:
        """Run a shipped scenario and return its record's folder. LabError when it did not end."""
        return self._record(Run(name, (), seed, shipped=True))

    def ended(self, name: str, *, seed: int) -> Ended:
        """Run a shipped scenario and return how it ended."""
        return self._ended(Run(name, (), seed, shipped=True))

    def _record(self, run: Run) -> Path:
        ended = self._ended(run)
        if not ended.measured:
            what = f"{run.scenario if run.shipped else 'a run'} with seed {run.seed}"
            raise LabError(f"{what}: {ended.message} {' '.join(run.sets)}".rstrip())
        return ended.task.out

    def _ended(self, run: Run) -> Ended:
        with self._lock:
            mine = run not in self._runs
            future = self._runs.setdefault(run, Future())
            self.count += mine
            number = self.count
        if mine:
            try:
                future.set_result(self._start(run, self._folder / f"{number}"))
            except BaseException as error:
                future.set_exception(error)
                raise
        return future.result()

    def _start(self, run: Run, folder: Path) -> Ended:
        folder.mkdir()
        scenario = run.scenario
        if not run.shipped:
            (folder / "scenario.yaml").write_text(scenario)
            scenario = str(folder / "scenario.yaml")
        return self._children.run(Task(scenario, run.seed, folder / "record", run.sets))
