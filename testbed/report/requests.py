"""The time to the first token, part by part, as bars and a table: all requests, then each decode host.

Reads the summary alone. Called by `testbed.report.page`, and its lines by the terminal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PARTS = {
    "wait": "waiting for a prefill host",
    "prefill": "prefill",
    "transfer": "transfer, as far as prefill does not hide it",
    "landing": "landing at the decode host's GPU",
    "admission": "waiting for the decode batch",
    "first_step": "first decode step",
}
"""Every part with what it is called."""


@dataclass(frozen=True)
class Part:
    """One piece of a bar: its mean, and its width as a share of the longest bar."""

    name: str
    words: str
    mean_ms: float
    width: float


@dataclass(frozen=True)
class Bar:
    """The mean TTFT of some requests in its parts, and the figures beside it."""

    name: str
    count: int
    parts: tuple[Part, ...]
    ttft_ms: Mapping[str, float | None]


def bars(summary: Mapping[str, Any]) -> tuple[Bar, ...]:
    """Return a bar for all requests and one for each decode host; none without a serving engine."""
    requests = summary.get("requests")
    if not requests or not requests["completed"]:
        return ()
    means = {name: part["mean_ms"] for name, part in requests["parts"].items()}
    rows = [("all", requests["completed"], means, summary["ttft_ms"])]
    for host, figures in requests["by_decode"].items():
        rows.append((host, figures["count"], figures["parts_ms"], figures["ttft_ms"]))
    longest = max(sum(parts.values()) for _, _, parts, _ in rows) or 1.0
    return tuple(
        Bar(
            name,
            count,
            tuple(Part(part, words, parts[part], parts[part] / longest) for part, words in PARTS.items()),
            ttft_ms,
        )
        for name, count, parts, ttft_ms in rows
    )


def scaled_words(summary: Mapping[str, Any]) -> str:
    """Return by what requests were scaled, in words; nothing where they were not."""
    scale = (summary.get("requests") or {}).get("scale") or {"bytes": 1.0, "time": 1.0}
    words = []
    if scale["bytes"] != 1:
        words.append(f"every transfer has {scale['bytes']:g} of its bytes")
    if scale["time"] != 1:
        words.append(f"arrivals, prefill, decode steps and the promise take {scale['time']:g} of their time")
    return "; ".join(words)
