"""The requests of a scenario as a stream: generated, or read from a trace; and how much KV each has.

Reads the files that a scenario names, one row at a time; called where the plan is built. What is wrong with
a file is an InputError with the file and its line, what is wrong with the scenario one with the key.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from itertools import chain, repeat

from testbed.errors import InputError
from testbed.plan.plain_yaml import load_yaml
from testbed.scenario.models import Scenario
from testbed.scenario.problems import Problem, shown
from testbed.scenario.tree import Path
from testbed.scenario.workload import COUNT_MAX, TIME_UNITS, Requests, Tokens
from testbed.scenario.workload_rules import MODEL, MODEL_NEEDED, REQUESTS
from traffic import arrivals, lengths
from traffic.kv import MODELS, Model, bytes_per_token, model_from_config, shards
from traffic.plain_file import open_plain
from traffic.request import Ends, Request
from traffic.tally import Tally
from traffic.traces import FORMATS, nixl, recognise
from traffic.traces.replay import EndsOf, Part, replay
from traffic.traces.rows import Format, Reading, TraceError

CONFIG_BYTES_MAX = 1_000_000

KvBytes = Callable[[Request], int]


def requests_of(scenario: Scenario, seed: int) -> tuple[Iterator[Request], Tally]:
    """Return the requests in order of arrival, and counts that are complete when they have been taken.

    The same scenario, files and seed give the same requests. InputError, also while they are taken. In a
    closed loop request k is one of client k mod `clients`, and its arrival counts from the end of that
    client's request before: 0 for the first one, then the time to think.
    """
    requests = scenario.workload.requests
    tally = Tally(requests.kind if requests else "")
    return _counted(scenario, _stream(scenario, seed, tally), tally), tally


def kv_bytes_of(scenario: Scenario) -> KvBytes:
    """Return what tells the bytes of KV of a request's whole prompt, before any scaling; InputError."""
    model = model_of(scenario)
    each = bytes_per_token(model, scenario.workload.dtype) if model else 0
    return lambda request: request.prompt_tokens * each if request.kv_bytes is None else request.kv_bytes


def scaled(kv_bytes: int, factor: float) -> int:
    """Return a size shrunk by `factor`: at least one byte, unless there is nothing to move at all."""
    return max(1, round(kv_bytes * factor)) if kv_bytes else 0


def model_of(scenario: Scenario) -> Model | None:
    """Return the model whose KV is moved, None where the scenario names none; InputError."""
    chosen = scenario.workload.model
    if chosen is None:
        return None
    if chosen.name is not None:
        model = MODELS[chosen.name]
    elif chosen.config is not None:
        model = _configured(scenario)
    else:
        heads, dim, latent = chosen.kv_heads or 0, chosen.head_dim or 0, chosen.latent_dim or 0
        model = Model("own", chosen.layers or 0, heads, dim, latent, 2, "the scenario")
    _check_shards(scenario, model)
    return model


def _configured(scenario: Scenario) -> Model:
    at = (*MODEL, "config")
    path = scenario.file(at)
    try:
        with open_plain(path) as file:
            config = json.loads(file.read(CONFIG_BYTES_MAX))
        if not isinstance(config, dict):
            raise ValueError("is no JSON object")
        return model_from_config(config, path.parent.name or "own", str(path))
    except OSError as error:
        raise scenario.error(Problem(at, f"cannot be read: {error.strerror}")) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is no config.json of a model that is understood: {error}") from None


def _check_shards(scenario: Scenario, model: Model) -> None:
    parallel = scenario.workload.tensor_parallel
    counts = {"prefill": parallel.prefill, "decode": parallel.decode}
    for side, count in counts.items():
        try:
            shards(model, count)
        except ValueError as error:
            path = ("workload", "tensor_parallel", side)
            allowed = "a divisor or a multiple of the number of KV heads"
            raise scenario.error(Problem(path, f"does not fit the model: {error}", allowed)) from None
    if max(counts.values()) % min(counts.values()):
        path = ("workload", "tensor_parallel", "decode")
        raise scenario.error(
            Problem(path, "fits prefill no whole number of times", "a divisor or a multiple")
        )


def _counted(scenario: Scenario, requests: Iterator[Request], tally: Tally) -> Iterator[Request]:
    kv_bytes = kv_bytes_of(scenario)
    try:
        for request in requests:
            if request.id == COUNT_MAX:
                wrong = f"leaves more than {COUNT_MAX} requests, as many as a plan holds"
                raise scenario.error(Problem((*REQUESTS, "limit"), wrong, "set it, or window"))
            tally.add(request, kv_bytes(request))
            yield request
    except TraceError as error:
        raise InputError(str(error)) from None
    if not tally.requests:
        skipped = "".join(f"; {count} rows with {reason}" for reason, count in tally.skipped.most_common())
        allowed = f"another window or file{skipped}"
        raise scenario.error(Problem((*REQUESTS, "path"), "has no request to replay", allowed))


def _stream(scenario: Scenario, seed: int, tally: Tally) -> Iterator[Request]:
    requests = scenario.workload.requests
    if requests is None:
        return iter(())
    return _traced(scenario, seed, tally) if requests.kind == "trace" else _generated(scenario, seed)


# ---- generated ------------------------------------------------------------------------


