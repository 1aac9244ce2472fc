"""A made-up trace in Mooncake's format: requests at random, prompts of lognormal length, nothing shared.

Called by the bench; a person runs `python -m testbed.bench.trace 10000 >trace-10k.jsonl`.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator

MEAN_GAP_MS = 30
MEDIAN_TOKENS = 2_000
SIGMA = 0.8
MOST_TOKENS = 16_000
OUTPUT_TOKENS = 100


def lines(count: int, seed: int = 1) -> Iterator[str]:
    """Yield the lines of `count` requests, the same for a seed."""
    draw, now_ms = random.Random(seed), 0.0
    for _ in range(count):
        now_ms += draw.expovariate(1 / MEAN_GAP_MS)
        tokens = min(MOST_TOKENS, max(1, round(MEDIAN_TOKENS * draw.lognormvariate(0, SIGMA))))
        row = {"timestamp": int(now_ms), "input_length": tokens, "output_length": OUTPUT_TOKENS}
        yield json.dumps(row) + "\n"


if __name__ == "__main__":
    sys.stdout.writelines(lines(int(sys.argv[1])))
