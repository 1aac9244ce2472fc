"""Does a backlogged port send its packets when an ideal one would?

Mininet-HiFi's invariant (Handigol and others, CoNEXT 2012): the gap between two departures of a backlogged
port is the packet's size over the rate. Each departure's time is the kernel's, taken where the packet leaves.
"""

from __future__ import annotations

import math

import numpy as np

from testbed.analysis.stats import Floats
from testbed.record.reader import Record
from testbed.validation.bench import Bench
from testbed.validation.cases import Case
from testbed.validation.rows import Row, at_most
from testbed.validation.scenes import PORT, STAR

STEP_NS = 8
"""The virtual clock's step and its shortest timer (scripts/build-kernel.sh)."""

BUCKET_NS = 64
"""The token bucket of every link, in time at its rate (`testbed.lab.qdiscs.burst_ns`)."""

UNIT_NS = 160 * STEP_NS
"""The shortest stretch over which 1 % can be told: a step at either end, of the time and of the departure, is
12 ns or so in the worst hundredth."""

SHARE_PERCENT = 1.0
HIFI = "Mininet-HiFi's recorded data, REFERENCE: p99 5.8 % at 100 Mbit/s, 11,550 % at 1 Gbit/s"

SPEEDS = (
    ("100mbit", 100_000_000, 1500, "1mib", "1ms"),
    ("1gbit", 1_000_000_000, 1500, "4mib", "100us"),
    ("10gbit", 10_000_000_000, 1500, "8mib", "10us"),
    ("100gbit", 100_000_000_000, 4200, "16mib", "2us"),
    ("400gbit", 400_000_000_000, 9000, "64mib", "1us"),
)


def gaps(bench: Bench, name: str, rate_bps: int, mtu: int, size: str, interval: str) -> list[Row]:
    """Return the deviation of gaps from size over rate, in the unit of a frame and in that of a burst."""
    sets = [f"fabric.host_link.rate={name}", f"fabric.mtu={mtu}", f"workload.requests.kv_bytes={size}"]
    record = bench.valid(STAR, [*sets, f"measure.interval={interval}", f"measure.departures=[{PORT}]"])
    frame_ns = (mtu + 14) * 8e9 / rate_bps
    unit = max(1, math.ceil(UNIT_NS / frame_ns))
    # A link that has got a packet away early pays for it with the next: two steps and the bucket, in all.
    bound_ns = BUCKET_NS + 2 * STEP_NS
    measured, ideal = departures(record, 1)
    rows = [
        at_most(
            f"gaps.{name}.frame",
            f"gap between two frames of {mtu + 14} B of a backlogged port, p99 of |measured - size/rate|",
            percentile(np.abs(measured - ideal), 99),
            bound_ns,
            "ns",
            why=f"the token bucket of {BUCKET_NS} ns and two steps of {STEP_NS} ns of the clock",
            source="docs/lab.md",
        )
    ]
    measured, ideal = departures(record, unit)
    burst = "a frame" if unit == 1 else f"{unit} frames"
    rows.append(
        at_most(
            f"gaps.{name}.burst",
            f"time of {burst} ({unit * frame_ns:,.0f} ns) of a backlogged port, p99 of |deviation|",
            100 * percentile(np.abs(measured / ideal - 1), 99),
            SHARE_PERCENT,
            "%",
            why=f"1 % of no less than {UNIT_NS:,} ns, of which the bucket may take a part",
            source=HIFI,
        )
    )
    return rows


def departures(record: Record, unit: int) -> tuple[Floats, Floats]:
    """Return measured and ideal ns of each `unit` packets in a row that left while the port had a backlog.

    A packet leaves when the one before it has been sent: the time from packet i to i + unit is that of the
    packets i to i + unit - 1. The port is backlogged from one sample to the next when both saw what it sends
    meanwhile, and so did those around them.
    """
    left, series = record.departures(PORT), record.series(PORT)
    rate_bps = record.plan.topology.link(PORT).rate_bps
    level = max(2 * (record.plan.mtu + 14), rate_bps * record.plan.measure.interval_ns / 8e9)
    high = series.backlog_bytes > level
    steady = high[:-1] & high[1:]
    slot = np.clip(np.searchsorted(series.time_ns, left.time_ns, "right") - 1, 0, len(steady) - 1)
    inside = (left.time_ns >= series.time_ns[0]) & (left.time_ns < series.time_ns[-1])
    busy = np.cumsum(np.concatenate(([0], ~(steady[slot] & inside))))
    sent = np.concatenate(([0], np.cumsum(left.frame_bytes)))
    count = len(left.time_ns) - unit
    measured = (left.time_ns[unit:] - left.time_ns[:-unit]).astype(np.float64)
    ideal = (sent[unit : unit + count] - sent[:count]) * 8e9 / rate_bps
    whole = busy[unit + 1 : unit + 1 + count] == busy[:count]
    return measured[whole], ideal[whole]


def percentile(values: Floats, q: float) -> float:
    """Return a percentile; no number when there are no values, so that no bound holds."""
    return float(np.percentile(values, q)) if len(values) else math.nan


CASES = tuple(
    Case(
        f"gaps.{speed[0]}",
        f"departures of a backlogged port at {speed[0]}",
        lambda bench, _seeds, speed=speed: gaps(bench, *speed),  # type: ignore[misc]
        quick=speed[0] in ("100mbit", "100gbit"),
    )
    for speed in SPEEDS
)
