"""Every shipped scenario with a declared answer, one seed of each: the verdict names it and nothing else."""

from __future__ import annotations

import pytest

from testbed.validation.diagnosis import NOBODY, Answer, Asked, cases, diagnose, right
from topologies.model import SEGMENTS

CASES = cases(1)
pytestmark = pytest.mark.slow


def test_every_scenario_of_the_question_is_here() -> None:
    declared = {case.scenario: case.declared for case in CASES}
    controls = {name for name, answer in declared.items() if answer == (NOBODY,)}
    assert controls == {"baseline", "network-idle", "placement-no-gain", "roce-incast"}
    assert {segment for answer in declared.values() for segment in answer} == {*SEGMENTS, NOBODY}
    assert declared["two-culprits"] == ("source-rail", "dest-leaf")
    assert len(declared) == 21


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.scenario)
def test_the_declared_answer_is_named(case: Asked) -> None:
    told: list[tuple[Answer, int, int]] = []
    (answer,) = diagnose([case], 1, lambda *step: told.append(step))
    assert set(answer.named) == set(case.declared)
    assert answer.holds
    assert right(answer)
    assert told == [(answer, 1, 1)]
