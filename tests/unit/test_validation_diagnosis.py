"""The confusion matrix: what is declared, what counts as right, and how it is shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import LabError
from testbed.run import many
from testbed.scenario import shipped_scenarios
from testbed.validation import diagnosis as validate
from testbed.validation.diagnosis import (
    NOBODY,
    NOT_VALID,
    Answer,
    Asked,
    cases,
    declared_answer,
    diagnose,
    matrix,
    right,
)

DECLARED = {
    "average-lies": ("dest-leaf",),
    "baseline": (NOBODY,),
    "ecmp-collision": ("spine",),
    "feedback-too-late": ("dest-leaf",),
    "incast": ("dest-leaf",),
    "network-idle": (NOBODY,),
    "one-sender-landing": ("dest-landing",),
    "pfc-incast": ("dest-leaf",),
    "pfc-landing": ("dest-landing",),
    "pfc-victim": ("dest-leaf",),
    "placement-no-gain": (NOBODY,),
    "rail-imbalance": ("source-rail",),
    "rail-not-leaf": ("source-rail",),
    "roce-feedback-too-late": ("dest-leaf",),
    "roce-incast": (NOBODY,),
    "scheduler-skew": ("spine",),
    "slow-landing": ("dest-landing",),
    "source-leaf-burst": ("source-leaf",),
    "source-rail": ("source-rail",),
    "spine-hot-path": ("spine",),
    "two-culprits": ("source-rail", "dest-leaf"),
}


def test_every_shipped_scenario_declares_its_answer() -> None:
    assert {name: declared_answer(name) for name, _ in shipped_scenarios()} == DECLARED


def test_other_expectations_declare_nothing(tmp_path: Path) -> None:
    path = tmp_path / "quiet.yaml"
    path.write_text("name: quiet\nextends: baseline\nexpect: [transfers.slowdown.p99 <= 1.05]\n")
    assert declared_answer(str(path)) == ()
    assert cases(2, [str(path)]) == []


def test_cases_are_all_scenarios_with_all_seeds() -> None:
    assert cases(2, ["two-culprits", "incast"]) == [
        Asked("two-culprits", 1, ("source-rail", "dest-leaf")),
        Asked("two-culprits", 2, ("source-rail", "dest-leaf")),
        Asked("incast", 1, ("dest-leaf",)),
        Asked("incast", 2, ("dest-leaf",)),
    ]
    assert len(cases(3)) == 3 * len(DECLARED)


# ---- one run --------------------------------------------------------------------------

INCAST = Asked("incast", 4, ("dest-leaf",))


def summary(*named: str, valid: bool = True) -> dict[str, Any]:
    return {"fidelity": {"valid": valid}, "verdict": {"culprits": [{"segment": name} for name in named]}}


RUN = """
import json, pathlib, sys, time
here = pathlib.Path(__file__).parent
words = sys.argv[1:]
(here / "words").write_text(" ".join(words))
while words[words.index("--seed") + 1] == "3" and not (here / "others-told").exists():
    time.sleep(0.01)
status, said, error = json.loads((here / "answer").read_text())
out = pathlib.Path(words[words.index("--out") + 1])
out.mkdir()
(out / "summary.json").write_text(json.dumps(said))
print(error, end="", file=sys.stderr)
sys.exit(status)
"""
"""Stands in for the testbed: ends as it is told, the run of seed 3 when others have been told of."""


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets every run end with a status, a summary and a word."""
    (tmp_path / "run.py").write_text(RUN)
    monkeypatch.setattr(many, "COMMAND", (sys.executable, str(tmp_path / "run.py")))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def let(status: int, said: dict[str, Any], error: str = "") -> None:
        (tmp_path / "answer").write_text(json.dumps((status, said, error)))

    return let


def test_a_run_is_a_command_of_its_own(tmp_path: Path, answer: Callable[..., None]) -> None:
    answer(0, summary("dest-leaf"))
    told: list[tuple[Answer, int, int]] = []
    found = diagnose([INCAST], 1, lambda *step: told.append(step))
    assert found == [Answer(INCAST, ("dest-leaf",), True)]
    assert told == [(found[0], 1, 1)]
    words = (tmp_path / "words").read_text()
    assert words.startswith("run incast --seed 4 --backend auto --out ")
    assert not Path(words.split()[7]).parent.exists()  # nothing is left of the record


