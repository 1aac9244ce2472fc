"""DCQCN: the sender's state machine step by step, and the queue at which its fluid model stands still."""

from __future__ import annotations

import math
from functools import partial
from statistics import fmean

import numpy as np

from testbed.analysis.stats import jain
from testbed.record.reader import Record
from testbed.validation.bench import Bench
from testbed.validation.cases import Case
from testbed.validation.dctcp import FRAME_BYTES as UNIT_BYTES
from testbed.validation.dctcp import queue
from testbed.validation.rows import Row, about, at_least
from testbed.validation.scenes import STAR, senders
from traffic.roce.dcqcn import SETS, ReactionPoint
from traffic.roce.icrc import ICRC_BYTES
from traffic.roce.packets import BTH_BYTES, FRAME_HEADER

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


KMIN_BYTES, KMAX_BYTES, PMAX = 5_000, 200_000, 0.01
PAYLOAD_BYTES = 1024
FRAME_BYTES = FRAME_HEADER + BTH_BYTES + PAYLOAD_BYTES + ICRC_BYTES
ALL_MIB = 512
WARM_NS = 75_000_000
"""By then the senders have come back from the cuts at the start, and the queue has a mean that stays."""
FIXED_SEEDS = (1, 2, 3)

FIXED = [
    *("fabric.host_link={rate: 40gbit, delay: 1us}", "fabric.mtu=1500"),
    f"fabric.queue={{kmin: {KMIN_BYTES}b, kmax: {KMAX_BYTES}b, pmax: {PMAX}, limit: 8mb}}",
    f"transport={{kind: roce, dcqcn: paper, mtu: {PAYLOAD_BYTES}}}",
]
STEADY = (
    0.2,
    "20 %: in the model a cut may follow another at once; here not for 50 us, in which the rate is furthest "
    "below its target, so that it takes more marks",
)
SWINGING = (
    0.35,
    "35 %: with 8 the queue swings from nearly empty to K_max and back, where all are marked; the mean of "
    "that is below the point at which the model would stand still",
)
"""How far the mean queue may be from the model's, and why."""


def fixed_point_bytes(flows: int, line_bps: float, packet_bytes: int) -> float:
    """Return the queue at which the fluid model stands still: every flow's rate, target and alpha constant.

    Zhu and others, equations 5 to 9 with both derivatives zero; the marked share follows by bisection and
    the queue from the ramp.
    """
    rate = line_bps / flows / 8 / packet_bytes
    counter, step = PAPER.byte_counter / packet_bytes, PAPER.additive_bps / 8 / packet_bytes
    timer, interval = PAPER.rate_timer_ns / 1e9, PAPER.cnp_interval_ns / 1e9

    def rises(marked: float) -> bool:
        """Whether the rate rises with so many packets marked."""
        kept = 1 - marked
        cuts = (1 - kept ** (interval * rate)) / interval
        alpha = 1 - kept ** (PAPER.alpha_timer_ns / 1e9 * rate)
        by_bytes = rate * marked / (kept**-counter - 1)
        by_timer = rate * marked / (kept ** (-timer * rate) - 1)
        stages = PAPER.fast_recovery
        gain = step * (kept ** (stages * counter) * by_bytes + kept ** (stages * timer * rate) * by_timer)
        return bool(gain / cuts * (by_bytes + by_timer) > rate * alpha * cuts)

    low, high = 1e-7, 0.5
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if rises(middle) else (low, middle)
    return KMIN_BYTES + low / PMAX * (KMAX_BYTES - KMIN_BYTES)


def fixed_point(flows: int, bench: Bench, _seeds: int) -> list[Row]:
    """Return the mean queue of so many flows, and how alike their rates are, once the start is over."""
    sets = [*FIXED, *senders(flows), f"workload.requests.kv_bytes={ALL_MIB // flows}mib"]
    records = [bench.valid(STAR, sets, seed=seed) for seed in FIXED_SEEDS]
    mean = fmean(queue(record, WARM_NS).mean for record in records)
    share, why = STEADY if flows < 8 else SWINGING
    model = fixed_point_bytes(flows, LINE_BPS, FRAME_BYTES)
    name = f"dcqcn.fixed-point.{flows}"
    return [
        about(
            f"{name}.queue",
            f"mean queue of {flows} flows at 40 Gbit/s, thresholds 5 and 200 KB, 1 %, of three seeds",
            mean * UNIT_BYTES / 1000, model / 1000, "kB", share=share,
            why=why, source=f"fluid model of {ZHU}, packets of {FRAME_BYTES:,} B",
        ),
        at_least(
            f"{name}.fair", f"Jain's index of what the {flows} then moved, mean of three seeds",
            fmean(_fairness(record) for record in records), 0.9, "",
            why="chance chooses who is notified, and of two one has no other to be compared with",
            source=f"{ZHU}: flows converge to equal rates",
        ),
    ]  # fmt: skip


def _fairness(record: Record) -> float:
    """Return Jain's index of the bytes that landed between the start's end and the first transfer's."""
    end_ns = min((outcome.end_ns or 0) for outcome in record.outcomes)
    moved = []
    for outcome in record.outcomes:
        time_ns, landed = record.progress(outcome.id)
        before, after = np.interp([WARM_NS, end_ns], time_ns, landed)
        moved.append(after - before)
    return jain(np.array(moved)) or math.nan


CASES = (
    Case("dcqcn.machine", "the sender's state machine", machine, quick=True),
    *(
        Case(
            f"dcqcn.fixed-point.{flows}",
            f"the queue and the shares of {flows} flows",
            partial(fixed_point, flows),
        )
        for flows in (2, 4, 8)
    ),
)
