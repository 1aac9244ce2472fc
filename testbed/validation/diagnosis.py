"""Is the right culprit named? Every shipped scenario with a declared answer, over several seeds.

Beside the rows of the validation's table there is a confusion matrix, `testbed validate diagnosis`. Runs are
commands of their own, so several go side by side.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from testbed.errors import LabError
from testbed.run.many import Ended, Task, run_many
from testbed.scenario import load_scenario, shipped_scenarios
from testbed.signals import scratch_folder
from testbed.validation.bench import Bench
from testbed.validation.cases import Case
from testbed.validation.rows import Row, about
from topologies.model import SEGMENTS

NOBODY = "nobody"
NOT_VALID = "not valid"
COLUMNS = (*SEGMENTS, NOBODY, NOT_VALID)


@dataclass(frozen=True)
class Asked:
    """One run: a scenario with a seed, and what its file declares."""

    scenario: str
    seed: int
    declared: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """What a run's verdict named, largest share first, and whether all its expectations hold."""

    case: Asked
    named: tuple[str, ...]
    holds: bool


def declared_answer(scenario: str) -> tuple[str, ...]:
    """Return the segments a scenario's `expect` names as culprits, in its order; `nobody` for none.

    Empty when it declares no answer.
    """
    found: list[str] = []
    for text in load_scenario(scenario).expect:
        path, _, value = text.partition(" == ")
        if path == "verdict.segment":
            found.append(NOBODY if value == "null" else value)
        elif text.startswith("verdict.shares."):
            found.append(text.split()[0].removeprefix("verdict.shares."))
    return tuple(found)


def cases(seeds: int, names: Iterable[str] | None = None) -> list[Asked]:
    """Return every scenario with a declared answer, with seeds 1 to `seeds`."""
    wanted = list(names or (name for name, _ in shipped_scenarios()))
    answers = {name: declared_answer(name) for name in wanted}
    return [
        Asked(name, seed, answer)
        for name, answer in answers.items()
        if answer
        for seed in range(1, seeds + 1)
    ]


def diagnose(wanted: Sequence[Asked], jobs: int, tell: Callable[[Answer, int, int], None]) -> list[Answer]:
    """Run all cases, `jobs` at a time, and return their answers in order. LabError when a run fails."""
    answers: dict[Asked, Answer] = {}
    with scratch_folder("validate") as folder:
        by_task = {
            Task(case.scenario, case.seed, folder / f"{number}"): case for number, case in enumerate(wanted)
        }

        def told(ended: Ended, done: int, total: int) -> None:
            case = by_task[ended.task]
            answers[case] = _answer(case, ended)
            shutil.rmtree(ended.task.out)  # many records are many gigabytes
            tell(answers[case], done, total)

        run_many(list(by_task), jobs, told)
    return [answers[case] for case in wanted]


def _answer(case: Asked, ended: Ended) -> Answer:
    if not ended.measured:
        raise LabError(f"{case.scenario} with seed {case.seed}: {ended.message}")
    summary = ended.summary()
    fidelity, verdict = summary["fidelity"], summary["verdict"]
    if not fidelity["valid"]:
        return Answer(case, (NOT_VALID,), False)
    named = tuple(culprit["segment"] for culprit in verdict["culprits"])
    return Answer(case, named or (NOBODY,), ended.exit_code == 0)


def right(answer: Answer) -> bool:
    """Tell whether a run named what its scenario declares, all of it and nothing else."""
    return answer.holds and set(answer.named) == set(answer.case.declared)


def matrix(answers: Sequence[Answer]) -> list[list[str]]:
    """Return the confusion matrix as rows of text under a head: declared, named, right of all."""
    rows = [["scenario", "declared", *COLUMNS, "right"]]
    for name in dict.fromkeys(answer.case.scenario for answer in answers):
        own = [answer for answer in answers if answer.case.scenario == name]
        counts = [sum(column in answer.named for answer in own) for column in COLUMNS]
        shown = [str(count) if count else "." for count in counts]
        score = f"{sum(map(right, own))} of {len(own)}"
        rows.append([name, " + ".join(own[0].case.declared), *shown, score])
    return rows


def page(answers: Sequence[Answer], command: str) -> str:
    """Return the matrix as a page of the documentation, with the command that made it."""
    rows = matrix(answers)
    lines = [
        "# Is the right culprit named?",
        "",
        f"Made by `{command}`; do not edit. Each row is a shipped scenario and the answer its file",
        "declares; the columns count the runs whose verdict named that segment.",
        "",
        "| " + " | ".join(rows[0]) + " |",
        "|" + "---|" * len(rows[0]),
        *("| " + " | ".join(row) + " |" for row in rows[1:]),
        "",
    ]
    return "\n".join(lines)


def rows_of(bench: Bench, scenario: str, seeds: int) -> list[Row]:
    """Run a scenario with seeds 1 to `seeds` and return how many named what it declares."""
    asked = cases(seeds, [scenario])
    found = [_answer(case, bench.ended(case.scenario, seed=case.seed)) for case in asked]
    declared = " + ".join(declared_answer(scenario))
    return [
        about(
            f"diagnosis.{scenario}",
            f"runs of {len(found)} that name {declared} and nothing else",
            sum(map(right, found)),
            len(found),
            "",
            why="each seed has one right answer",
            source=f"testbed/scenarios/{scenario}.yaml, expect",
        )
    ]


QUICK = ("baseline", "incast", "source-rail")

CASES = tuple(
    Case(
        f"diagnosis.{name}",
        f"is the culprit of {name} named?",
        lambda bench, seeds, name=name: rows_of(bench, name, seeds),  # type: ignore[misc]
        quick=name in QUICK,
    )
    for name, _ in shipped_scenarios()
    if declared_answer(name)
)