@pytest.mark.parametrize(
    ("status", "said", "expected"),
    [
        (0, summary("dest-leaf"), Answer(INCAST, ("dest-leaf",), True)),
        (0, summary(), Answer(INCAST, (NOBODY,), True)),
        (1, summary("spine", "dest-leaf"), Answer(INCAST, ("spine", "dest-leaf"), False)),
        (4, summary("dest-leaf", valid=False), Answer(INCAST, (NOT_VALID,), False)),
        # An expectation that fails is told before the measurement that is not valid.
        (1, summary("dest-leaf", valid=False), Answer(INCAST, (NOT_VALID,), False)),
    ],
)
def test_what_a_run_named(
    answer: Callable[..., None], status: int, said: dict[str, Any], expected: Answer
) -> None:
    answer(status, said)
    assert diagnose([INCAST], 1, lambda *_: None) == [expected]


@pytest.mark.parametrize("status", [2, 3, 130])
def test_a_run_that_failed_ends_it(answer: Callable[..., None], status: int) -> None:
    answer(status, {}, "testbed: leaf3-d1: rate is 9, the plan says 10\n")
    message = "^incast with seed 4: leaf3-d1: rate is 9, the plan says 10$"
    with pytest.raises(LabError, match=message):
        diagnose([INCAST], 1, lambda *_: None)


def test_answers_come_in_the_order_of_the_cases(tmp_path: Path, answer: Callable[..., None]) -> None:
    answer(0, summary("dest-leaf"))
    wanted = [replace(INCAST, seed=seed) for seed in (3, 1, 2)]
    told: list[int] = []

    def tell(one: Answer, done: int, _total: int) -> None:
        told.append(one.case.seed)
        if done == 2:
            (tmp_path / "others-told").touch()

    assert [one.case for one in diagnose(wanted, 3, tell)] == wanted
    assert told[-1] == 3


# ---- right ----------------------------------------------------------------------------

TWO = Asked("two-culprits", 1, ("source-rail", "dest-leaf"))
NONE = Asked("baseline", 1, (NOBODY,))


@pytest.mark.parametrize(
    ("case", "named", "holds", "expected"),
    [
        (INCAST, ("dest-leaf",), True, True),
        (INCAST, ("dest-leaf",), False, False),
        (INCAST, ("dest-leaf", "spine"), True, False),
        (INCAST, (NOBODY,), True, False),
        (INCAST, (NOT_VALID,), False, False),
        (TWO, ("dest-leaf", "source-rail"), True, True),
        (TWO, ("dest-leaf",), True, False),
        (NONE, (NOBODY,), True, True),
        (NONE, ("spine",), True, False),
    ],
)
def test_right_is_all_of_it_and_nothing_else(
    case: Asked, named: tuple[str, ...], holds: bool, expected: bool
) -> None:
    assert right(Answer(case, named, holds)) is expected


# ---- the matrix -----------------------------------------------------------------------

ANSWERS = [
    Answer(TWO, ("dest-leaf", "source-rail"), True),
    Answer(replace(TWO, seed=2), ("dest-leaf",), False),
    Answer(NONE, (NOBODY,), True),
    Answer(replace(NONE, seed=2), (NOT_VALID,), False),
]
HEAD = [
    *("scenario", "declared", "source-rail", "source-leaf", "spine", "dest-leaf", "dest-landing"),
    *("nobody", "not valid", "right"),
]


def test_the_matrix_counts_runs() -> None:
    assert matrix(ANSWERS) == [
        HEAD,
        ["two-culprits", "source-rail + dest-leaf", "1", ".", ".", "2", ".", ".", ".", "1 of 2"],
        ["baseline", "nobody", ".", ".", ".", ".", ".", "1", "1", "1 of 2"],
    ]
    assert matrix([]) == [HEAD]


def test_the_page_has_the_matrix_and_the_command() -> None:
    lines = validate.page(ANSWERS, "testbed validate --seeds 2").splitlines()
    assert lines[0] == "# Is the right culprit named?"
    assert lines[2].startswith("Made by `testbed validate --seeds 2`; do not edit.")
    assert lines[5] == "| " + " | ".join(HEAD) + " |"
    assert lines[6] == "|" + "---|" * 10
    assert lines[7] == "| two-culprits | source-rail + dest-leaf | 1 | . | . | 2 | . | . | . | 1 of 2 |"
    assert len(lines) == 9
