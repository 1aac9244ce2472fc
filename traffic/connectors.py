"""How serving systems hand KV over: what a connector varies, and the presets named after the systems.

Pure values. A scenario names a preset and may change each value; `Handover` is what the lab gets of it, in
bytes and bits per second. Called by the plan; docs/serving.md is generated from the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

PUSH, PULL = "push", "pull"
BY_LAYER, BY_TOKEN = "layers", "tokens"


@dataclass(frozen=True)
class Connector:
    """A way of handing KV over.

    `starts`: the prefill host pushes, or the decode host asks and so pulls. A descriptor is the unit the
    network is asked to move: `unit_bytes`, or the KV of `unit_tokens` tokens (of one layer if `per_layer`),
    or all of a stream where both are 0. `order`: layer after layer, or tokens from the first on; `overlap`:
    what prefill has finished in that order leaves while it goes on. `streams` are connections for each pair
    of ranks, `in_flight` the descriptors a stream has on the way (0: any number), `descriptor_cost_ns` the
    time to post one, during which its stream posts no other. `store`: by way of a store host. `spread`: over
    all NICs of a host, each descriptor over the one that is free.
    """

    name: str
    meaning: str
    source: str
    starts: str = PUSH
    unit_bytes: int = 0
    unit_tokens: int = 0
    per_layer: bool = False
    order: str = BY_TOKEN
    overlap: bool = False
    streams: int = 1
    in_flight: int = 0
    descriptor_cost_ns: int = 0
    store: bool = False
    spread: bool = False

    @property
    def needs_model(self) -> bool:
        """Whether it can only be said in bytes for a model whose layers and bytes per token are known."""
        return bool(self.unit_tokens) or (self.overlap and self.order == BY_LAYER)

    @property
    def unit(self) -> str:
        """Its descriptor in words."""
        if self.unit_bytes:
            return f"{self.unit_bytes // 1024} KiB"
        if self.unit_tokens:
            return f"{self.unit_tokens} tokens{' of a layer' if self.per_layer else ''}"
        return "all of a stream"


_CLAIM = "posting costs 2 us: 32,000 descriptors of 16 kB at 9 GB/s, vllm-project/vllm#53825"


def _table(*rows: Connector) -> Mapping[str, Connector]:
    return MappingProxyType({row.name: row for row in rows})


CONNECTORS = _table(
    Connector(
        "mooncake",
        "the prefill host writes when it has finished, in slices of 64 KiB; with several NICs each slice "
        "takes the NIC that is free",
        "kvcache-ai/Mooncake, transfer engine: MC_SLICE_SIZE 65536, max_wr 256",
        unit_bytes=65_536,
        in_flight=256,
        spread=True,
    ),
    Connector(
        "distserve",
        "the KV waits at the prefill host until the decode host fetches it, after prefill",
        "Zhong et al., DistServe, OSDI 2024, section 4.3: decoding instances pull",
        starts=PULL,
    ),
    Connector(
        "splitwise",
        "each layer is pushed as soon as it is computed, while prefill goes on with the next",
        "Patel et al., Splitwise, ISCA 2024, section 4.3: per-layer transfer, overlapped",
        per_layer=True,
        order=BY_LAYER,
        overlap=True,
    ),
    Connector(
        "lmcache",
        "chunks of 256 tokens go to a store host, and from there to the decode host as each arrives",
        "LMCache/LMCache: chunk_size 256, remote backend",
        unit_tokens=256,
        store=True,
    ),
    Connector(
        "vllm-nixl",
        "the decode host reads blocks of 16 tokens, each layer by itself: many small descriptors",
        f"vllm-project/vllm, NixlConnector, block_size 16; {_CLAIM}",
        starts=PULL,
        unit_tokens=16,
        per_layer=True,
        order=BY_LAYER,
        descriptor_cost_ns=2_000,
    ),
    Connector(
        "nixl",
        "the decode host reads pages of 256 tokens, all layers of a page in one",
        "ai-dynamo/nixl, benchmark/kvbench: page_size 256, block access; posting as for vllm-nixl",
        starts=PULL,
        unit_tokens=256,
        descriptor_cost_ns=2_000,
    ),
)
"""All presets by name."""


@dataclass(frozen=True)
class Handover:
    """A connector for one model, in what the lab needs.

    `streams` flows carry a request. `descriptor_bytes` is 0 where a stream is one descriptor. A prefill that
    is overlapped releases its KV in `layers` steps, or one for every `step_tokens` tokens (both 0: all at its
    end). `pace_bps` and `window_bytes` are what descriptors cost and how many are on the way, as a rate and a
    window of each stream; 0: no limit. Each `nics` streams share the descriptors of one pair of ranks and
    take a NIC each.
    """

    starts: str
    streams: int
    layers: int
    step_tokens: int
    descriptor_bytes: int
    pace_bps: int
    window_bytes: int
    store: bool
    nics: int = 1

    def steps(self, prompt_tokens: int) -> int:
        """Return in how many equal steps the prefill of a prompt releases its KV, at least 1."""
        if self.step_tokens:
            return max(1, -(-prompt_tokens // self.step_tokens))
        return max(1, self.layers)

    @property
    def pull(self) -> bool:
        """Whether the decode host asks."""
        return self.starts == PULL


def handover(connector: Connector, *, token_bytes: int, layers: int, flows: int, nics: int = 1) -> Handover:
    """Return what `connector` means where a flow carries `token_bytes` of a token in `layers` layers.

    `flows` are the pairs of ranks, `nics` those of a host. Without a model `token_bytes` and `layers` are 0;
    ValueError for a connector that needs one.
    """
    if connector.needs_model and not (token_bytes and layers):
        raise ValueError("needs a model: its unit is tokens or layers")
    unit = connector.unit_bytes
    if connector.unit_tokens:
        unit = max(1, connector.unit_tokens * token_bytes // (layers if connector.per_layer else 1))
    own_nics = nics if connector.spread else 1
    cost_ns, by_layer = connector.descriptor_cost_ns, connector.overlap and connector.order == BY_LAYER
    return Handover(
        starts=connector.starts,
        streams=flows * connector.streams * own_nics,
        layers=layers if by_layer else 0,
        step_tokens=connector.unit_tokens if connector.overlap and not by_layer else 0,
        descriptor_bytes=unit,
        pace_bps=unit * 8_000_000_000 // cost_ns if cost_ns and unit else 0,
        window_bytes=unit * connector.in_flight,
        store=connector.store,
        nics=own_nics,
    )
