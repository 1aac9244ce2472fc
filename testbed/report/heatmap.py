"""How long each pair of hosts waited for its KV: prefill hosts down, decode hosts across.

Reads the summary only. Called by `testbed.report.page`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

HOSTS_MOST = 20
"""Rows and columns at most: of more hosts those with the longest waits."""

ALIKE = 1.05
"""Where the longest p99 is less than so many times the shortest, no cell is darker than another."""


@dataclass(frozen=True)
class Cell:
    """A pair: p50 and p99 in ms, how dark (0 to 1), and the stretch it lost most in (None: nothing lost)."""

    p50_ms: float
    p99_ms: float
    heat: float
    limiting: str | None


@dataclass(frozen=True)
class Heatmap:
    """Rows of cells by prefill host, None where a pair has no transfer; `left_out` hosts are not shown."""

    decode: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]
    left_out: int


def heatmap(summary: Mapping[str, Any]) -> Heatmap | None:
    """Return the map of all pairs; None where there is only one."""
    times = {tuple(pair.split("->")): figures for pair, figures in summary["ttft_ms"]["by_pair"].items()}
    if len(times) < 2:
        return None
    blamed = summary["verdict"].get("by_pair", {})
    p99 = [figures["p99"] for figures in times.values()]
    span = min(p99), max(p99)
    cells = {pair: _cell(figures, blamed.get("->".join(pair), {}), span) for pair, figures in times.items()}
    prefill, decode = (_worst(cells, side) for side in (0, 1))
    rows = tuple((src, tuple(cells.get((src, dst)) for dst in decode)) for src in prefill)
    hosts = sum(len({pair[side] for pair in cells}) for side in (0, 1))
    return Heatmap(decode, rows, hosts - len(prefill) - len(decode))


def _cell(figures: Mapping[str, float], blamed: Mapping[str, Any], span: tuple[float, float]) -> Cell:
    low, high = span
    heat = (figures["p99"] - low) / (high - low) if high > ALIKE * low else 0.0
    shares = blamed.get("shares", {})
    worst = max(shares, key=lambda segment: shares[segment], default=None)
    limiting = worst if worst is not None and shares[worst] > 0 else None
    return Cell(figures["p50"], figures["p99"], heat, limiting)


def _worst(cells: Mapping[tuple[str, ...], Cell], side: int) -> tuple[str, ...]:
    """Return the hosts of one side to show, by name."""
    longest: dict[str, float] = {}
    for pair, cell in cells.items():
        longest[pair[side]] = max(longest.get(pair[side], 0.0), cell.p99_ms)
    chosen = sorted(longest, key=lambda host: -longest[host])[:HOSTS_MOST]
    return tuple(sorted(chosen, key=_by_number))


def _by_number(host: str) -> tuple[str, int]:
    found = re.fullmatch(r"(.*?)(\d+)", host)
    return (found[1], int(found[2])) if found else (host, 0)
