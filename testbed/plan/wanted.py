"""The transfers a workload asks for, before ports, NICs and ideal times; and what they stand for.

Called by `testbed.plan.build` for workloads that no serving system comes between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from testbed.plan.model import Skipped, Workload
from testbed.plan.requests import has_ends, kv_bytes_of, requests_of
from testbed.scenario.models import Scenario
from testbed.scenario.models import Transfer as WrittenTransfer
from testbed.scenario.problems import Problem
from testbed.scenario.sections import Section
from traffic.request import Request
from traffic.tally import Tally


@dataclass(frozen=True)
class Wanted:
    """A transfer as the workload asks for it, before ports and ideal times."""

    src: str
    dst: str
    size_bytes: int
    start_ns: int
    pace_bps: int = 0
    src_gpu: int | None = None
    dst_gpu: int | None = None
    src_nic: int | None = None
    dst_nic: int | None = None
    src_port: int | None = None


def wanted_of(scenario: Scenario, seed: int) -> tuple[list[Wanted], Workload | None]:
    """Return the transfers asked for, and what they stand for where they do not say so themselves.

    Requests that pass through a serving system are not asked for here, but by `testbed.plan.serving`. Sizes
    are not yet scaled. InputError for what cannot be planned and for a file that cannot be used.
    """
    requests, scale = scenario.workload.requests, scenario.workload.scale.size_factor
    if requests is None:
        wanted = [_written(item) for item in scenario.workload.transfers]
        return wanted, None if scale == 1 else _written_workload(wanted, scale)
    if has_ends(scenario):
        _check_no_serving(scenario)
    stream, tally = requests_of(scenario, seed)
    wanted = list(_requested(scenario, stream))
    as_given = requests.kind == "burst" and requests.kv_bytes is not None and scale == 1
    return wanted, None if as_given else workload_of(tally, scenario)


def _check_no_serving(scenario: Scenario) -> None:
    """Refuse what a serving system would be told: matrices say what goes where, and there is none."""
    workload = scenario.workload
    told: list[str] = [key for key in ("prefill", "decode", "slo") if key in workload.model_fields_set]
    told += [key for key in ("connector", "placement") if _differs(getattr(workload, key))]
    if told:
        wrong = "is not for matrices, whose transfers pass through no serving system"
        raise scenario.error(Problem(("workload", told[0]), wrong, "leave it out", show=False))


def _differs(section: Section) -> bool:
    return section != type(section)()


def _written(item: WrittenTransfer) -> Wanted:
    return Wanted(
        item.source,
        item.destination,
        item.size_bytes,
        item.start_ns,
        item.pace_bps or 0,
        item.source_gpu,
        item.destination_gpu,
        item.source_nic,
        item.destination_nic,
        item.source_port,
    )


def _written_workload(wanted: Sequence[Wanted], scale: float) -> Workload:
    starts = [item.start_ns for item in wanted]
    total = sum(item.size_bytes for item in wanted)
    return Workload("transfers", len(wanted), 0, 0, total, scale, min(starts), max(starts), ())


def workload_of(tally: Tally, scenario: Scenario, time_factor: float = 1) -> Workload:
    """Return what a stream of requests that has been taken comes to; arrivals times `time_factor`."""
    scale = scenario.workload.scale
    return Workload(
        source=tally.source,
        requests=tally.requests,
        prompt_tokens=tally.prompt_tokens,
        output_tokens=tally.output_tokens,
        kv_bytes=tally.kv_bytes,
        scale=scale.size_factor,
        first_ns=round(tally.first_ns * time_factor),
        last_ns=round(tally.last_ns * time_factor),
        skipped=tuple(Skipped(reason, rows) for reason, rows in sorted(tally.skipped.items())),
    )


def _requested(scenario: Scenario, requests: Iterable[Request]) -> Iterator[Wanted]:
    """Round-robin: request k (from 0) goes from prefill host k mod nP to decode host k mod nD."""
    hosts, kv_bytes = scenario.hosts, kv_bytes_of(scenario)
    for request in requests:
        size, start_ns, ends = kv_bytes(request), request.arrival_ns, request.ends
        if ends is not None:
            yield Wanted(ends.src, ends.dst, size, start_ns, 0, ends.src_gpu, ends.dst_gpu)
        else:
            src, dst = request.id % hosts.prefill.count + 1, request.id % hosts.decode.count + 1
            yield Wanted(f"p{src}", f"d{dst}", size, start_ns)