def _generated(scenario: Scenario, seed: int) -> Iterator[Request]:
    """Arrivals and lengths have generators of their own, so that one can be changed without the other."""
    requests = scenario.workload.requests
    assert requests is not None
    times = _times(requests, random.Random(seed))
    prompts = _lengths(scenario, "prompt_tokens", requests.prompt_tokens, seed, unknown=0)
    outputs = _lengths(scenario, "output_tokens", requests.output_tokens, seed, unknown=1)
    for number, (at_ns, prompt, output) in enumerate(zip(times, prompts, outputs, strict=False)):
        yield Request(number, at_ns, prompt, output, requests.kv_bytes)


def _times(requests: Requests, rng: random.Random) -> Iterator[int]:
    if requests.kind == "burst":
        from_ns, to_ns = requests.span_ns
        return iter(arrivals.burst(requests.count, from_ns, to_ns or 0, rng))
    if requests.kind == "poisson":
        return arrivals.poisson(requests.count, requests.interval_ns or 0, rng)
    if requests.kind == "gamma":
        return arrivals.gamma(requests.count, requests.interval_ns or 0, requests.cv or 1.0, rng)
    first = min(requests.clients, requests.count)
    return chain(repeat(0, first), repeat(requests.think_ns, requests.count - first))


def _lengths(
    scenario: Scenario, key: str, tokens: Tokens | None, seed: int, *, unknown: int
) -> Iterator[int]:
    if tokens is None:
        return repeat(unknown)
    draw, rng = _drawn(scenario, key, tokens), random.Random(f"{key}-{seed}")
    return (draw(rng) for _ in repeat(None))


def _drawn(scenario: Scenario, key: str, tokens: Tokens) -> lengths.Lengths:
    if tokens.fixed is not None:
        return lengths.fixed(tokens.fixed)
    if tokens.lognormal is not None:
        shape = tokens.lognormal
        return lengths.lognormal(shape.median or 1, shape.sigma, shape.maximum)
    return lengths.distribution(lengths.read_distribution(_file(scenario, (*REQUESTS, key, "cdf"))))


def _file(scenario: Scenario, at: Path) -> str:
    """Return the path that the scenario names there; InputError where nothing is."""
    path = os.path.normpath(scenario.file(at))
    if not os.path.exists(path):
        raise scenario.error(Problem(at, "is no file", f"{shown(path)} does not exist"))
    return path


# ---- traced ---------------------------------------------------------------------------


def _traced(scenario: Scenario, seed: int, tally: Tally) -> Iterator[Request]:
    requests = scenario.workload.requests
    assert requests is not None
    path, chosen = _file(scenario, (*REQUESTS, "path")), _format(scenario, requests)
    _check_format(scenario, requests, chosen)
    tally.source = f"{chosen.name} trace {os.path.basename(path)}"
    unit_ns = None if requests.time_unit is None else TIME_UNITS[requests.time_unit]
    reading = Reading(unit_ns, requests.block_tokens, load_yaml)
    from_ns, to_ns = requests.span_ns
    spread_ns = chosen.tick_ns if requests.tick == "spread" else 0
    part = Part(from_ns, to_ns, requests.speedup, requests.limit, spread_ns)
    ends_of = _ends_of(scenario, nixl.ranks_of(path, reading)) if chosen is nixl.FORMAT else _no_ends
    rows = chosen.read(path, reading)
    yield from replay(path, rows, part, random.Random(f"tick-{seed}"), tally, ends_of)


def has_ends(scenario: Scenario) -> bool:
    """Whether the requests say themselves which GPUs they go between, so that placement does not."""
    requests = scenario.workload.requests
    return requests is not None and requests.kind == "trace" and _format(scenario, requests) is nixl.FORMAT


def _format(scenario: Scenario, requests: Requests) -> Format:
    if requests.format != "auto":
        return FORMATS[requests.format]
    try:
        return recognise(_file(scenario, (*REQUESTS, "path")))
    except TraceError as error:
        raise InputError(str(error)) from None


def _check_format(scenario: Scenario, requests: Requests, chosen: Format) -> None:
    """What could not be checked before the file was looked at."""
    if chosen is not nixl.FORMAT and scenario.workload.model is None:
        raise scenario.error(Problem(MODEL, "is missing", MODEL_NEEDED, show=False))
    if requests.tick == "spread" and not chosen.tick_ns:
        wrong = f"has nothing to spread: the clock of {chosen.name} has no steps"
        raise scenario.error(Problem((*REQUESTS, "tick"), wrong, "as-is"))


def _no_ends(ranks: tuple[int, int]) -> Ends | None:
    return None


def _ends_of(scenario: Scenario, ranks: int) -> EndsOf:
    """Ranks are the GPUs of p1, p2, ... in turn, then those of d1, d2, ..."""
    hosts, gpus = scenario.hosts, scenario.hosts.gpus
    senders, receivers = hosts.prefill.count * gpus, hosts.decode.count * gpus
    if ranks != senders + receivers:
        wrong = f"has matrices of {ranks} ranks"
        allowed = f"the scenario's hosts have {senders} prefill and {receivers} decode GPUs"
        raise scenario.error(Problem((*REQUESTS, "path"), wrong, allowed))

    def ends_of(pair: tuple[int, int]) -> Ends | None:
        src, dst = pair[0], pair[1] - senders
        if src >= senders or dst < 0:
            return None
        return Ends(f"p{src // gpus + 1}", src % gpus + 1, f"d{dst // gpus + 1}", dst % gpus + 1)

    return ends_of
