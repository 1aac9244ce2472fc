"""DCTCP's queue against its published model, against hardware, and against a threshold that is too low."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from testbed.analysis.stats import weighted_percentile
from testbed.record.reader import Record
from testbed.validation.bench import Bench
from testbed.validation.cases import Case
from testbed.validation.rows import Row, at_least, at_most, between
from testbed.validation.scenes import PORT, STAR, senders, sent_bps

MTU = 1500
FRAME_BYTES = MTU + 14
MODEL = "Alizadeh and others, SIGCOMM 2010: Qmax = K + N, A = sqrt(2 N (C RTT + K)) / 2"
HARDWARE = "mininet-tests dctcp/results, three hosts at 100 Mbit/s, N = 2, K = 20 packets, buffer 425"


@dataclass(frozen=True)
class Setting:
    """N flows of one DCTCP experiment: rate, K in packets, round trip without queues, how long it is run."""

    name: str
    rate_bps: int
    k_packets: int
    rtt_us: int
    payload: str
    warm_ns: int
    interval: str
    flows: int = 2

    @property
    def sets(self) -> list[str]:
        """Settings of the scenario."""
        return [
            *senders(self.flows),
            f"fabric.host_link={{rate: {self.rate_bps // 1_000_000}mbit, delay: {self.rtt_us / 4:g}us}}",
            f"fabric.mtu={MTU}",
            f"fabric.queue={{kmin: {self.k_packets * FRAME_BYTES}b, kmax: {self.k_packets * FRAME_BYTES}b, "
            f"limit: {425 * FRAME_BYTES}b}}",
            f"workload.requests.kv_bytes={self.payload}",
            f"measure.interval={self.interval}",
            "measure.progress=10ms",
        ]

    @property
    def bandwidth_delay(self) -> float:
        """C x RTT in packets."""
        return self.rate_bps * self.rtt_us / 1e6 / 8 / FRAME_BYTES

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest queue of the model, in packets."""
        amplitude = math.sqrt(2 * self.flows * (self.bandwidth_delay + self.k_packets)) / 2
        top = self.k_packets + self.flows
        return top - amplitude, top


SLOW = Setting("100mbit", 100_000_000, 20, 250, "32mib", 1_000_000_000, "1ms")
MIDDLE = Setting("1gbit", 1_000_000_000, 20, 100, "16mib", 100_000_000, "50us")
FAST = Setting("10gbit", 10_000_000_000, 65, 100, "96mib", 40_000_000, "10us")


@dataclass(frozen=True)
class Queue:
    """A queue's distribution over time, in packets, and the mean rate of its link meanwhile."""

    mean: float
    p5: float
    p50: float
    p95: float
    max: float
    rate_bps: float


def queue(record: Record, warm_ns: int) -> Queue:
    """Return the distribution of the port's queue while all flows ran, from `warm_ns` on."""
    series = record.series(PORT)
    end_ns = min((outcome.end_ns or 0) for outcome in record.outcomes)
    inside = (series.time_ns >= warm_ns) & (series.time_ns < end_ns)
    levels = series.backlog_bytes[inside] / FRAME_BYTES
    weights = np.diff(np.append(series.time_ns[inside], end_ns)).astype(np.float64)
    p5, p50, p95 = (weighted_percentile(levels, weights, q) for q in (5, 50, 95))
    mean = float((levels * weights).sum() / weights.sum()) if len(levels) else math.nan
    top = float(levels.max()) if len(levels) else math.nan
    return Queue(mean, p5, p50, p95, top, sent_bps(series, warm_ns, end_ns))


def model(bench: Bench, setting: Setting) -> list[Row]:
    """Return the rows of one setting against the model, and its throughput."""
    found = queue(bench.valid(STAR, setting.sets), setting.warm_ns)
    low, high = setting.bounds
    name = f"dctcp.{setting.name}"
    what = f"N = {setting.flows}, K = {setting.k_packets} packets, RTT {setting.rtt_us} us: "
    why = (
        "two packets at either end, because an ACK for two packets releases two at once, of each flow; and "
        "whole packets, without the one being sent"
    )
    return [
        between(
            f"{name}.mean",
            what + "mean queue",
            found.mean,
            low,
            high,
            "packets",
            why="the model's own bounds",
            source=MODEL,
        ),
        between(
            f"{name}.p5",
            what + "5th percentile of the queue",
            found.p5,
            math.floor(low - setting.flows),
            high,
            "packets",
            why=why,
            source=MODEL,
        ),
        between(
            f"{name}.p95",
            what + "95th percentile of the queue",
            found.p95,
            low,
            high + setting.flows,
            "packets",
            why=why,
            source=MODEL,
        ),
        at_least(
            f"{name}.throughput",
            what + "rate of the port",
            100 * found.rate_bps / setting.rate_bps,
            99,
            "%",
            why="K is above C x RTT / 7, so the queue never runs empty; 1 % as for shaping",
            source=MODEL,
        ),
    ]


