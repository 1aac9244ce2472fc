"""Runs scenarios for the validation and keeps their records until it is closed.

Each run is a `testbed run` of its own, so several go side by side. The same run asked for twice is made once.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from testbed.analysis.summary import summarise
from testbed.errors import LabError
from testbed.record.reader import Record
from testbed.run.many import Task, run_many


@dataclass(frozen=True)
class Run:
    """What is to be run: the text of a scenario or a shipped one's name, settings, and a seed."""

    scenario: str
    sets: tuple[str, ...] = ()
    seed: int = 1
    shipped: bool = False


class Bench:
    """A folder of records. Use it in a `with` statement: the folder goes at its end."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="testbed-validate-")
        self._runs: dict[Run, Future[Path]] = {}
        self._lock = threading.Lock()
        self.count = 0

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

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

    def _record(self, run: Run) -> Path:
        with self._lock:
            mine = run not in self._runs
            future = self._runs.setdefault(run, Future())
            self.count += mine
            number = self.count
        if mine:
            try:
                future.set_result(self._start(run, Path(self._folder.name) / f"{number}"))
            except BaseException as error:
                future.set_exception(error)
                raise
        return future.result()

    @staticmethod
    def _start(run: Run, folder: Path) -> Path:
        folder.mkdir()
        scenario = run.scenario
        if not run.shipped:
            (folder / "scenario.yaml").write_text(scenario)
            scenario = str(folder / "scenario.yaml")
        task = Task(scenario, run.seed, folder / "record", run.sets)
        (ended,) = run_many([task], 1, lambda *_: None)
        if not ended.measured:
            what = f"{run.scenario if run.shipped else 'a run'} with seed {run.seed}"
            raise LabError(f"{what}: {ended.message} {' '.join(run.sets)}".rstrip())
        return task.out
