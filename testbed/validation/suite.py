"""All families of measurements, and running a choice of them side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from testbed.errors import LabError
from testbed.signals import scratch_folder
from testbed.validation import (
    closed_forms,
    collapse,
    dcqcn,
    dctcp,
    diagnosis,
    ecmp,
    gaps,
    marking,
    pfc,
    shaping,
)
from testbed.validation.bench import Bench
from testbed.validation.cases import Case
from testbed.validation.rows import Row

FAMILIES = {
    "shaping": (shaping.CASES, "rates and delays of every layer"),
    "gaps": (gaps.CASES, "departures of a backlogged port"),
    "marking": (marking.CASES, "ECN marks by queue depth"),
    "dctcp": (dctcp.CASES, "DCTCP's queue against model and hardware"),
    "collapse": (collapse.CASES, "TCP incast collapse"),
    "ecmp": (ecmp.CASES, "hash collisions against the birthday formula"),
    "closed_forms": (closed_forms.CASES, "transfer times against arithmetic"),
    "dcqcn": (dcqcn.CASES, "RoCE's congestion control"),
    "pfc": (pfc.CASES, "pauses of a lossless fabric"),
    "diagnosis": (diagnosis.CASES, "culprits of the shipped scenarios"),
}
"""The families in the order of the table, with their cases and what they are about."""

ALL = tuple(case for cases, _ in FAMILIES.values() for case in cases)


@dataclass(frozen=True)
class Measured:
    """A case that has been measured: its rows."""

    case: Case
    rows: tuple[Row, ...]

    @property
    def passed(self) -> bool:
        """Whether every row holds."""
        return all(row.passed for row in self.rows)


def measure(
    cases: Sequence[Case], jobs: int, seeds: int, tell: Callable[[Measured, int, int], None]
) -> list[Measured]:
    """Measure all cases, `jobs` at a time, and return them in their order.

    A case whose runs failed has one row that says why and does not hold. `tell` is called in this thread.
    """
    found: dict[str, Measured] = {}
    with scratch_folder("validate") as folder, ThreadPoolExecutor(jobs) as pool:
        bench = Bench(folder)
        try:
            futures = [pool.submit(_measure, bench, case, seeds) for case in cases]
            for future in as_completed(futures):
                done = future.result()
                found[done.case.name] = done
                tell(done, len(found), len(cases))
        except BaseException:
            bench.end()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [found[case.name] for case in cases]


def _measure(bench: Bench, case: Case, seeds: int) -> Measured:
    try:
        return Measured(case, tuple(case.measure(bench, seeds)))
    except LabError as error:
        return Measured(case, (failed(case, str(error)),))


def failed(case: Case, reason: str) -> Row:
    """Return the row of a case that could not be measured."""
    return Row(case.name, case.what, math.nan, 0, 0, "", "a measurement", "", "", note=reason)
