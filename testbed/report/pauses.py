"""What is said of pauses (PFC): in the plan, in a sentence at the end of a run, and in the page's table.

Words and rows only; the figures are the summary's. Called by `testbed.terminal` and `testbed.report.page`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.plan.model import Plan
from testbed.report.numbers import format_bytes, format_count, format_ms
from topologies.model import SEGMENTS

PLAN_HEAD = ("pauses of", "queues", "XOFF", "XON", "headroom", "holds")


@dataclass(frozen=True)
class PauseRow:
    """A port that was held: how often, how long in all and at a stretch (ms), and by whose queues."""

    link: str
    segment: str
    count: int
    total_ms: float
    longest_ms: float
    by: tuple[str, ...]


def plan_rows(plan: Plan) -> list[list[str]]:
    """Return what the plan says of the queues that pause, under PLAN_HEAD; empty for a fabric that drops."""
    if plan.pausing is None:
        return []
    segment = {link.name: link.segment for link in plan.topology.all_links}
    kinds: Counter[tuple[str, int, int, int, int]] = Counter(
        (segment[point.link], point.xoff_bytes, point.xon_bytes, point.headroom_bytes, len(point.feeders))
        for point in plan.pausing.points
        if point.feeders
    )
    ordered = sorted(kinds.items(), key=lambda item: (SEGMENTS.index(item[0][0]), item[0]))
    return [
        [name, str(count), *map(format_bytes, sizes), f"{feeders} link{'s' if feeders > 1 else ''}"]
        for (name, *sizes, feeders), count in ordered
    ]


def sentence(pauses: Mapping[str, Any]) -> str:
    """Return the summary's `pauses` as a sentence without its full stop; empty for a fabric that drops."""
    if not pauses["lossless"]:
        return ""
    if pauses["deadlock"]:
        circle = pauses["deadlock"]["links"]
        held = " held by ".join((*circle, circle[0]))
        return f"deadlock {format_ms(pauses['deadlock']['at_ms'])} into the run: {held}"
    if not pauses["count"]:
        return "nobody: no queue reached XOFF"
    ports = "1 port" if pauses["links"] == 1 else f"{pauses['links']} ports"
    times = f"{format_count(pauses['count'])} time{'s' if pauses['count'] > 1 else ''}"
    lasting = f"{format_ms(pauses['total_ms'])} in all, {format_ms(pauses['longest_ms'])} at a stretch"
    return f"{ports} {times}, {lasting}; {pauses['first_by']} began it{_victim(pauses.get('victims'))}"


def _victim(victims: Mapping[str, Any] | None) -> str:
    """Say who waited for a queue that is none of theirs; records of before do not tell."""
    worst = victims["worst"] if victims else None
    if worst is None:
        return ""
    others = victims["count"] - 1 if victims else 0
    more = f", and {others} other{'s' if others > 1 else ''} waited so" if others else ""
    lost = f"{worst['from']} to {worst['to']} lost {format_ms(worst['lost_ms'])}"
    return f"; its victim: {lost} to {worst['link']}, which is not on its way{more}"


def rows(summary: Mapping[str, Any]) -> list[PauseRow]:
    """Return the ports that were held, the longest in all first."""
    found = [
        PauseRow(
            link=name,
            segment=link["segment"],
            count=link["pauses"]["count"],
            total_ms=link["pauses"]["total_ms"],
            longest_ms=link["pauses"]["longest_ms"],
            by=tuple(sorted(link["pauses"]["by"])),
        )
        for name, link in summary["links"].items()
        if link["pauses"]["count"]
    ]
    return sorted(found, key=lambda row: (-row.total_ms, row.link))
