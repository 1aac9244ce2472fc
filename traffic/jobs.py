"""What the serving engine is given: the requests as jobs, and the system that serves them. Frozen values.

Part of the plan, which the lab reads from a file: numbers, text and tuples only. Times are nanoseconds,
bytes are payload on the wire, both already scaled. `traffic.serving` runs them.
"""

from __future__ import annotations

from dataclasses import dataclass

from traffic.connectors import Handover

ROUND_ROBIN, SHORTEST_QUEUE = "round-robin", "shortest-queue"

OPEN_LOOP = -1
"""The client of a request that waits for no other."""


@dataclass(frozen=True)
class Job:
    """One request. `bytes` is the KV of its whole prompt, over all streams.

    A request of a `client` arrives `arrival_ns` after that client's request before has ended, or after the
    start for the first one; with `OPEN_LOOP` it arrives at `arrival_ns`. `blocks` are the hashes of its
    prompt's blocks of `block_tokens` tokens.
    """

    id: int
    arrival_ns: int
    prefill_ns: int
    bytes: int
    prompt_tokens: int
    output_tokens: int
    client: int = OPEN_LOOP
    blocks: tuple[int, ...] = ()
    block_tokens: int = 512

    def bytes_beyond(self, blocks: int) -> int:
        """Return what must be moved where the first `blocks` blocks are there already, rounded up."""
        if not blocks or not self.prompt_tokens:
            return self.bytes
        missing = max(0, self.prompt_tokens - blocks * self.block_tokens)
        return -(-self.bytes * missing // self.prompt_tokens)


@dataclass(frozen=True)
class Serving:
    """The serving system and its jobs.

    A prefill host works on `prefill_slots` prompts at a time, a decode host on `decode_slots` answers (0: any
    number), a token of each in every step of `step_ns`. `placement` chooses decode hosts; `skew` is its
    exponent, `staleness_ns` the age at most of what it knows of the network. A decode host keeps
    `cache_blocks` blocks of KV for reuse (0: none). A request is scheduled `lead_ns` before it arrives, so
    that its connections stand. `slo_ttft_ns` 0: none. `scheme` is the connector's name, `nic_of_gpu` has the
    NIC (from 1) of each GPU of a host. `size_factor` and `time_factor` are what bytes and times were
    scaled by.
    """

    scheme: str
    handover: Handover
    prefill_hosts: tuple[str, ...]
    decode_hosts: tuple[str, ...]
    store_hosts: tuple[str, ...]
    prefill_policy: str
    prefill_slots: int
    placement: str
    skew: float
    staleness_ns: int
    decode_slots: int
    step_ns: int
    slo_ttft_ns: int
    cache_blocks: int
    lead_ns: int
    nic_of_gpu: tuple[int, ...]
    seed: int
    size_factor: float
    time_factor: float
    jobs: tuple[Job, ...]
