"""The keys of a workload's requests and of the model whose KV they move.

A part of `testbed.scenario.models`, which says how keys are declared; checks across these keys are in
`testbed.scenario.workload_rules`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from testbed.scenario.kinds import Choice, Duration, File, Number, Size, Whole
from testbed.scenario.sections import For, Section, option, unset
from traffic.kv import MODELS
from traffic.request import BLOCK_TOKENS
from traffic.traces import FORMATS

TOKENS_MAX = 100_000_000
COUNT_MAX = 100_000

DIMENSIONS = ("layers", "kv_heads", "head_dim", "latent_dim")


class ModelChoice(Section):
    """A model from the table, from a `config.json`, or by its dimensions."""

    shorthand: ClassVar[str] = "name"
    alternatives: ClassVar[tuple[tuple[str, ...], ...]] = (("name",), ("config",), DIMENSIONS)

    name: Annotated[str | None, Choice(dict.fromkeys(MODELS, ""), optional=True)] = unset(
        "name", "a model of the table in docs/workloads.md"
    )
    config: Annotated[str | None, File(optional=True)] = unset(
        "config", "the config.json of a model, as Hugging Face has it"
    )
    layers: Annotated[int | None, Whole(1, 100_000, optional=True)] = unset(
        "layers", "layers that keep KV; with kv_heads and head_dim, or with latent_dim"
    )
    kv_heads: Annotated[int | None, Whole(1, 100_000, optional=True)] = unset(
        "kv_heads", "KV heads of a layer"
    )
    head_dim: Annotated[int | None, Whole(1, 100_000, optional=True)] = unset(
        "head_dim", "elements of one head's key, and of its value"
    )
    latent_dim: Annotated[int | None, Whole(1, 100_000, optional=True)] = unset(
        "latent_dim",
        "elements of a token's latent vector in a layer (MLA), the part with the position included",
    )


class TensorParallel(Section):
    """Over how many GPUs each side cuts the model."""

    prefill: Annotated[int, Whole(1, 64)] = option("prefill", "1", "GPUs that prefill one request")
    decode: Annotated[int, Whole(1, 64)] = option("decode", "1", "GPUs that decode one request")


class Lognormal(Section):
    """A lognormal distribution of lengths."""

    median: Annotated[int | None, Whole(1, TOKENS_MAX, optional=True)] = unset("median", "tokens; required")
    sigma: Annotated[float, Number(0, 10)] = option(
        "sigma", "1", "standard deviation of the natural logarithm"
    )
    maximum: Annotated[int, Whole(1, TOKENS_MAX)] = option("max", "1000000", "longer ones are cut to this")


class Tokens(Section):
    """How many tokens: fixed or drawn."""

    shorthand: ClassVar[str] = "fixed"
    alternatives: ClassVar[tuple[tuple[str, ...], ...]] = (("fixed",), ("lognormal",), ("cdf",))

    fixed: Annotated[int | None, Whole(1, TOKENS_MAX, optional=True)] = unset("fixed", "always as many")
    lognormal: Lognormal | None = unset("lognormal", "drawn from a lognormal distribution")
    cdf: Annotated[str | None, File(optional=True)] = unset(
        "cdf", "drawn from a file with a number of tokens and the share of prompts up to it in each line"
    )


class Window(Section):
    """A stretch of time, [from, to)."""

    shorthand: ClassVar[str] = "to"

    from_ns: Annotated[int, Duration("0us", "100000min")] = option("from", "0us", "its beginning")
    to_ns: Annotated[int | None, Duration("0us", "100000min", optional=True)] = unset("to", "its end")


_KINDS = {
    "burst": "`count` requests whose prefill ends within `window`",
    "poisson": "`count` requests, one every `interval` in the mean, independent of each other",
    "gamma": "`count` requests, one every `interval` in the mean, with gaps of a gamma distribution whose "
    "coefficient of variation is `cv`",
    "closed-loop": "`count` requests of `clients` clients, each of which sends its next one `think` after "
    "its last has ended",
    "trace": "the requests of a file",
}
_GENERATED = ("burst", "poisson", "gamma", "closed-loop")
_GAPS = ("poisson", "gamma")
_FORMATS = {
    "auto": "what the file's fields, columns or patterns show it to be",
    **{name: f"{item.meaning}; its times are {item.unit}" for name, item in FORMATS.items()},
}
TIME_UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
"""Nanoseconds in the units a trace's time column may have."""

