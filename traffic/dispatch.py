"""Places each request on a decode host by one of the policies, and keeps what they go by. Pure.

It stands between the engine, whose `choose`, `on_landed` and `on_ended` it is, and `traffic.placement`:
counts what is outstanding at each host and what its prefix cache holds, and remembers the last reading of
the network's counters.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

from traffic.jobs import Job, Serving
from traffic.placement import View, policy
from traffic.prefix_cache import PrefixCache
from traffic.request import Request
from traffic.serving import Course

Shares = Sequence[tuple[str, float]]
"""What a path goes through: the name of each link, or bundle of links, and what was free there (bits/s)."""

Rates = Callable[[str, str], Shares]
"""Returns what the way from one host to another goes through, as counters showed it when last read."""

NETWORK_AWARE = "network-aware"


class Dispatcher:
    """The placement of one run."""

    def __init__(self, serving: Serving) -> None:
        self._hosts = serving.decode_hosts
        self._policy = policy(serving.placement, exponent=serving.skew)
        self._rng = random.Random(serving.seed)
        self._cache = PrefixCache(serving.cache_blocks, 1)
        self._bytes: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()
        self._placed: Counter[str] = Counter()
        self._coming: list[Course] = []
        self._rates: Rates | None = None

    def read(self, rates: Rates) -> None:
        """Take in a reading of the network's counters.

        What was placed is forgotten once its transfer has begun: from then on the counters show it.
        """
        self._rates = rates
        self._coming = [course for course in self._coming if course.prefill_end_ns is None]
        self._placed = Counter()
        for course in self._coming:
            self._place(
                course.prefill_host, course.decode_host, course.job.bytes_beyond(course.cached_blocks)
            )

    def _place(self, src: str, dst: str, size: int) -> None:
        if self._rates is not None:
            for name, _ in self._rates(src, dst):
                self._placed[name] += size

    def choose(self, course: Course, now_ns: int) -> tuple[str, int]:
        """Return the decode host of a request, and how many of its blocks are there already."""
        job = course.job
        hits = {host: self._cache.hits(host, job.blocks) for host in self._hosts} if job.blocks else {}
        moves = {host: job.bytes_beyond(hits.get(host, 0)) for host in self._hosts}
        request, src = _request(job), course.prefill_host
        tightest = (
            {host: self._tightest(src, host, size) for host, size in moves.items()} if self._rates else {}
        )
        view = View(
            outstanding_bytes=self._bytes,
            outstanding_requests=self._requests,
            cached_tokens={host: request.tokens_in(found) for host, found in hits.items()},
            move_bytes=moves,
            free_bps={host: free_bps for host, (_, free_bps) in tightest.items()},
            placed_bytes={host: placed for host, (placed, _) in tightest.items()},
        )
        host = self._policy(request, self._hosts, view, self._rng)
        self._bytes[host] += moves[host]
        self._place(src, host, moves[host])
        self._requests[host] += 1
        self._coming.append(course)
        return host, hits.get(host, 0)

    def _tightest(self, src: str, dst: str, size: int) -> tuple[int, float]:
        """Return what is placed on, and was free on, the part of a path that would take longest."""
        assert self._rates is not None
        parts = [(self._placed[name], free_bps) for name, free_bps in self._rates(src, dst)]
        return max(parts, key=lambda part: (part[0] + size) / max(part[1], 1.0))

    def landed(self, course: Course) -> None:
        """A request's KV has landed, or was given up."""
        self._bytes[course.decode_host] -= course.bytes
        if course.error is None:
            self._cache.insert(course.decode_host, course.job.blocks)

    def ended(self, course: Course) -> None:
        """A request's answer has ended, or was given up."""
        self._requests[course.decode_host] -= 1


def _request(job: Job) -> Request:
    tokens = (job.prompt_tokens, job.output_tokens)
    return Request(job.id, job.arrival_ns, *tokens, job.bytes, job.blocks, job.block_tokens)
