"""How long prompts and answers are: fixed, lognormal, or drawn from a distribution in a file. Pure.

Only `random()` of the generator is used, whose sequence Python promises to keep from version to version;
what is made of it is here, so the same seed gives the same lengths.
"""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from traffic.traces.files import lines, shown
from traffic.traces.rows import TraceError

POINTS_MAX = 100_000

Lengths = Callable[[random.Random], int]
"""Draws a number of tokens, at least 1."""

Point = tuple[float, float]
"""A number of tokens, and the share (0 to 1) of requests that have at most as many."""


def fixed(tokens: int) -> Lengths:
    """Return always the same length."""
    return lambda rng: tokens


def lognormal(median: int, sigma: float, maximum: int) -> Lengths:
    """Return lengths whose logarithm is normal about that of `median`; longer ones are cut to `maximum`."""

    def draw(rng: random.Random) -> int:
        exponent = min(sigma * normal(rng), 700.0)  # beyond that a float has no room
        return max(1, min(maximum, round(median * math.exp(exponent))))

    return draw


def distribution(points: Sequence[Point]) -> Lengths:
    """Return lengths by the inverse of a distribution, straight between its points."""
    shares = [share for _, share in points]

    def draw(rng: random.Random) -> int:
        share = rng.random()
        above = min(max(1, bisect.bisect_left(shares, share)), len(points) - 1)
        (low, below_share), (high, above_share) = points[above - 1], points[above]
        width = above_share - below_share
        part = (share - below_share) / width if width > 0 else 1.0
        return max(1, round(low + max(0.0, part) * (high - low)))

    return draw


def normal(rng: random.Random) -> float:
    """Return a number from the standard normal distribution, of two numbers of `rng` (Box and Muller)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - rng.random()))
    return radius * math.cos(2.0 * math.pi * rng.random())


def read_distribution(path: str) -> list[Point]:
    """Return the points in a file: in each line a number of tokens and the share up to it, rising.

    The last share is 100 (per cent) or 1. `#` begins a comment. TraceError for anything else.
    """
    points: list[tuple[int, float, float]] = []
    for line, words in _words(path):
        if len(points) == POINTS_MAX:
            raise TraceError(path, line, f"is beyond {POINTS_MAX} points; no distribution needs so many")
        points.append((line, *_point(path, line, words)))
    if len(points) < 2:
        raise TraceError(path, 0, "has fewer than two points of a distribution")
    for (_, tokens, share), (line, next_tokens, next_share) in pairwise(points):
        if next_tokens < tokens or next_share < share:
            raise TraceError(path, line, "falls; tokens and shares rise from line to line")
    last_line, _, whole = points[-1]
    if whole not in (1.0, 100.0):
        raise TraceError(path, last_line, f"ends at a share of {whole:g}; the last one is 100 or 1")
    return [(tokens, share / whole) for _, tokens, share in points]


def _words(path: str) -> Iterator[tuple[int, list[str]]]:
    for line, text in lines(path):
        words = text.partition("#")[0].replace(",", " ").split()
        if words:
            yield line, words


def _point(path: str, line: int, words: Sequence[str]) -> Point:
    try:
        tokens, share = map(float, words)
    except ValueError:
        wrong = f"is no point of a distribution: tokens and a share (found {shown(' '.join(words))})"
        raise TraceError(path, line, wrong) from None
    if not 0 <= tokens <= 10**9 or not 0 <= share <= 100:
        raise TraceError(path, line, "is out of range: tokens of 0 to 10^9, shares of 0 to 100")
    return tokens, share
