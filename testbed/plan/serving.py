"""The serving system of a scenario with its jobs, and what would come of it on an idle network. Pure.

The preview runs the very engine that the lab runs, with each request's KV as fast as it would be alone:
hosts, bytes and starts of the transfers it gives are estimates, and so is the ideal end made of them. Called
by `testbed.plan.build`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from testbed.plan.model import Transfer
from testbed.plan.profile import Profile
from testbed.plan.served import TransferMaker
from traffic.alone import exposed_ns, store_ns, stream_bps
from traffic.connectors import Handover
from traffic.dispatch import Dispatcher
from traffic.jobs import Job, Serving
from traffic.request import Request
from traffic.serving import Ask, Course, Engine, Release


@dataclass(frozen=True)
class PathFacts:
    """Rate of the slowest cable between two hosts, and the propagation delay of one way."""

    rate_bps: int
    delay_ns: int


Facts = Callable[[Transfer], PathFacts]
"""Returns what is known of a transfer's path."""

Resolve = Callable[[Transfer], Transfer]
"""Returns a transfer with its wire bytes and ideal time."""


@dataclass(frozen=True)
class Costs:
    """What turns a request into a job: `bytes_of` its KV over all flows, scaled; its prefill's profile."""

    bytes_of: Callable[[Request], int]
    profile: Profile | None
    time_factor: float

    def job(self, request: Request, client: int, blocks: bool) -> Job:
        """Return a request as a job of a client; `blocks`: its prefix may be found somewhere."""
        prefill_ns = self.profile.prefill_ns(request.prompt_tokens) if self.profile else 0
        return Job(
            id=request.id,
            arrival_ns=round(request.arrival_ns * self.time_factor),
            prefill_ns=round(prefill_ns * self.time_factor),
            bytes=self.bytes_of(request),
            prompt_tokens=request.prompt_tokens,
            output_tokens=request.output_tokens,
            client=client,
            blocks=request.prefix_blocks if blocks else (),
            block_tokens=request.block_tokens,
        )


def isolated_ns(serving: Serving, course: Course, transfers: Sequence[Transfer], facts: Facts) -> float:
    """Return how long after its prefill a request's KV would have landed with the network for itself.

    Its streams share the slowest cable of the path from their NIC, none is faster than its descriptors allow,
    and what prefill releases early leaves early. 0 where nothing is moved. `transfers` have their wire bytes.
    """
    if not transfers:
        return 0.0
    hand, first_hop = serving.handover, [one for one in transfers if one.src == course.prefill_host]
    delay_ns = max(facts(transfer).delay_ns for transfer in transfers) * (2 if course.store_host else 1)
    by_nic: dict[int, list[Transfer]] = {}
    for transfer in first_hop:
        by_nic.setdefault(transfer.src_nic, []).append(transfer)
    serial_ns = max(_serial_ns(hand, mine, facts) for mine in by_nic.values())
    if hand.nics > 1:  # alone, every NIC takes as much as the others
        serial_ns = _serial_ns(hand, first_hop, facts) / min(hand.nics, len(first_hop))
    if course.store_host:
        serial_ns = store_ns(serial_ns, first_hop[0].bytes, hand.descriptor_bytes)
    if hand.pull:
        return serial_ns + 2 * delay_ns
    return exposed_ns(serial_ns, course.job.prefill_ns, hand.steps(course.job.prompt_tokens)) + delay_ns


def _serial_ns(hand: Handover, sharing: Sequence[Transfer], facts: Facts) -> float:
    """Return how long transfers take that share a NIC."""
    paths = [facts(transfer) for transfer in sharing]
    wire_bytes = sum(transfer.wire_bytes for transfer in sharing)
    overhead = wire_bytes / sum(transfer.bytes for transfer in sharing)
    own_bps = sum(stream_bps(hand, path.rate_bps, 2 * path.delay_ns, overhead) for path in paths)
    return wire_bytes * 8e9 / min(own_bps, *(path.rate_bps for path in paths))


def preview(serving: Serving, resolve: Resolve, facts: Facts) -> list[Transfer]:
    """Return the transfers, in order of their numbers, that come of requests that never meet each other."""
    dispatcher = Dispatcher(serving)
    engine = Engine(
        serving, dispatcher.choose, on_landed=dispatcher.landed, on_ended=dispatcher.ended, partial=False
    )
    maker, found = TransferMaker(serving), dict[int, list[Transfer]]()
    landings: list[tuple[float, int]] = []
    while engine.next_ns is not None or landings:
        next_ns = engine.next_ns
        if landings and (next_ns is None or landings[0][0] <= next_ns):
            moment, request = heapq.heappop(landings)
            engine.landed(request, round(moment))
            continue
        assert next_ns is not None
        for action in engine.advance(next_ns):
            course = action.course
            if isinstance(action, Release | Ask):
                transfers = [
                    resolve(one) for one in _from_the_first_release(maker.transfers(course), course, serving)
                ]
                found[course.job.id] = transfers
                alone_ns = isolated_ns(serving, course, transfers, facts)
                heapq.heappush(landings, (action.time_ns + alone_ns, course.job.id))
    return [transfer for _, transfers in sorted(found.items()) for transfer in transfers]


def _from_the_first_release(transfers: list[Transfer], course: Course, serving: Serving) -> list[Transfer]:
    """Return transfers that start when the first part of their KV is computed."""
    assert course.prefill_start_ns is not None
    steps = serving.handover.steps(course.job.prompt_tokens)
    start_ns = course.prefill_start_ns + course.job.prefill_ns // (1 if serving.handover.pull else steps)
    return [replace(transfer, start_ns=start_ns) for transfer in transfers]


def jobs_of(requests: Iterable[Request], costs: Costs, clients: int, blocks: bool) -> tuple[Job, ...]:
    """Return requests as jobs; those of a closed loop go to its `clients` in turn (0: an open loop)."""
    return tuple(costs.job(request, request.id % clients if clients else -1, blocks) for request in requests)
