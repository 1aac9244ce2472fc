"""One request for inference, as a generator or a trace gives it: pure, and light to import.

Made by `traffic.arrivals` and `traffic.traces`; the plan, placement and the serving engine take it.
What it says nothing of is who serves it: that is placement's.
"""

from __future__ import annotations

from dataclasses import dataclass

BLOCK_TOKENS = 512
"""Tokens behind one hash of a Mooncake trace (its store's block); a trace may declare another."""


@dataclass(frozen=True)
class Ends:
    """Which hosts' GPUs (counted from 1) KV moves between, where that is not for placement to choose."""

    src: str
    src_gpu: int
    dst: str
    dst_gpu: int


@dataclass(frozen=True)
class Request:
    """A prompt to prefill, whose KV then moves, and an answer to decode.

    `id` counts from 0 in order of arrival. `arrival_ns` is nanoseconds of scenario time. `prompt_tokens` and
    `output_tokens` are 0 where only `kv_bytes` is known: the KV of the whole prompt, given directly;
    None: model and tokens tell. `prefix_blocks` are the hashes of the prompt's blocks of `block_tokens`
    tokens, from its beginning, the last one not always full; empty where nothing is known of shared prefixes.
    `ends` None: placement chooses.
    """

    id: int
    arrival_ns: int
    prompt_tokens: int
    output_tokens: int
    kv_bytes: int | None
    prefix_blocks: tuple[int, ...] = ()
    block_tokens: int = BLOCK_TOKENS
    ends: Ends | None = None

    def tokens_in(self, blocks: int) -> int:
        """Return how many of the prompt's tokens its first `blocks` blocks hold."""
        return min(self.prompt_tokens, blocks * self.block_tokens)

    def tokens_after(self, blocks: int) -> int:
        """Return how many of the prompt's tokens follow its first `blocks` blocks."""
        return self.prompt_tokens - self.tokens_in(blocks)
