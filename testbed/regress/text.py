"""What a check and its differences look like in a terminal and in a JUnit file. Text only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from testbed.regress.check import PASSED, Judged
from testbed.regress.flat import Change, shown_change
from testbed.regress.golden import Difference
from testbed.terminal import table

LISTED = 8
"""So many changes are listed of each group."""

GROUPS = ("first of all", "of the whole run", "of links and moments")
"""The groups of `testbed.regress.flat.Change`."""


def check_text(judged: Sequence[Judged]) -> str:
    """Return the table of a check and what failed, in full."""
    rows = [
        [one.case.plan.scenario, str(one.case.plan.seed), _expectations(one), _golden(one), one.outcome]
        for one in judged
    ]
    lines = table(["scenario", "seed", "expectations", "golden", ""], rows, indent="")
    for one in judged:
        told = list(_told(one))
        if told:
            lines += ["", f"{one.case.name}: {one.outcome}", *(f"  {line}" for line in told)]
    return "\n".join(lines)


def _expectations(one: Judged) -> str:
    total = len(one.case.places)
    return f"{sum(result.ok for result in one.results)} of {total}" if total else "none"


def _golden(one: Judged) -> str:
    if one.case.golden is None:
        return "none"
    if one.golden is None:
        return "not measured"
    return "same" if one.golden.same else "differs"


def _told(one: Judged) -> Iterator[str]:
    if one.reason:
        yield one.reason
    yield from one.failures
    if one.golden is not None and (not one.golden.same or one.golden.new or one.golden.toolchain):
        yield from golden_lines(one.golden)
    if one.outcome != PASSED:
        yield f"record: {one.case.task.out}"


def golden_lines(found: Difference) -> list[str]:
    """Return what differs from a golden: values, settings, toolchain."""
    count = len(found.changes) + len(found.missing)
    lines = [f"{found.golden}: {f'{count} values differ' if count else 'same values'}"]
    for group, of_what in enumerate(GROUPS):
        lines += _listed([change for change in found.changes if change.group == group], of_what)
    lines += [f"  {key}: is gone" for key in found.missing[:LISTED]]
    if found.settings:
        lines.append("  the settings are not those of the golden:")
        lines += [f"    {shown_change(change)}" for change in found.settings[:LISTED]]
    elif count:
        lines.append("  the settings are those of the golden")
    if found.toolchain:
        lines.append("  the toolchain is not the golden's, values may differ for that alone:")
        lines += [f"    {line}" for line in found.toolchain]
    elif count:
        lines.append("  the toolchain is the golden's: kernel and packages are not the reason")
    if found.new:
        few = ", ".join(found.new[:3])
        lines.append(f"  {len(found.new)} keys are new and not compared ({few}, ...); --update takes them in")
    return lines


def _listed(changes: Sequence[Change], of_what: str) -> Iterator[str]:
    if changes:
        yield f"  {of_what}, largest first:"
    for change in changes[:LISTED]:
        yield f"    {shown_change(change)}"
    if len(changes) > LISTED:
        yield f"    and {len(changes) - LISTED} more"


def check_json(judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """Return the outcome of every case as plain values."""
    return [
        {
            "scenario": one.case.plan.scenario,
            "seed": one.case.plan.seed,
            "outcome": one.outcome.lower(),
            "reason": one.reason or None,
            "record": str(one.case.task.out),
            "expectations": [
                {
                    "place": place,
                    "expectation": result.expectation,
                    "measured": result.measured,
                    "ok": result.ok,
                }
                for place, result in zip(one.case.places, one.results, strict=False)
            ],
            "golden": None if one.golden is None else _golden_json(one.golden),
        }
        for one in judged
    ]


def _golden_json(found: Difference) -> dict[str, Any]:
    return {
        "file": str(found.golden),
        "same": found.same,
        "changes": [[change.key, change.before, change.after] for change in found.changes],
        "missing": list(found.missing),
        "new": list(found.new),
        "settings": [[change.key, change.before, change.after] for change in found.settings],
        "toolchain": list(found.toolchain),
    }
