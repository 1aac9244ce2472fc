"""Whether the measurement may be believed: a list of checks, each a small function of the record.

A run is valid when every check holds. Nothing here says whether the network did well; a run that is valid
can be as slow as it likes. Called by `summary`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from testbed.analysis.held_rates import held_rates
from testbed.analysis.lab_checks import (
    Check,
    check_departures,
    check_host_queue,
    check_packets,
    check_processors,
    check_stray_drops,
)
from testbed.analysis.links import full_packet_bytes
from testbed.analysis.losses import path_is_known
from testbed.analysis.roce import roce_problems
from testbed.analysis.stats import NS_PER_MS, Floats
from testbed.analysis.timers import timer_problems
from testbed.analysis.transfers import Completion, busy_window, completions
from testbed.plan.model import Queue
from testbed.record import layout
from testbed.record.reader import LinkSeries, Record, SampleGroup
from topologies.model import DEST_LANDING

LATE_FACTOR = 1.5
"""A sample is late when it came after more than so many intervals."""

LATE_SHARE = 0.01
"""At most this share of the samples may be late. Each has its own time and every figure is weighted by it, so
that a little jitter costs nothing; a sampler that keeps missing its turn is on a machine that could not
keep up."""

EXPECTED_MARKS = 30.0
"""Without one mark where so many were to be expected, marking does not work: chance would do it once in
e^30."""

QUEUED_PACKETS, QUEUE_PACKETS = 1000, 100
"""DCTCP without one mark is none where so many packets left a queue of so many: a sender that starts doubles
its window each round trip until it is marked, and thresholds are of twenty to a hundred packets. A shorter
queue may stand below the threshold, where something else (a landing's buffer) limits the window."""

BURST_BYTES = 1_000_000
EARLY_SHARE = 0.02
"""A transfer cannot beat its ideal, except by what the shapers on its path let through at once (under 512 kB
each at 400 Gbit/s) and by rounding: so much is allowed."""

START_FLOOR_NS = 50_000
START_SHARE = 0.05
"""A transfer may begin so much off its planned time: the timer slack of a sleeping process (50 us by Linux's
default) plus a part of its ideal time, below which the overlap of transfers hardly changes."""

HELD_SHARE = 0.98
"""A link must have sent at this share of its rate while packets waited. A completion time is wrong by as much
as the rate is, and twice the one per cent at which completions are compared is no longer the same network."""

COUNTED_SHARE = 0.99
"""A link must have counted at least this share of the payload that arrived over it. Headers come on top, so
only a counter that missed packets, or a wrong path, is below."""


def fidelity(record: Record) -> dict[str, Any]:
    """Return the summary's `fidelity`: `valid`, the `reasons` against it, and every check."""
    checks = [check(record) for check in CHECKS]
    return {
        "valid": all(check.ok for check in checks),
        "reasons": [check.detail for check in checks if not check.ok],
        "checks": [{"name": check.name, "ok": check.ok, "detail": check.detail} for check in checks],
    }


def check_status(record: Record) -> Check:
    """The run came to its end."""
    status, reason = record.manifest.get("status"), record.manifest.get("reason")
    because = f": {reason}" if reason else ""
    return Check("status", status == layout.COMPLETE, f"the run is {status}{because}")


def check_intact(record: Record) -> Check:
    """The record's files are all there and as they were written."""
    if not record.problems:
        return Check("intact", True, "the record is whole")
    return Check("intact", False, "the record is damaged: " + _some(record.problems, "; "))


def check_lossless(record: Record) -> Check:
    """A lossless fabric lost nothing and did not deadlock, or thresholds are wrong or the lab was late."""
    if record.plan.pausing is None:
        return Check("lossless", True, "the fabric may drop")
    deadlock = record.pausings.deadlock
    if deadlock is not None:
        circle = " held by ".join((*deadlock.links, deadlock.links[0]))
        detail = f"deadlock, found {deadlock.time_ns / NS_PER_MS:.6g} ms into the run: {circle}"
        return Check("lossless", False, detail)
    dropping = [
        f"{point.link} ({drops})"
        for point in record.plan.pausing.points
        if (drops := record.totals(point.link)["drops"])
    ]
    if dropping:
        return Check("lossless", False, f"queues of a lossless fabric dropped packets: {_some(dropping)}")
    return Check("lossless", True, "no queue of the lossless fabric dropped a packet")


def check_completed(record: Record) -> Check:
    """Every transfer arrived."""
    failed = [outcome for outcome in record.outcomes if not outcome.completed]
    if not failed:
        return Check("completed", True, f"all {len(record.outcomes)} transfers completed")
    whys = [f"{outcome.id} ({outcome.error or 'not ended'})" for outcome in failed]
    return Check(
        "completed",
        False,
        f"{len(failed)} of {len(record.outcomes)} transfers did not complete: {_some(whys)}",
    )


def check_starts(record: Record) -> Check:
    """Every transfer began when the plan says, so that what should meet in the network did meet."""
    off = [
        f"transfer {done.transfer.id} by {(done.outcome.start_ns - done.transfer.start_ns) / 1000:.6g} us"
        for done in completions(record)
        if abs(done.outcome.start_ns - done.transfer.start_ns)
        > START_FLOOR_NS + START_SHARE * done.transfer.ideal_ns
    ]
    if not off:
        return Check("starts", True, "every completed transfer began on time")
    return Check("starts", False, f"transfers began off their planned time: {_some(off)}")


def check_congestion_control(record: Record) -> Check:
    """Both ends of each connection ran the congestion control, and negotiated the ECN, that was asked for,
    and no timer that dilation does not slow made another one of it."""
    asked, ecn = record.plan.transport.congestion_control, record.plan.transport.ecn
    wrong = [
        f"transfer {outcome.id}: sender {outcome.sender_congestion_control}, "
        f"receiver {outcome.receiver_congestion_control}, ECN {_on(outcome.ecn)}"
        for outcome in record.outcomes
        if outcome.completed
        and (outcome.sender_congestion_control, outcome.receiver_congestion_control, outcome.ecn)
        != (asked, asked, ecn)
    ]
    wanted = f"{asked} with ECN {_on(ecn)}"
    problems = timer_problems(record)
    if not wrong and problems:
        return Check("congestion_control", False, "; ".join(problems))
    if not wrong:
        return Check("congestion_control", True, f"every connection ran {wanted} at both ends")
    return Check("congestion_control", False, f"{wanted} was asked for, but {_some(wrong, '; ')}")


def check_marking(record: Record) -> Check:
    """With ECN, queues that stood above K_min marked something; DCTCP has it, and K_min in its reach."""
    transport = record.plan.transport
    if transport.congestion_control == "dctcp" and not transport.ecn and transport.kind == "tcp":
        return Check("marking", False, "dctcp ran without ECN: nothing was marked, so it is another control")
    silent = [
        f"{queue.link} (about {expected:.0f} expected)"
        for queue in record.plan.queues
        if queue.marking and (expected := _unmarked(record, queue)) >= EXPECTED_MARKS
    ]
    if silent:
        return Check("marking", False, f"queues stood above K_min but no packet was marked: {_some(silent)}")
    unheard = _queued_without_a_mark(record) if transport.congestion_control == "dctcp" else []
    if unheard:
        where = _some(unheard)
        return Check("marking", False, f"dctcp ran without one mark, so it is another control: {where}")
    return Check("marking", True, "no queue stood above its marking threshold without a mark")


def check_sampling(record: Record) -> Check:
    """The samples were taken on time during the busy window: hardly any turn was missed.

    A hole counts as all the samples that are not in it. In virtual time nothing but the lab itself can
    make one: something held all of it up.
    """
    nominal = record.plan.measure.interval_ns
    gaps = np.concatenate([np.empty(0), *(_gaps(record, group) for group in record.groups)])
    if len(gaps) == 0:
        return Check("sampling", False, "no queue was sampled while transfers ran")
    late = gaps > LATE_FACTOR * nominal
    missed = int(np.sum(np.maximum(1, np.round(gaps[late] / nominal) - 1)))
    detail = (
        f"{missed} of {len(gaps) + missed} samples were missed or late, the longest hole is "
        f"{gaps.max() / nominal:.3g} intervals of {nominal / 1000:g} us"
    )
    return Check("sampling", missed <= LATE_SHARE * (len(gaps) + missed), detail)


def check_coverage(record: Record) -> Check:
    """Every link was sampled from before the first start until after the last end."""
    start, end = busy_window(record)
    slack = record.plan.measure.interval_ns
    sampled = set(record.link_names)
    bare = [link.name for link in record.plan.topology.all_links if link.name not in sampled]
    short = [
        group.name
        for group in record.groups
        if len(times := record.sample_times(group)) and (times[0] > start + slack or times[-1] < end - slack)
    ]
    if bare:
        return Check("coverage", False, f"links were not sampled: {_some(bare)}")
    if short:
        return Check("coverage", False, f"samples do not span all transfers: group {_some(short)}")
    return Check(
        "coverage", True, f"all {len(sampled)} links were sampled from the first start to the last end"
    )


def check_host_drops(record: Record) -> Check:
    """A host's own egress dropped nothing: it only shapes, so a drop there is the lab's, not the
    network's. A landing may: its buffer is finite, as the plan says."""
    landings = {stage.name for stage in record.plan.topology.stages if stage.segment == DEST_LANDING}
    dropping = [
        f"{queue.link} ({drops})"
        for queue in record.plan.queues
        if not queue.marking and queue.link not in landings and (drops := record.totals(queue.link)["drops"])
    ]
    if not dropping:
        return Check("host_drops", True, "no host dropped packets at its own egress")
    return Check("host_drops", False, f"hosts dropped packets at their own egress: {_some(dropping)}")


def check_tcp_memory(record: Record) -> Check:
    """No host's TCP ran short of memory: it would have cut its buffers and sent below its window, which is
    the lab's fault and looks like a slow sender."""
    short = [host for host, counters in record.tcp_counters.items() if counters.get("TCPMemoryPressures")]
    if not short:
        return Check("tcp_memory", True, "no host's TCP ran short of memory")
    return Check("tcp_memory", False, f"TCP ran short of memory in {_some(short)}: give the lab more")


def check_roce(record: Record) -> Check:
    """With RoCE, the bytes that landed are those that were sent, marks became notifications, and no packet
    was lost or damaged by the lab itself."""
    problems = roce_problems(record)
    if problems:
        return Check("roce", False, _some(problems, "; "))
    if record.plan.transport.roce is None:
        return Check("roce", True, "no transfer is RoCE")
    return Check("roce", True, "what landed is what was sent, and every notification arrived")


def check_readback(record: Record) -> Check:
    """What was read back from the lab is what the plan asked for."""
    entries = record.facts.get("readback") or []
    wrong = [_readback(entry) for entry in entries if not entry.get("ok")]
    if not entries:
        return Check("readback", False, "nothing was read back from the lab")
    if wrong:
        return Check("readback", False, f"the lab differs from the plan: {_some(wrong, '; ')}")
    return Check("readback", True, f"{len(entries)} settings were read back as planned")


def check_paths(record: Record) -> Check:
    """The way each transfer took is known."""
    unknown = [str(done.transfer.id) for done in completions(record) if not path_is_known(record, done)]
    if not unknown:
        return Check("paths", True, "the path of every completed transfer is known")
    return Check("paths", False, f"the path of {len(unknown)} transfers was not measured: {_some(unknown)}")


def check_counted(record: Record) -> Check:
    """The links counted what arrived over them."""
    arrived: dict[str, int] = {}
    for done in completions(record):
        for name in record.paths.get(done.transfer.id) or ():
            arrived[name] = arrived.get(name, 0) + done.transfer.bytes
    short = [
        f"{name} ({counted} of {expected} bytes)"
        for name, expected in sorted(arrived.items())
        if name in record.link_names and (counted := record.totals(name)["bytes"]) < COUNTED_SHARE * expected
    ]
    if not short:
        return Check("counted", True, "every link counted at least the payload that arrived over it")
    return Check("counted", False, f"links counted less than arrived over them: {_some(short)}")


def check_not_too_fast(record: Record) -> Check:
    """No transfer beat the rate of its links."""
    early = [
        f"transfer {done.transfer.id} "
        f"({done.fct_ns / NS_PER_MS:.6g} ms, ideal {done.transfer.ideal_ns / NS_PER_MS:.6g} ms)"
        for done in completions(record)
        if done.fct_ns < _least_ns(done)
    ]
    if not early:
        return Check("not_too_fast", True, "no transfer was faster than its links allow")
    return Check("not_too_fast", False, f"faster than the links allow, so a rate is not held: {_some(early)}")


def check_rates(record: Record) -> Check:
    """Links that had packets waiting sent them at their rate."""
    held = held_rates(record)
    slow = [f"{name} ({100 * share:.3g} %)" for name, share in held.items() if share < HELD_SHARE]
    if not slow:
        return Check("rates", True, f"{len(held)} links had packets waiting and sent at their rate")
    return Check("rates", False, f"links sent below their rate while packets waited: {_some(slow)}")


CHECKS: tuple[Callable[[Record], Check], ...] = (
    check_status,
    check_intact,
    check_lossless,
    check_completed,
    check_starts,
    check_congestion_control,
    check_marking,
    check_sampling,
    check_coverage,
    check_host_drops,
    check_tcp_memory,
    check_roce,
    check_readback,
    check_paths,
    check_counted,
    check_not_too_fast,
    check_rates,
    check_packets,
    check_stray_drops,
    check_host_queue,
    check_processors,
    check_departures,
)


def _unmarked(record: Record, queue: Queue) -> float:
    """Return how many marks were to be expected on a link that set none; 0 where it did, or ECN is off.

    A queue that drops counts as working too: RED drops what is not ECN-capable where it would mark.
    Between samples, each packet is marked with the probability of the backlog at the earlier one.
    """
    total = record.totals(queue.link)
    if not record.plan.transport.ecn or total["packets"] == 0 or total["ce_marks"] or total["drops"]:
        return 0.0
    series = record.series(queue.link)
    return float((np.diff(series.packets) * marking_probability(series, queue)[:-1]).sum())


def _queued_without_a_mark(record: Record) -> list[str]:
    """Return the links that many packets waited for, with their longest queue; none where any link marked."""
    marking = [queue for queue in record.plan.queues if queue.marking]
    if any(record.totals(queue.link)["ce_marks"] for queue in marking):
        return []
    level = QUEUE_PACKETS * full_packet_bytes(record)
    found = []
    for queue in marking:
        series = record.series(queue.link)
        waited = series.backlog_bytes[:-1] > level
        if int(np.diff(series.packets)[waited].sum()) >= QUEUED_PACKETS:
            most = series.backlog_bytes.max()
            found.append(f"{queue.link} held up to {most} B, K_min is {queue.kmin_bytes} B")
    return found


def marking_probability(series: LinkSeries, queue: Queue) -> Floats:
    """Return the probability that a packet is marked at each sample's backlog: RED without averaging."""
    span = max(queue.kmax_bytes - queue.kmin_bytes, 1)
    rising = np.clip((series.backlog_bytes - queue.kmin_bytes) / span, 0, 1) * queue.pmax
    return np.where(series.backlog_bytes >= queue.kmax_bytes, 1.0, rising)


def _gaps(record: Record, group: SampleGroup) -> Floats:
    start, end = busy_window(record)
    times = record.sample_times(group)
    within = times[(times >= start) & (times <= end)]
    return np.diff(within).astype(np.float64)


def _least_ns(done: Completion) -> float:
    rate = done.transfer.wire_bytes / max(done.transfer.ideal_ns, 1)
    return (1 - EARLY_SHARE) * done.transfer.ideal_ns - BURST_BYTES / rate


def _readback(entry: Mapping[str, Any]) -> str:
    where, what = entry.get("where"), entry.get("what")
    return f"{what} of {where} is {entry.get('found')}, not {entry.get('planned')}"


def _on(flag: bool | None) -> str:
    return "not reported" if flag is None else "on" if flag else "off"


def _some(items: list[str] | tuple[str, ...], separator: str = ", ") -> str:
    shown = separator.join(items[:5])
    return shown + (f"{separator}and {len(items) - 5} more" if len(items) > 5 else "")
