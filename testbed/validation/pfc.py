"""Pauses of a lossless fabric: where they come, where they do not, and whom they hurt."""

from __future__ import annotations

from typing import Any

from testbed.analysis.summary import summarise
from testbed.validation.bench import Bench
from testbed.validation.cases import Case
from testbed.validation.rows import Row, about, at_least, between

ASKED = "IEEE 802.1Qbb: a lossless class drops nothing"


def _summary(bench: Bench, base: str, *sets: str) -> dict[str, Any]:
    """Run a shipped scenario with some values changed and return its summary."""
    text = f"name: {base}-again\nextends: {base}\nexpect: []\n"
    return summarise(bench.valid(text, sets))


def _drops(summary: dict[str, Any]) -> int:
    return sum(link["drops"] for link in summary["links"].values())


def incast(bench: Bench, _seeds: int) -> list[Row]:
    """Return drops and pauses of one incast, lossless and not."""
    lossless, lossy = _summary(bench, "pfc-incast"), _summary(bench, "pfc-incast", "fabric.lossless=false")
    return [
        about(
            "pfc.incast.lossless", "drops of an incast on a lossless fabric", _drops(lossless), 0, "",
            why="headroom holds what is on the way when a pause is sent", source=ASKED,
        ),
        at_least(
            "pfc.incast.lossy", "drops of the same without pauses", _drops(lossy), 1, "",
            why="the teeth of the row above", source="the scenario: 8 x 16 MiB into a buffer of 4 MB",
        ),
        at_least(
            "pfc.incast.pauses", "pauses of the incast", lossless["pauses"]["count"], 1, "",
            why="its queue reaches XOFF", source="the scenario",
        ),
    ]  # fmt: skip


def landing(bench: Bench, _seeds: int) -> list[Row]:
    """Return the pauses that a single sender gets from a slow landing."""
    found = _summary(bench, "pfc-landing")["pauses"]["count"]
    return [
        at_least(
            "pfc.landing", "pauses of one sender whose receiver lands slowly", found, 1, "",
            why="a full receive buffer pauses whoever fills it", source="the scenario",
        )
    ]  # fmt: skip


def baseline(bench: Bench, _seeds: int) -> list[Row]:
    """Return the pauses where nothing is in the way."""
    found = _summary(bench, "baseline", "fabric.lossless=true")["pauses"]["count"]
    return [
        about(
            "pfc.baseline", "pauses where nothing is in the way", found, 0, "",
            why="no queue reaches XOFF", source="the scenario",
        )
    ]  # fmt: skip


def victim(bench: Bench, _seeds: int) -> list[Row]:
    """Return the slowdown of a transfer to an idle port, behind three to a full one."""
    rows = []
    text = "name: victim-again\nextends: pfc-victim\nexpect: []\n"
    for lossless in (True, False):
        record = bench.valid(text, [f"fabric.lossless={str(lossless).lower()}"])
        transfer, outcome = record.plan.transfers[-1], record.outcomes[-1]
        slowdown = ((outcome.end_ns or 0) - outcome.start_ns) / transfer.ideal_ns
        what = f"slowdown of a transfer to an idle port, {'' if lossless else 'not '}lossless"
        if lossless:
            rows.append(
                between(
                    "pfc.victim.lossless", what, slowdown, 2, 3.05, "",
                    why="it waits in the queues of three that have a third of a port each: up to 3 times; it "
                    "runs free before the first pause", source="head-of-line blocking, arithmetic",
                )
            )  # fmt: skip
        else:
            rows.append(
                about(
                    "pfc.victim.lossy", what, slowdown, 1, "", share=0.02,
                    why="nothing is in its way", source="closed form",
                )
            )  # fmt: skip
    return rows


CASES = (
    Case("pfc.incast", "an incast with and without pauses", incast),
    Case("pfc.victim", "head-of-line blocking", victim),
    Case("pfc.landing", "a slow landing", landing),
    Case("pfc.baseline", "no pause without a reason", baseline),
)