def hardware(bench: Bench) -> list[Row]:
    """Return the rows of the setting that was measured on hardware; the run is the model's."""
    found = queue(bench.valid(STAR, SLOW.sets), SLOW.warm_ns)
    what = "N = 2, K = 20 packets, 100 Mbit/s: "
    why = "hardware 19.0 and Mininet-HiFi 20.4, two packets to either side"
    tail = "hardware 20.7, Mininet-HiFi 22, two packets more"
    return [
        between(
            "dctcp.hardware.mean",
            what + "mean queue",
            found.mean,
            17,
            22,
            "packets",
            why=why,
            source=HARDWARE,
        ),
        at_most(
            "dctcp.hardware.p95",
            what + "95th percentile",
            found.p95,
            24,
            "packets",
            why=tail,
            source=HARDWARE,
        ),
    ]


BUFFER_PACKETS = 425
CUBIC = [
    *Setting("", 100_000_000, 20, 250, "48mib", 0, "1ms").sets,
    *("transport.congestion_control=cubic", "transport.ecn=false"),
]
CUBIC_WARM_NS = 2_000_000_000


def cubic(bench: Bench) -> list[Row]:
    """Return the queue of two cubic flows, which fill any buffer."""
    found = queue(bench.valid(STAR, CUBIC), CUBIC_WARM_NS)
    return [
        between(
            "dctcp.cubic.p95",
            "two cubic flows, buffer 425 packets, 100 Mbit/s: 95th percentile of the queue",
            found.p95,
            0.95 * BUFFER_PACKETS,
            BUFFER_PACKETS,
            "packets",
            why="5 % of the buffer; hardware and Mininet-HiFi have 418",
            source=HARDWARE,
        ),
        at_least(
            "dctcp.cubic.throughput",
            "two cubic flows: rate of the port",
            found.rate_bps / 1e6,
            99,
            "Mbit/s",
            why="the buffer is 20 round trips deep; 1 % as for shaping",
            source="the scenario",
        ),
    ]


LOW_K = Setting("low-k", 10_000_000_000, 2, 200, "48mib", 40_000_000, "10us")
HIGH_K = Setting("high-k", 10_000_000_000, 65, 200, "48mib", 40_000_000, "10us")
"""From half the window a flow needs 41 round trips to fill the link again: 40 ms are five times that."""


def threshold(bench: Bench) -> list[Row]:
    """Return the throughput with K far below and above C x RTT / 7, which are 24 packets here."""
    rows = []
    for setting, low, high in ((HIGH_K, 99.0, math.inf), (LOW_K, -math.inf, 97.0)):
        found = queue(bench.valid(STAR, setting.sets), setting.warm_ns)
        least = setting.bandwidth_delay / 7
        rows.append(
            between(
                f"dctcp.threshold.{setting.name}",
                f"rate of the port with K = {setting.k_packets} packets, where C RTT / 7 is {least:.0f}",
                100 * found.rate_bps / setting.rate_bps,
                low,
                high,
                "%",
                why="above the bound the link stays full (1 % as for shaping), far below it does not",
                source="Alizadeh and others: no underflow if K > C RTT / 7",
            )
        )
    return rows


CASES = (
    Case("dctcp.100mbit", "the queue at 100 Mbit/s, K = 20", lambda bench, _seeds: model(bench, SLOW)),
    Case("dctcp.hardware", "the same against hardware", lambda bench, _seeds: hardware(bench)),
    Case(
        "dctcp.1gbit", "the queue at 1 Gbit/s, K = 20", lambda bench, _seeds: model(bench, MIDDLE), quick=True
    ),
    Case("dctcp.10gbit", "the queue at 10 Gbit/s, K = 65", lambda bench, _seeds: model(bench, FAST)),
    Case("dctcp.cubic", "cubic fills the buffer", lambda bench, _seeds: cubic(bench)),
    Case("dctcp.threshold", "K below C RTT / 7", lambda bench, _seeds: threshold(bench)),
)
