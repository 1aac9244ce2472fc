"""What a RoCE run has beside completion times: notifications, negative answers, and whether the bytes are
right.

Pure functions of the record; nothing for a run by TCP. Called by `summary` and `fidelity`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from testbed.analysis.stats import NS_PER_MS
from testbed.plan.model import Queue
from testbed.record.reader import Record

NS_PER_US = 1_000
_SUMS = ("packets_sent", "not_landed", "ce_packets", "cnps_sent", "cnps_received", "naks", "timeouts")


def summarise_roce(record: Record) -> dict[str, Any] | None:
    """Return the summary's `roce`, None where the transport is another.

    `first_cnp` is the moment when the first sender could know of the congestion: how many bytes stood then in
    the fullest of the queues that mark, what share of all the payload that is, and how much had been sent.
    """
    if record.plan.transport.roce is None:
        return None
    sums = {name: sum(outcome.roce.get(name) or 0 for outcome in record.outcomes) for name in _SUMS}
    gaps = [gap for outcome in record.outcomes if (gap := outcome.roce.get("shortest_cnp_gap_ns"))]
    return {
        **sums,
        "intact": not any(_differing(record)),
        "bad_packets": sum(_bad(record).values()),
        "shortest_cnp_gap_us": min(gaps) / NS_PER_US if gaps else None,
        "first_cnp": _first_cnp(record),
    }


def _first_cnp(record: Record) -> dict[str, Any]:
    known = [
        moment for outcome in record.outcomes if (moment := outcome.roce.get("first_cnp_ns")) is not None
    ]
    if not known:
        return dict.fromkeys(("at_ms", "queue", "queued_bytes", "queued_share"))
    first_ns = min(known)
    backlogs = {
        queue.link: _backlog(record, queue, first_ns) for queue in record.plan.queues if queue.marking
    }
    fullest = max(backlogs, key=lambda name: backlogs[name])
    payload = sum(transfer.bytes for transfer in record.plan.transfers)
    return {
        "at_ms": first_ns / NS_PER_MS,
        "queue": fullest,
        "queued_bytes": backlogs[fullest],
        "queued_share": backlogs[fullest] / payload,
    }


def _backlog(record: Record, queue: Queue, moment_ns: int) -> int:
    series = record.series(queue.link)
    at = int(np.searchsorted(series.time_ns, moment_ns, side="right"))
    return int(series.backlog_bytes[at - 1]) if at else 0


def roce_problems(record: Record) -> list[str]:
    """Return why a RoCE run must not be believed, a sentence each; empty when it may or is none."""
    return list(_problems(record)) if record.plan.transport.roce is not None else []


def _problems(record: Record) -> Iterator[str]:
    if wrong := [str(number) for number in _differing(record)]:
        yield f"the payload of transfers {', '.join(wrong[:5])} is not what was sent"
    if bad := _bad(record):
        yield "packets arrived that none had sent so: " + ", ".join(f"{n} {why}" for why, n in bad.items())
    if lost := record.roce_counters.get("lost_at_sockets"):
        yield f"the lab's own sockets lost packets at {', '.join(lost)}"
    marked = sum(record.totals(queue.link)["ce_marks"] for queue in record.plan.queues)
    seen = sum(outcome.roce.get("ce_packets") or 0 for outcome in record.outcomes)
    drops = sum(record.totals(queue.link)["drops"] for queue in record.plan.queues)
    if seen > marked or (marked and not seen and not drops):
        yield f"queues marked {marked} packets and receivers saw {seen} marked ones"
    sent, received = (
        sum(outcome.roce.get(name) or 0 for outcome in record.outcomes)
        for name in ("cnps_sent", "cnps_received")
    )
    if sent != received and not drops and not record.plan.loss:
        yield f"{sent} notifications were sent and {received} arrived, though nothing was lost"


def _differing(record: Record) -> Iterator[int]:
    """Yield the completed transfers whose payload has another checksum where it landed."""
    for outcome in record.outcomes:
        if outcome.completed and outcome.roce.get("crc_sent") != outcome.roce.get("crc_landed"):
            yield outcome.id


def _bad(record: Record) -> dict[str, int]:
    return dict(record.roce_counters.get("bad_packets") or {})
