"""Nothing that somebody hands in ends in a traceback, hangs, or is refused without saying where.

The same cases in every run: `KV_HOSTILE=50` tries so many times as many. `python -m tests.support.hostile`
searches for new ones.
"""

from __future__ import annotations

import os
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.hostile import TARGETS, attempt

CASES = {"record": 25, "comparison": 25, "limit": 25, "golden": 30}
"""Those that take longest; of each other kind of input there are `FEW`."""
FEW = 40
TIMES = int(os.environ.get("KV_HOSTILE", "1"))


@pytest.mark.parametrize("target", TARGETS)
def test_is_accepted_or_refused(target: str) -> None:
    @settings(
        max_examples=CASES.get(target, FEW) * TIMES,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(number=st.integers(0, 2**32))
    def attempts(number: int) -> None:
        attempt(target, Random(f"{target}-{number}"))

    attempts()


def test_both_happen() -> None:
    # A harness that only ever sees refusals, or none, would show nothing.
    for target in ("config", "trace", "comparison"):
        found = {attempt(target, Random(number)) is None for number in range(20)}
        assert found == {True, False}, target
