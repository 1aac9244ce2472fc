"""A run as one value for each key: those of its summary, and some over all links that a comparison asks for.

The latter begin with `run.`. Called by the comparison and the sweep.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from testbed.regress.flat import Scalar, flatten

SWITCHES = ("source-leaf", "spine", "dest-leaf")
"""Segments whose queues are those of switch ports."""

RUN = (
    "run.goodput_bps",
    "run.queue_max_bytes",
    "run.queue_mean_bytes",
    "run.ce_marks",
    "run.drops",
    "run.pauses",
)
"""Payload over the time until the last byte; the highest queue of any switch port, and the highest mean of
one; marks, drops and pauses of all links together."""


def measures(summary: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return every value of a summary by its keys joined by dots, and those of `RUN`."""
    return {**flatten(summary), **dict(zip(RUN, _of_run(summary), strict=True))}


def _of_run(summary: Mapping[str, Any]) -> tuple[Scalar, ...]:
    transfers, links = summary["transfers"], list(summary["links"].values())
    queues = [link["queue_bytes"] for link in links if link["segment"] in SWITCHES]
    end_ms = transfers["last_end_ms"]
    pauses = [link["pauses"]["count"] for link in links if isinstance(link.get("pauses"), Mapping)]
    return (
        transfers["bytes"] * 8000 / end_ms if end_ms else None,
        _largest(queue["max"] for queue in queues),
        _largest(queue["mean"] for queue in queues),
        _total(link["ce_marks"] for link in links),
        _total(link["drops"] for link in links),
        _total(pauses) if pauses else None,
    )


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _total(values: Iterable[int | None]) -> int:
    return sum(value or 0 for value in values)
