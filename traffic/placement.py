"""Which decode host gets a request: the policies, as pure choices from what a scheduler would know.

Serving calls `choose` for each request when it is scheduled, with a `View` it has filled in. A policy that
needs what a view does not have (a cache, an estimate) falls back as its meaning says. All chance comes from
the generator that is handed in, and only by its `random()`, whose sequence Python promises to keep.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Protocol

from traffic.request import Request

ZIPF_EXPONENT = 1.0
"""How skewed `skewed` is where nothing is said: the k-th host gets a share in proportion to 1/k."""

NEAR = 0.05
"""Estimates within this share of the best are as good: counters are no more exact than that."""

_SLOWEST_BPS = 1.0
"""A path with nothing free is not infinitely slow: whatever is on it ends."""


@dataclass(frozen=True)
class View:
    """What a scheduler knows when it places one request; hosts that a mapping lacks count as 0.

    `outstanding_bytes` and `outstanding_requests` are on their way to, or held by, each decode host.
    `cached_tokens` are of this request's prompt, from its beginning; `move_bytes` is what would be moved to
    each host. `free_bps` is the rate that was free on the path to each host from the request's prefill host
    when the counters were last read, and `placed_bytes` what has been sent to each host since.
    """

    outstanding_bytes: Mapping[str, int] = field(default_factory=dict)
    outstanding_requests: Mapping[str, int] = field(default_factory=dict)
    cached_tokens: Mapping[str, int] = field(default_factory=dict)
    move_bytes: Mapping[str, int] = field(default_factory=dict)
    free_bps: Mapping[str, float] = field(default_factory=dict)
    placed_bytes: Mapping[str, int] = field(default_factory=dict)

    def load(self, host: str) -> tuple[int, int]:
        """Return the bytes, then the requests, that are outstanding at `host`."""
        return self.outstanding_bytes.get(host, 0), self.outstanding_requests.get(host, 0)


class Policy(Protocol):
    """Chooses one of `hosts` (at least one, in a fixed order) for a request."""

    def __call__(self, request: Request, hosts: Sequence[str], view: View, rng: random.Random) -> str:
        """Return the host."""


def round_robin(request: Request, hosts: Sequence[str], view: View, rng: random.Random) -> str:
    """Return the host after the one of the request before."""
    return hosts[request.id % len(hosts)]


def uniform(request: Request, hosts: Sequence[str], view: View, rng: random.Random) -> str:
    """Return any host, all alike."""
    return hosts[_below(len(hosts), rng)]


def least_loaded(request: Request, hosts: Sequence[str], view: View, rng: random.Random) -> str:
    """Return the host with the fewest bytes outstanding, then requests, then the first."""
    return min(hosts, key=view.load)


def power_of_two(request: Request, hosts: Sequence[str], view: View, rng: random.Random) -> str:
    """Return the less loaded of two different hosts drawn at random, the first drawn where they are equal."""
    if len(hosts) == 1:
        return hosts[0]
    first = _below(len(hosts), rng)
    other = _below(len(hosts) - 1, rng)
    return least_loaded(request, [hosts[first], hosts[other + (other >= first)]], view, rng)


def skewed(
    request: Request,
    hosts: Sequence[str],
    view: View,
    rng: random.Random,
    *,
    exponent: float = ZIPF_EXPONENT,
) -> str:
    """Return the k-th host with a probability in proportion to k to the power of -`exponent` (Zipf)."""
    weights = [number**-exponent for number in range(1, len(hosts) + 1)]
    left = rng.random() * sum(weights)
    for host, weight in zip(hosts, weights, strict=True):
        left -= weight
        if left < 0:
            return host
    return hosts[-1]


def cache_aware(request: Request, hosts: Sequence[str], view: View, rng: random.Random) -> str:
    """Return the host that has most of the prompt; of equal ones the least loaded."""
    longest = max(view.cached_tokens.get(host, 0) for host in hosts)
    best = [host for host in hosts if view.cached_tokens.get(host, 0) == longest]
    return least_loaded(request, best, view, rng)


def network_aware(request: Request, hosts: Sequence[str], view: View, rng: random.Random) -> str:
    """Return the host that the KV would reach first; the least loaded of those that are about as near.

    The time is (bytes to move there + bytes placed there since the rates were read) over the rate that was
    free on the path: without the second term all requests between two readings would follow one another
    (after NetKV's cost of a decode instance, arXiv 2606.03910). Without an estimate for every host it is
    `least-loaded`.
    """
    if any(host not in view.free_bps for host in hosts):
        return least_loaded(request, hosts, view, rng)
    times_s = {host: _transfer_s(host, view) for host in hosts}
    within_s = min(times_s.values()) * (1 + NEAR)
    return least_loaded(request, [host for host in hosts if times_s[host] <= within_s], view, rng)


def _transfer_s(host: str, view: View) -> float:
    waiting = view.move_bytes.get(host, 0) + view.placed_bytes.get(host, 0)
    return waiting * 8 / max(view.free_bps[host], _SLOWEST_BPS)


def _below(count: int, rng: random.Random) -> int:
    return int(rng.random() * count)


@dataclass(frozen=True)
class Placement:
    """A policy with what it goes by."""

    choose: Callable[..., str]
    meaning: str


PLACEMENTS: Mapping[str, Placement] = MappingProxyType(
    {
        "round-robin": Placement(
            round_robin, "request k goes from prefill host k mod nP to decode host k mod nD"
        ),
        "random": Placement(uniform, "any decode host, all alike"),
        "least-loaded": Placement(
            least_loaded, "the decode host with the fewest bytes outstanding, then the fewest requests"
        ),
        "power-of-two": Placement(
            power_of_two, "two different decode hosts are drawn, the less loaded of them is taken"
        ),
        "skewed": Placement(
            skewed,
            "a few decode hosts get most: the k-th in proportion to k to the power of -skew (Zipf)",
        ),
        "cache-aware": Placement(
            cache_aware,
            "the decode host that has most of the prompt's prefix, the least loaded of equals",
        ),
        "network-aware": Placement(
            network_aware,
            "the decode host that the KV would reach first: bytes to move over the rate that was free on the "
            "path when the lab's counters were last read; within 5 % of the best the least loaded",
        ),
    }
)
"""All policies by the name a scenario gives them."""


def policy(name: str, *, exponent: float = ZIPF_EXPONENT) -> Policy:
    """Return the policy called `name`; `exponent` is for `skewed`. KeyError for another name."""
    choose = PLACEMENTS[name].choose
    return partial(choose, exponent=exponent) if choose is skewed else choose
