"""Checks of the measurement that look at the lab itself: packets, places of loss, queues, and a real clock's
processors and gaps.

As those of `fidelity`, which lists them: each a small function of the record.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.analysis.gaps import backlogged_gaps, percentile
from testbed.analysis.links import STANDING_PACKETS, full_packet_bytes
from testbed.analysis.transfers import completions
from testbed.errors import InputError
from testbed.plan.model import Transfer
from testbed.record.reader import LinkSeries, Record

IDLE_LEAST = 0.02
"""So much of every second the processors must have been idle: two of the kernel's ticks in a hundred. With
none, something waited for its turn that a network would not have kept waiting."""

GAP_SHARE = 0.10
"""On a real clock 99 of 100 gaps of the busiest port may be off by so much: Mininet-HiFi's at 100 Mbit/s, its
safe rate, were by 5.8 %."""

GAP_UNIT_NS = 500_000
"""The unit of those gaps is as many frames as take so long in laboratory time: ten times the bucket of
50 us, which makes up for a real timer that is late (`testbed.lab.qdiscs.burst_ns`)."""

IDLE = "the processors had idle time in every second"

MEANT_SHARE = 0.5
LEAST_SAMPLES = 10
"""A host's queue is judged by the samples at which the network should have been the bottleneck, when there
are so many; in more than this share of them the queue must not be the host's."""


@dataclass(frozen=True)
class Check:
    """The result of one check; `detail` is a sentence with the figures, and the reason where `ok` is
    False."""

    name: str
    ok: bool
    detail: str


def check_packets(record: Record) -> Check:
    """No packet was larger than the MTU: with segmentation offload a queue counts 64 kB as one packet."""
    full = full_packet_bytes(record)
    large = []
    for name in record.link_names:
        series = record.series(name)
        sent, packets = np.diff(series.bytes), np.diff(series.packets)
        over = sent > (packets + 1) * full  # one may be between the two counters
        if over.any():
            worst = float((sent[over] / np.maximum(packets[over], 1)).max())
            large.append(f"{name} ({worst:.0f} bytes)")
    if not large:
        return Check("packets", True, f"no packet was larger than {full} bytes")
    return Check("packets", False, f"packets were larger than {full} bytes: {_some(large)}")


def check_stray_drops(record: Record) -> Check:
    """Nothing was lost but in the queues that may drop."""
    meant = "delay stage " if record.plan.loss else "\0"  # there, packets are lost on purpose
    lost = [
        f"{place} ({count})"
        for place, count in record.stray_drops.items()
        if count and not place.startswith(meant)
    ]
    if not lost:
        return Check("stray_drops", True, "no packet was lost outside the queues")
    return Check("stray_drops", False, f"packets were lost outside the queues: {_some(lost)}")


def check_host_queue(record: Record) -> Check:
    """Where senders meet in the network, the queue stood there and not in the hosts.

    Judged is each host that sends one transfer at a time, while others send to the same host: the receiver's
    port has to be shared, so the sender's own NIC cannot be what limits.
    """
    spans = _spans(record)
    wrong = [nic for nic in dict.fromkeys(nic for nic, _ in spans) if _queued_at_home(record, nic, spans)]
    if not wrong:
        return Check("host_queue", True, "no host kept a queue that belonged into the network")
    return Check(
        "host_queue", False, f"queues stood in hosts where senders met in the network: {_some(wrong)}"
    )


Spans = dict[tuple[str, str], list[tuple[int, int]]]
"""When (start and end, ns) transfers ran from a NIC to a receiver's port."""


def _spans(record: Record) -> Spans:
    """Return the spans of all transfers that nothing but the network slows."""
    found: Spans = {}
    cables = {link.name for link in record.plan.topology.links}
    for done in completions(record):
        path = [name for name in record.paths.get(done.transfer.id) or () if name in cables]
        if len(path) > 1 and not _slowed(record, done.transfer):
            found.setdefault((path[0], path[-1]), []).append((done.outcome.start_ns, done.end_ns))
    return found


