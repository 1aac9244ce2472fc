"""When generated requests arrive: in a burst, by a Poisson process, or in clumps. Pure.

As in `traffic.lengths`, only `random()` of the generator is used.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from traffic.lengths import normal


def burst(count: int, from_ns: int, to_ns: int, rng: random.Random) -> list[int]:
    """Return `count` times drawn uniformly from [from, to), sorted."""
    return sorted(from_ns + int(rng.random() * (to_ns - from_ns)) for _ in range(count))


def poisson(count: int, interval_ns: float, rng: random.Random) -> Iterator[int]:
    """Yield the first `count` times of a Poisson process with gaps of `interval_ns` in the mean."""
    now_ns = 0.0
    for _ in range(count):
        now_ns += -math.log(1.0 - rng.random()) * interval_ns
        yield int(now_ns)


def gamma(count: int, interval_ns: float, cv: float, rng: random.Random) -> Iterator[int]:
    """Yield `count` times whose gaps have a gamma distribution of mean `interval_ns`.

    `cv` is its coefficient of variation: with 1 it is a Poisson process, above it requests come in clumps,
    below it more evenly. The shape, 1/cv^2, is what vLLM's benchmark calls burstiness.
    """
    shape, now_ns = 1.0 / (cv * cv), 0.0
    for _ in range(count):
        now_ns += gamma_variate(shape, rng) / shape * interval_ns
        yield int(now_ns)


def gamma_variate(shape: float, rng: random.Random) -> float:
    """Return a number of the gamma distribution with scale 1 (Marsaglia and Tsang 2000).

    A shape below 1 is made from the one above it by a power of a uniform number, as they propose.
    """
    if shape < 1.0:
        return gamma_variate(shape + 1.0, rng) * float((1.0 - rng.random()) ** (1.0 / shape))
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = normal(rng)
        v = (1.0 + c * x) ** 3
        u = 1.0 - rng.random()
        if v > 0 and math.log(u) < 0.5 * x * x + d - d * v + d * math.log(v):
            return d * v