_TICKS = {
    "as-is": "at the time that stands there: where the trace's clock has steps, all of a step at once",
    "spread": "at random within the step (3 s for mooncake, 1 s for burstgpt), in the order of the file",
}


class Requests(Section):
    """Requests that each hand their KV from a prefill to a decode host."""

    alternatives: ClassVar[tuple[tuple[str, ...], ...]] = (("kv_bytes",), ("prompt_tokens",))

    kind: Annotated[str, Choice(_KINDS)] = option("kind", "burst", "how requests arrive")
    count: Annotated[int, Whole(1, COUNT_MAX), For(_GENERATED)] = option("count", "8", "number of requests")
    window: Annotated[Window | None, For(("burst", "trace"), own=True)] = unset(
        "window",
        "burst: start times are drawn uniformly from [from, to), by default 0us; trace: only rows that "
        "arrive in it, counted from the trace's first row. A single duration is its end",
    )
    interval_ns: Annotated[int | None, Duration("1ns", "60min", optional=True), For(_GAPS)] = unset(
        "interval", "mean time between two requests"
    )
    cv: Annotated[float | None, Number(0.01, 100, optional=True), For(("gamma",))] = unset(
        "cv", "standard deviation of the gaps over their mean: 1 is poisson, more is burstier"
    )
    clients: Annotated[int, Whole(1, COUNT_MAX), For(("closed-loop",))] = option(
        "clients", "1", "clients with one request each at a time"
    )
    think_ns: Annotated[int, Duration("0us", "60min"), For(("closed-loop",))] = option(
        "think", "0us", "time a client waits before its next request"
    )
    kv_bytes: Annotated[int | None, Size("1b", "1tib", optional=True), For(_GENERATED)] = unset(
        "kv_bytes", "KV handed over by each request; or prompt_tokens and workload.model tell"
    )
    prompt_tokens: Annotated[Tokens | None, For(_GENERATED)] = unset(
        "prompt_tokens", "tokens of each prompt, a number or a distribution"
    )
    output_tokens: Annotated[Tokens | None, For(_GENERATED)] = unset(
        "output_tokens", "tokens of each answer, a number or a distribution; left out: 1"
    )
    format: Annotated[str, Choice(_FORMATS), For(("trace",))] = option("format", "auto", "the file's format")
    path: Annotated[str | None, File(optional=True), For(("trace",))] = unset(
        "path", "the trace, plain or gzip; relative to the file that names it"
    )
    speedup: Annotated[float, Number(0, 1_000_000, above=True), For(("trace",))] = option(
        "speedup", "1", "times between arrivals are divided by this"
    )
    limit: Annotated[int | None, Whole(1, COUNT_MAX, optional=True), For(("trace",))] = unset(
        "limit", "only so many requests, from the beginning of the window"
    )
    tick: Annotated[str, Choice(_TICKS), For(("trace",))] = option(
        "tick", "as-is", "when requests arrive that have one time"
    )
    time_unit: Annotated[
        str | None, Choice(dict.fromkeys(TIME_UNITS, ""), optional=True), For(("trace",))
    ] = unset("time_unit", "unit of the trace's times, where it is not the format's")
    block_tokens: Annotated[int, Whole(1, 1_000_000), For(("trace",))] = option(
        "block_tokens", str(BLOCK_TOKENS), "tokens of a block that a hash of the trace stands for"
    )

    @property
    def span_ns(self) -> tuple[int, int | None]:
        """The window's beginning and end; None: no end."""
        return (self.window.from_ns, self.window.to_ns) if self.window else (0, None)