def _slowed(record: Record, transfer: Transfer) -> bool:
    """Whether a transfer is paced or lands more slowly than the network brings it: no queue is due then.

    Or one whose bytes are released in parts, as layers are computed: it is silent, then as fast as its NIC.
    """
    topology = record.plan.topology
    landing = topology.landing(transfer.dst, transfer.dst_gpu, transfer.dst_nic)
    in_parts = transfer.id in record.served.releases
    return bool(transfer.pace_bps) or landing is not None or in_parts


def _queued_at_home(record: Record, nic: str, spans: Spans) -> bool:
    series = record.series(nic)
    times = series.time_ns
    if not len(times):
        return False
    level = STANDING_PACKETS * full_packet_bytes(record)
    alone = _running(times, [span for (name, _), own in spans.items() if name == nic for span in own]) == 1
    meant, elsewhere = np.zeros(len(times), bool), np.zeros(len(times), bool)
    for port in [port for name, port in spans if name == nic]:
        own = _running(times, spans[nic, port])
        every = _running(
            times, [span for (_, other), all_ in spans.items() if other == port for span in all_]
        )
        shared = alone & (own > 0) & (every > own)
        meant |= shared
        elsewhere |= shared & (_backlog_at(record.series(port), times) > level)
    if int(meant.sum()) < LEAST_SAMPLES:
        return False
    home = meant & (series.backlog_bytes > level) & ~elsewhere
    return bool(home.sum() > MEANT_SHARE * meant.sum())


def _running(times: NDArray[np.int64], spans: list[tuple[int, int]]) -> NDArray[np.int64]:
    """Return how many of the spans hold each of the times."""
    starts = np.sort(np.array([start for start, _ in spans], np.int64))
    ends = np.sort(np.array([end for _, end in spans], np.int64))
    begun = np.searchsorted(starts, times, "right")
    return np.asarray(begun - np.searchsorted(ends, times, "right"), np.int64)


def _backlog_at(series: LinkSeries, times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the backlog at the last sample before each of the times; 0 without samples."""
    if not len(series.time_ns):
        return np.zeros(len(times), np.int64)
    return series.backlog_bytes[np.clip(np.searchsorted(series.time_ns, times, "right") - 1, 0, None)]


def check_processors(record: Record) -> Check:
    """On a real clock, the processors had idle time in every second."""
    if record.plan.clock != "real":
        return Check("processors", True, IDLE)  # computing takes no time there
    if not record.processors:  # it was over within a second
        return Check("processors", True, IDLE)
    worst_ns, least = min(record.processors, key=lambda row: row[1])
    if least >= IDLE_LEAST:
        return Check("processors", True, IDLE)
    busy = sum(idle < IDLE_LEAST for _, idle in record.processors)
    return Check(
        "processors",
        False,
        f"the processors had no idle time in {busy} of {len(record.processors)} seconds, the worst at "
        f"{worst_ns / 1e9:.0f} s; raise dilation",
    )


def check_departures(record: Record) -> Check:
    """Recorded departures are complete, and on a real clock the busiest port sent when it should have."""
    for link in record.plan.measure.departures:
        try:
            lost = record.departures(link).lost
        except InputError:
            return Check("departures", False, f"the departures of {link} were not recorded")
        if lost:
            return Check("departures", False, f"{lost} departures of {link} were not recorded")
        off = _gap_deviation(record, link) if record.plan.clock == "real" else math.nan
        if off > GAP_SHARE:
            return Check(
                "departures",
                False,
                f"gaps between departures of {link} are off by {100 * off:.3g} % (p99); raise dilation",
            )
    return Check("departures", True, f"departures of {len(record.plan.measure.departures)} links are sound")


def _gap_deviation(record: Record, link: str) -> float:
    """Return the 99th percentile of the gaps' deviation, no number where there was never a backlog."""
    frame_ns = full_packet_bytes(record) * 8e9 / record.plan.topology.link(link).rate_bps
    unit = max(1, math.ceil(GAP_UNIT_NS / (frame_ns * record.plan.dilation)))
    measured, ideal = backlogged_gaps(record, link, unit)
    return percentile(np.abs(measured / ideal - 1), 99)


def _some(items: list[str]) -> str:
    shown = ", ".join(items[:5])
    return shown + (f", and {len(items) - 5} more" if len(items) > 5 else "")
