"""The keys of the serving system: prefill, hand-over, placement and decoding of requests.

Declared like all others (`testbed.scenario.models`); checked across keys in `testbed.scenario.serving_rules`.
`connector: NAME` and `placement: NAME` are short for a mapping whose other keys keep their defaults.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

from testbed.scenario.kinds import Choice, Duration, File, Number, Size, Whole
from testbed.scenario.sections import Section, option, unset
from traffic.connectors import BY_LAYER, BY_TOKEN, CONNECTORS, PULL, PUSH, Connector
from traffic.jobs import ROUND_ROBIN, SHORTEST_QUEUE
from traffic.placement import PLACEMENTS

_YES_NO = {"true": "", "false": ""}
_PRESETS = {name: f"{row.meaning} ({row.source})" for name, row in CONNECTORS.items()}
_OF_PRESET = "; left out: as the preset has it"


class ConnectorKeys(Section):
    """How KV is handed over: a preset, and what differs from it."""

    shorthand: ClassVar[str] = "preset"

    preset: Annotated[str, Choice(_PRESETS)] = option("preset", "mooncake", "how KV is handed over")
    starts: Annotated[
        str | None,
        Choice(
            {PUSH: "the prefill host sends when KV is ready", PULL: "the decode host asks, after prefill"},
            optional=True,
        ),
    ] = unset("starts", f"which side begins{_OF_PRESET}")
    unit_bytes: Annotated[int | None, Size("1b", "1tib", optional=True)] = unset(
        "unit", f"size of a descriptor, instead of unit_tokens{_OF_PRESET}"
    )
    unit_tokens: Annotated[int | None, Whole(1, 1_000_000, optional=True)] = unset(
        "unit_tokens", f"tokens of a descriptor, instead of unit{_OF_PRESET}"
    )
    per_layer: Annotated[str | None, Choice(_YES_NO, optional=True)] = unset(
        "per_layer", f"whether a descriptor of unit_tokens is of one layer{_OF_PRESET}"
    )
    order: Annotated[
        str | None,
        Choice(
            {BY_LAYER: "layer after layer", BY_TOKEN: "tokens from the first on, all layers of each"},
            optional=True,
        ),
    ] = unset("order", f"in which order KV leaves{_OF_PRESET}")
    overlap: Annotated[str | None, Choice(_YES_NO, optional=True)] = unset(
        "overlap", f"whether what is computed leaves while prefill goes on{_OF_PRESET}"
    )
    streams: Annotated[int | None, Whole(1, 64, optional=True)] = unset(
        "streams", f"connections of each pair of ranks{_OF_PRESET}"
    )
    in_flight: Annotated[int | None, Whole(0, 1_000_000, optional=True)] = unset(
        "in_flight", f"descriptors of a stream on the way at once, 0: any number{_OF_PRESET}"
    )
    cost_ns: Annotated[int | None, Duration("0us", "100ms", optional=True)] = unset(
        "descriptor_cost", f"time to post a descriptor, during which its stream posts no other{_OF_PRESET}"
    )
    store: Annotated[str | None, Choice(_YES_NO, optional=True)] = unset(
        "store", f"whether KV goes by way of a store host{_OF_PRESET}"
    )

    @property
    def connector(self) -> Connector:
        """The preset with what differs from it."""
        changes = {
            "starts": self.starts,
            "per_layer": _flag(self.per_layer),
            "order": self.order,
            "overlap": _flag(self.overlap),
            "streams": self.streams,
            "in_flight": self.in_flight,
            "descriptor_cost_ns": self.cost_ns,
            "store": _flag(self.store),
        }
        if self.unit_bytes is not None or self.unit_tokens is not None:
            changes |= {"unit_bytes": self.unit_bytes or 0, "unit_tokens": self.unit_tokens or 0}
        return replace(CONNECTORS[self.preset], **{k: v for k, v in changes.items() if v is not None})  # type: ignore[arg-type]


def _flag(word: str | None) -> bool | None:
    return None if word is None else word == "true"


class PlacementKeys(Section):
    """Which decode host serves a request."""

    shorthand: ClassVar[str] = "policy"

    policy: Annotated[str, Choice({name: row.meaning for name, row in PLACEMENTS.items()})] = option(
        "policy", "round-robin", "how the decode host of a request is chosen, when the request is scheduled"
    )
    skew: Annotated[float, Number(0, 10)] = option(
        "skew", "1", "exponent of policy skewed; 0: all hosts alike"
    )
    staleness_ns: Annotated[int, Duration("10us", "10s")] = option(
        "staleness", "1ms", "how often network-aware reads the lab's counters: what it knows is no older"
    )


class PrefillKeys(Section):
    """What prefill hosts do before there is KV. Left out, prefill takes no time."""

    tokens_per_second: Annotated[float | None, Number(0, 1e9, above=True, optional=True)] = unset(
        "tokens_per_second", "how fast a host computes one prompt"
    )
    profile: Annotated[str | None, File(optional=True)] = unset(
        "profile",
        "instead, a CSV file with the columns tokens and ms, straight lines between its rows and beyond "
        "them; relative to the scenario's file",
    )
    slots: Annotated[int, Whole(1, 4096)] = option(
        "slots", "1", "prompts a host computes at a time, each at that speed"
    )
    policy: Annotated[
        str,
        Choice(
            {
                ROUND_ROBIN: "request k goes to prefill host k mod nP",
                SHORTEST_QUEUE: "the host with the least prefill time outstanding, the next of equals",
            }
        ),
    ] = option("policy", ROUND_ROBIN, "which prefill host computes a request")


class DecodeKeys(Section):
    """What decode hosts do with KV that has landed. Left out, the first token is there when the KV is."""

    slots: Annotated[int, Whole(0, 1_000_000)] = option(
        "slots", "0", "answers a host decodes at a time, 0: any number; others wait in order"
    )
    step_ns: Annotated[int, Duration("0us", "10s")] = option(
        "step", "0us", "time of a decode step, at whose end each answer of the batch has one token more"
    )
    cache_bytes: Annotated[int, Size("0b", "1000tb")] = option(
        "prefix_cache",
        "100gb",
        "KV a host keeps of prompts it got; blocks of a trace's hash_ids that are there are not moved",
    )


class SloKeys(Section):
    """What the service has promised."""

    ttft_ns: Annotated[int | None, Duration("1us", "60min", optional=True)] = unset(
        "ttft", "time to the first token; the summary has the share of requests within it"
    )
