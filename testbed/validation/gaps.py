"""Does a backlogged port send its packets when an ideal one would?

Mininet-HiFi's invariant (Handigol and others, CoNEXT 2012): the gap between two departures of a backlogged
port is the packet's size over the rate. Each departure's time is the kernel's, taken where the packet leaves.
"""

from __future__ import annotations

import math

import numpy as np

from testbed.analysis.gaps import backlogged_gaps, percentile
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
HIFI = "Mininet-HiFi's recorded data (mininet-tests): p99 5.8 % at 100 Mbit/s, 11,550 % at 1 Gbit/s"

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
    measured, ideal = backlogged_gaps(record, PORT, 1)
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
    measured, ideal = backlogged_gaps(record, PORT, unit)
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


CASES = tuple(
    Case(
        f"gaps.{speed[0]}",
        f"departures of a backlogged port at {speed[0]}",
        lambda bench, _seeds, speed=speed: gaps(bench, *speed),  # type: ignore[misc]
        quick=speed[0] in ("100mbit", "100gbit"),
    )
    for speed in SPEEDS
)
