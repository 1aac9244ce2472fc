"""Does a queue mark as RED should: nothing below K_min, a line up to P_max, and everything above K_max?

Packets and marks are counted from one sample to the next, each microsecond at 10 Gbit/s, where a packet of
1,514 B takes 1.2 us: what came is the rise of the backlog and what left. The backlog that they met is known
to a packet or two, of the 120 that the ramp is long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from testbed.analysis.stats import Floats
from testbed.record.reader import Record
from testbed.validation.bench import Bench
from testbed.validation.cases import Case
from testbed.validation.rows import Row, about, at_most
from testbed.validation.scenes import PORT, STAR

MTU = 1500
FRAME_BYTES = MTU + 14
KMIN, KMAX, PMAX = 60_000, 240_000, 0.2
RAMP = [
    *("fabric.host_link.rate=10gbit", f"fabric.mtu={MTU}", "measure.interval=1us", "measure.progress=100us"),
    f"fabric.queue.kmin={KMIN}b",
    f"fabric.queue.kmax={KMAX}b",
    f"fabric.queue.pmax={PMAX}",
    *("hosts.prefill.count=4", "transport.congestion_control=cubic", "transport.ecn=true"),
]
LOADS = ((8, "1mib"), (32, "256kib"), (56, "192kib"), (72, "160kib"), (88, "128kib"))
"""Numbers of transfers, each with its size. A sender's window is two packets at least, so that a queue of
every depth up to K_max and above is kept up by some number of them."""

BINS = 9
SIGMAS = 3.3
"""Half-width of the bands, in standard deviations: one right bin in a thousand would be outside."""

RED = "tc-red(8), Floyd and Jacobson 1993"
BAND = (
    "binomial band, one in a thousand outside; and 2p/(1+p) of evenly spaced marks, which lies up to 0.0053 "
    "above the line between its ends"
)


@dataclass(frozen=True)
class Met:
    """For turns in which packets came: the least and the largest backlog (bytes) any of them met, their
    number, and how many of them were marked."""

    least: Floats
    most: Floats
    packets: Floats
    marked: Floats

    def where(self, chosen: NDArray[np.bool_]) -> Met:
        """Return the chosen turns."""
        return Met(self.least[chosen], self.most[chosen], self.packets[chosen], self.marked[chosen])

    @property
    def backlog(self) -> Floats:
        """What the packets of each turn met, on average."""
        return (self.least + self.most) / 2

    @property
    def share(self) -> float:
        """The share of all packets that were marked; no number without packets, so that no bound holds."""
        return float(self.marked.sum() / self.packets.sum()) if len(self.packets) else math.nan


def met(record: Record) -> Met:
    """Return what packets met between samples. Turns in which anything but full packets came are left out."""
    series = record.series(PORT)
    left = np.diff(series.bytes)
    came = np.diff(series.backlog_bytes) + left
    use = (came > 0) & (came % FRAME_BYTES == 0) & (np.diff(series.drops) == 0)
    before, packets = series.backlog_bytes[:-1][use], came[use] // FRAME_BYTES
    marks = np.diff(series.ce_marks)[use]
    parts = (np.maximum(before - left[use], 0), before + (packets - 1) * FRAME_BYTES, packets, marks)
    return Met(*(part.astype(np.float64) for part in parts))


def ramp(bench: Bench, seeds: int) -> list[Row]:
    """Return the share of marked packets below K_min, in each part of the ramp, and above K_max."""
    records = [
        bench.valid(
            STAR, [*RAMP, f"workload.requests.count={count}", f"workload.requests.kv_bytes={size}"], seed=seed
        )
        for count, size in LOADS
        for seed in range(1, seeds + 1)
    ]
    found = [met(record) for record in records]
    every = Met(*(np.concatenate([getattr(part, field.name) for part in found]) for field in fields(Met)))
    below, above = every.where(every.most < KMIN), every.where(every.least >= KMAX)
    rows = [
        about(
            "marking.ramp.below",
            f"share marked of {below.packets.sum():,.0f} packets that met less than K_min",
            below.share,
            0,
            "",
            why="no chance is in it",
            source=RED,
        ),
        about(
            "marking.ramp.above",
            f"share marked of {above.packets.sum():,.0f} packets that met K_max or more",
            above.share,
            1,
            "",
            why="no chance is in it",
            source=RED,
        ),
    ]
    edges = np.linspace(KMIN, KMAX, BINS + 1)
    for number, (low, high) in enumerate(pairwise(edges), 1):
        inside = every.where(
            (every.backlog >= low) & (every.backlog < high) & (every.least >= KMIN) & (every.most < KMAX)
        )
        rows.append(_bin(number, inside, (low, high)))
    return rows


def _bin(number: int, inside: Met, edges: tuple[float, float]) -> Row:
    count = float(inside.packets.sum())
    chance = PMAX * (inside.backlog - KMIN) / (KMAX - KMIN)
    line = float((chance * inside.packets).sum() / count) if count else math.nan
    band = SIGMAS * math.sqrt(max(line * (1 - line), 0) / max(count, 1))
    return about(
        f"marking.ramp.{number}",
        f"share marked of {count:,.0f} packets that met {edges[0] / 1000:.0f} to {edges[1] / 1000:.0f} kB",
        inside.share,
        line,
        "",
        floor=band + excess(line),
        why=BAND,
        source=RED,
    )


def excess(share: float) -> float:
    """Return by how much evenly spaced marks exceed `share` on the ramp: the kernel's p marks 2p/(1+p), and
    is set so that this is P_max at the top."""
    p = share / PMAX * PMAX / (2 - PMAX)
    return 2 * p / (1 + p) - share


K = 100_000
STEP = [
    *("fabric.host_link.rate=10gbit", f"fabric.mtu={MTU}", "measure.interval=1us", "measure.progress=100us"),
    *("fabric.queue.kmin=100kb", "fabric.queue.kmax=100kb", "workload.requests.kv_bytes=2mib"),
]


def step(bench: Bench) -> list[Row]:
    """Return the share of marked packets on both sides of a single threshold, as DCTCP wants it."""
    every = met(bench.valid(STAR, STEP))
    below, above = every.where(every.most < K), every.where(every.least >= K)
    return [
        about(
            f"marking.step.{name}",
            f"share marked of {part.packets.sum():,.0f} packets that met {words} than K = 100 kB",
            part.share,
            expected,
            "",
            why="no chance is in it",
            source="RFC 8257",
        )
        for name, words, part, expected in (("below", "less", below, 0), ("above", "no less", above, 1))
    ]


PACED = [
    *(
        "fabric.host_link.rate=10gbit",
        "hosts.prefill.count=1",
        "fabric.queue.kmin=10kb",
        "fabric.queue.kmax=10kb",
    ),
    *("workload.requests=null", "workload.transfers=[{from: p1, to: d1, bytes: 16mib, rate: 5gbit}]"),
]


def delay(bench: Bench) -> list[Row]:
    """Return the marks of one flow at half the rate, over no delay and over 10 ms (6 MB on the way)."""
    rows = []
    for text in ("0us", "10ms"):
        record = bench.valid(STAR, [*PACED, f"fabric.host_link.delay={text}"])
        rows.append(
            at_most(
                f"marking.delay.{text}",
                f"marks at K = 10 kB of a flow paced at half the rate, links of {text}",
                record.totals(PORT)["ce_marks"],
                0,
                "",
                why="what is on the wire is in no queue",
                source="half load keeps no queue",
            )
        )
    return rows


CASES = (
    Case("marking.ramp", "marking probability by queue depth", ramp),
    Case("marking.step", "a single threshold", lambda bench, _seeds: step(bench), quick=True),
    Case("marking.delay", "delay is never counted as queue", lambda bench, _seeds: delay(bench)),
)
