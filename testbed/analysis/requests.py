"""Requests of the serving engine: the time to the first token, part by part, and the transfer's part in it.

Pure functions of the record. Called by `summary` and the report. For a request

    TTFT = wait for prefill + prefill + exposed transfer + landing + admission + first step

in whole nanoseconds, exactly. What of the transfer is over before prefill ends is not exposed. Landing is the
part of the exposed time that the request's slowest stream lost to the queue before the decode host's GPU, by
the same account as the verdict's (`losses`); the rest of the exposed time is the transfer's.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from testbed.analysis.losses import TransferLoss
from testbed.analysis.stats import NS_PER_MS, POINTS, Floats, distribution, jain
from testbed.plan.build import routes_of
from testbed.plan.model import Transfer
from testbed.plan.serving import isolated_ns
from testbed.record.reader import Record
from testbed.record.requests import RequestOutcome
from testbed.screen import cell
from topologies.model import DEST_LANDING
from traffic.jobs import Job
from traffic.serving import Course

PARTS = ("wait", "prefill", "transfer", "landing", "admission", "first_step")
"""The parts of a TTFT in their order; `transfer` is what of it is exposed and not landing."""

TAILS = tuple(point for point in POINTS if point[0] != "p95")

COLUMNS = (
    "id", "prefill_host", "decode_host", "store_host", "prompt_tokens", "output_tokens", "bytes",
    "cached_blocks", "arrival_ms", "ttft_ms", *(f"{part}_ms" for part in PARTS), "isolated_ms", "slowdown",
    "error",
)  # fmt: skip
"""Columns of `requests.csv`. What is not known is empty; `isolated_ms` is what the exposed transfer and the
landing would have been with the network for itself, `slowdown` their measured sum over it."""


@dataclass(frozen=True)
class Request:
    """A request whose first token is known of: its parts in ns, the sum the TTFT; and the transfer alone."""

    job: Job
    outcome: RequestOutcome
    parts_ns: Mapping[str, int]
    isolated_ns: float

    @property
    def ttft_ns(self) -> int:
        """From its arrival to its first token."""
        return sum(self.parts_ns.values())

    @property
    def handover_ns(self) -> int:
        """From the end of its prefill to its KV at the decode host."""
        return self.parts_ns["transfer"] + self.parts_ns["landing"]

    @property
    def slowdown(self) -> float | None:
        """The hand-over as a multiple of what it would have been alone, None where nothing was moved."""
        return self.handover_ns / self.isolated_ns if self.isolated_ns > 0 else None


def requests_of(record: Record, losses: Sequence[TransferLoss]) -> list[Request]:
    """Return the requests that have a first token, in order of their numbers."""
    if record.plan.serving is None:
        return []
    jobs = {job.id: job for job in record.plan.serving.jobs}
    transfers: dict[int, list[Transfer]] = defaultdict(list)
    for transfer in record.plan.transfers:
        transfers[transfer.request].append(transfer)
    landing = _landing_ns(record, losses)
    routes = routes_of(record.plan.topology, record.plan.mtu, record.plan.transport)
    found = []
    for outcome in record.served.requests:
        parts = _parts(outcome, landing.get(outcome.id, 0.0))
        if parts is not None:
            course = Course(jobs[outcome.id], outcome.prefill_host, outcome.decode_host, outcome.store_host)
            alone_ns = isolated_ns(record.plan.serving, course, transfers[outcome.id], routes.facts)
            found.append(Request(jobs[outcome.id], outcome, parts, alone_ns))
    return found


def _parts(outcome: RequestOutcome, landing_ns: float) -> dict[str, int] | None:
    moments = (
        outcome.arrival_ns, outcome.prefill_start_ns, outcome.prefill_end_ns,
        outcome.landed_ns, outcome.admitted_ns, outcome.first_token_ns,
    )  # fmt: skip
    if outcome.error is not None or any(moment is None for moment in moments):
        return None
    arrival, begun, computed, landed, admitted, first = (moment for moment in moments if moment is not None)
    landing = min(round(landing_ns), landed - computed)
    lengths = (begun - arrival, computed - begun, landed - computed - landing, landing)
    return dict(zip(PARTS, (*lengths, admitted - landed, first - admitted), strict=True))


def _landing_ns(record: Record, losses: Sequence[TransferLoss]) -> dict[int, float]:
    """Return what each request's last transfer to end lost before the decode host's GPU."""
    ends = {outcome.id: outcome.end_ns or 0 for outcome in record.outcomes}
    request_of = {transfer.id: transfer.request for transfer in record.plan.transfers}
    last: dict[int, TransferLoss] = {}
    for loss in losses:
        request = request_of[loss.id]
        if request not in last or ends[loss.id] > ends[last[request].id]:
            last[request] = loss
    return {request: loss.by_segment[DEST_LANDING] for request, loss in last.items()}


def summarise_requests(record: Record, requests: Sequence[Request]) -> dict[str, Any] | None:
    """Return the summary's `requests`, None without a serving engine.

    `parts` are of the requests with a first token: the mean of each part, and its share of all their TTFT.
    `exposed_share` is that of the hand-over, transfer and landing. `isolated_ms` and `contended_ms` are
    hand-overs alone and as measured, of those that moved something. `jain` is the fairness of how fast each
    was, compared with itself alone (isolated over measured). `by_decode` has each decode host's TTFT and the
    mean of its parts.
    """
    serving = record.plan.serving
    if serving is None:
        return None
    moved = [request for request in requests if request.slowdown is not None]
    alone = np.array([request.isolated_ns for request in moved], np.float64)
    measured = np.array([request.handover_ns for request in moved], np.float64)
    total_ns = sum(request.ttft_ns for request in requests)
    return {
        "count": len(record.served.requests),
        "completed": len(requests),
        "connector": serving.scheme,
        "placement": serving.placement,
        "bytes": sum(request.outcome.bytes for request in requests),
        "not_moved": sum(request.outcome.bytes == 0 for request in requests),
        "cached_blocks": sum(request.outcome.cached_blocks for request in requests),
        "scale": {"bytes": serving.size_factor, "time": serving.time_factor},
        "parts": {part: _part(part, requests, total_ns) for part in PARTS},
        "exposed_share": sum(request.handover_ns for request in requests) / total_ns if total_ns else None,
        "isolated_ms": distribution(alone / NS_PER_MS),
        "contended_ms": distribution(measured / NS_PER_MS),
        "slowdown": distribution(measured / alone),
        "jain": jain(alone / np.maximum(measured, 1)),
        "slo": _slo(serving.slo_ttft_ns, record, requests),
        "by_decode": {
            name: {"count": len(mine), "ttft_ms": distribution(_ttft_ms(mine)), "parts_ms": _means(mine)}
            for name, mine in _by_decode(requests).items()
        },
    }


def _part(part: str, requests: Sequence[Request], total_ns: int) -> dict[str, float | None]:
    lengths = [request.parts_ns[part] for request in requests]
    return {
        "mean_ms": sum(lengths) / len(lengths) / NS_PER_MS if lengths else None,
        "share": sum(lengths) / total_ns if total_ns else None,
    }


def _slo(ttft_ns: int, record: Record, requests: Sequence[Request]) -> dict[str, float] | None:
    """Return the promise and the share of all requests, given up ones among them, that it was kept to."""
    if not ttft_ns or not record.served.requests:
        return None
    kept = sum(request.ttft_ns <= ttft_ns for request in requests)
    return {"ttft_ms": ttft_ns / NS_PER_MS, "attained": kept / len(record.served.requests)}


def summarise_request_ttft(record: Record, requests: Sequence[Request]) -> dict[str, Any]:
    """Return the summary's `ttft_ms` of requests, arrival to first token.

    Beside the figures of all there are those of each decode host and of each pair of hosts.
    """
    by_decode = _by_decode(requests)
    by_pair: dict[str, list[Request]] = defaultdict(list)
    for request in requests:
        by_pair[f"{request.outcome.prefill_host}->{request.outcome.decode_host}"].append(request)
    return {
        "count": len(record.served.requests),
        **distribution(_ttft_ms(requests)),
        "by_decode": {name: _tails(mine) for name, mine in by_decode.items()},
        "by_pair": {name: _tails(mine) for name, mine in sorted(by_pair.items())},
    }


def _by_decode(requests: Sequence[Request]) -> dict[str, list[Request]]:
    found: dict[str, list[Request]] = defaultdict(list)
    for request in requests:
        found[request.outcome.decode_host].append(request)
    return dict(sorted(found.items()))


def _ttft_ms(requests: Sequence[Request]) -> Floats:
    return np.array([request.ttft_ns for request in requests], np.float64) / NS_PER_MS


def _tails(requests: Sequence[Request]) -> dict[str, float | None]:
    figures = distribution(_ttft_ms(requests), TAILS)
    return {name: figures[name] for name, _ in TAILS}


def _means(requests: Sequence[Request]) -> dict[str, float]:
    count = len(requests) * NS_PER_MS
    return {part: sum(request.parts_ns[part] for request in requests) / count for part in PARTS}


def requests_csv(record: Record, requests: Sequence[Request]) -> str:
    """Return a line for each request, in order of their numbers, under a line of column names."""
    known = {request.outcome.id: request for request in requests}
    jobs = {job.id: job for job in record.plan.serving.jobs} if record.plan.serving else {}
    lines = io.StringIO()
    writer = csv.DictWriter(lines, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for outcome in record.served.requests:
        row = _basics(outcome, jobs[outcome.id]) | _figures(known.get(outcome.id))
        writer.writerow({name: cell(value) for name, value in row.items()})
    return lines.getvalue()


def _basics(outcome: RequestOutcome, job: Job) -> dict[str, Any]:
    return {
        "id": outcome.id,
        "prefill_host": outcome.prefill_host,
        "decode_host": outcome.decode_host,
        "store_host": outcome.store_host,
        "prompt_tokens": job.prompt_tokens,
        "output_tokens": job.output_tokens,
        "bytes": outcome.bytes,
        "cached_blocks": outcome.cached_blocks,
        "arrival_ms": "" if outcome.arrival_ns is None else _ms(outcome.arrival_ns),
        "error": outcome.error or "",
    }


def _figures(request: Request | None) -> dict[str, str]:
    if request is None:
        return {}
    slowdown = request.slowdown
    return {
        "ttft_ms": _ms(request.ttft_ns),
        **{f"{part}_ms": _ms(length) for part, length in request.parts_ns.items()},
        "isolated_ms": _ms(request.isolated_ns),
        "slowdown": "" if slowdown is None else f"{slowdown:.6f}",
    }


def _ms(time_ns: float) -> str:
    """Six decimals are whole nanoseconds: what adds up in ns adds up here."""
    return f"{time_ns / NS_PER_MS:.6f}"
