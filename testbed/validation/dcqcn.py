"""DCQCN: the sender's state machine step by step, and the queue at which its fluid model stands still."""

from __future__ import annotations

from testbed.validation.bench import Bench
from testbed.validation.cases import Case
from testbed.validation.dctcp import queue
from testbed.validation.rows import Row, about
from testbed.validation.scenes import STAR
from traffic.roce.dcqcn import SETS, ReactionPoint

LINE_BPS = 40_000_000_000
PAPER = SETS["paper"].parameters
ZHU = "Zhu and others, SIGCOMM 2015"
EXACT = "arithmetic; nothing is measured"
TIMERS = 100


def machine(_bench: Bench, _seeds: int) -> list[Row]:
    """Return what alpha and rate are after notifications and timers, from the paper's equations."""
    point = ReactionPoint(PAPER, LINE_BPS)
    point.on_cnp(0)
    after_cut = point.rate_bps / LINE_BPS
    point.on_cnp(0)  # a target below the line's rate, which it cannot exceed
    alpha = point.alpha
    gap_bps = point.target_bps - point.rate_bps
    point.advance(PAPER.fast_recovery * PAPER.rate_timer_ns)
    left = (point.target_bps - point.rate_bps) / gap_bps
    before_bps = point.target_bps
    point.advance((PAPER.fast_recovery + 1) * PAPER.rate_timer_ns)
    step_bps = point.target_bps - before_bps
    point.advance(TIMERS * PAPER.alpha_timer_ns)
    decayed = point.alpha / alpha
    rows = [
        ("cut", "rate after the first notification, of the line's", after_cut, 0.5, "", "R (1 - alpha / 2)"),
        ("recovery", "part of the cut left after 5 rate timers", left, 0.5**5, "", "half of it each time"),
        ("additive", "what the 6th raises the target by", step_bps / 1e6, 40, "Mbit/s", "R_AI"),
        (
            "alpha", f"alpha after {TIMERS} timers without a notification, of what it was",
            decayed, (1 - PAPER.g) ** TIMERS, "", "(1 - g) each time",
        ),
    ]  # fmt: skip
    return [
        about(
            f"dcqcn.machine.{name}", what, measured, expected, unit,
            share=1e-9, why=EXACT, source=f"{ZHU}: {equation}",
        )
        for name, what, measured, expected, unit, equation in rows
    ]  # fmt: skip


FIXED = [
    *("fabric.host_link={rate: 40gbit, delay: 1us}", "fabric.mtu=1500"),
    "fabric.queue={kmin: 5kb, kmax: 200kb, pmax: 0.01, limit: 8mb}",
    *("transport={kind: roce, dcqcn: paper, mtu: 1024}", "workload.requests.kv_bytes=150mib"),
]
MODEL_BYTES = 21_500
WARM_NS = 20_000_000
FRAME_BYTES = 1514
"""What `dctcp.queue` counts in."""


def fixed_point(bench: Bench, _seeds: int) -> list[Row]:
    """Return the mean queue of two flows once the start's queue is gone."""
    found = queue(bench.valid(STAR, FIXED), WARM_NS)
    return [
        about(
            "dcqcn.fixed-point.2", "mean queue of two flows at 40 Gbit/s, thresholds 5 and 200 KB, 1 %",
            found.mean * FRAME_BYTES / 1000, MODEL_BYTES / 1000, "kB", share=0.2,
            why="20 %: the model counts notifications on average and has no interval between them",
            source=f"fluid model of {ZHU}: 20.2 KB for packets of 1,000 B, 21.5 for 1,082",
        )
    ]  # fmt: skip


CASES = (
    Case("dcqcn.machine", "the sender's state machine", machine, quick=True),
    Case("dcqcn.fixed-point", "the queue of two flows", fixed_point),
)
