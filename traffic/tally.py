"""What became of a stream of requests: how many, how large, and which rows could not be used."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from traffic.request import Request


@dataclass
class Tally:
    """Counts that grow while a stream is read.

    `kv_bytes` is that of whole prompts, before any scaling; `source` says where the requests come from.
    """

    source: str = ""
    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    kv_bytes: int = 0
    first_ns: int = 0
    last_ns: int = 0
    skipped: Counter[str] = field(default_factory=Counter)

    def add(self, request: Request, kv_bytes: int) -> None:
        """Count a request and the KV of its prompt."""
        if not self.requests:
            self.first_ns = request.arrival_ns
        self.last_ns = request.arrival_ns
        self.requests += 1
        self.prompt_tokens += request.prompt_tokens
        self.output_tokens += request.output_tokens
        self.kv_bytes += kv_bytes

    def skip(self, reason: str) -> None:
        """Count a row that cannot be used."""
        self.skipped[reason] += 1
