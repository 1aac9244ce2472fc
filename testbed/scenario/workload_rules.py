"""Checks across the keys of a workload's requests and model. Called by `testbed.scenario.rules`."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.scenario.models import Scenario
from testbed.scenario.problems import Problem
from testbed.scenario.sections import Section, kinds_of
from testbed.scenario.tree import Leaf, Path, find
from testbed.scenario.workload import DIMENSIONS, ModelChoice, Requests, Tokens
from traffic.traces import FORMATS

WORKLOAD: Path = ("workload",)
REQUESTS: Path = ("workload", "requests")
MODEL: Path = ("workload", "model")
MODEL_NEEDED = "it tells how large the KV of a prompt is"


def problems(scenario: Scenario) -> Iterator[Problem]:
    """Yield what is wrong with requests and model."""
    workload = scenario.workload
    if workload.model is not None:
        yield from _model(scenario, workload.model)
    elif workload.dtype is not None:
        yield Problem((*WORKLOAD, "dtype"), "belongs to no model", "give workload.model, or leave it out")
    if workload.requests is not None:
        yield from _kind(scenario, workload.requests)
        yield from _window(workload.requests)
        yield from _sizes(scenario, workload.requests)


def written(scenario: Scenario, path: Path) -> bool:
    """Whether something stands at `path` in the scenario's files."""
    node = find(scenario.tree, path)
    return node is not None and not (isinstance(node, Leaf) and node.null)


def _one_of(scenario: Scenario, path: Path, model: type[Section]) -> Iterator[Problem]:
    """Yield a problem where more than one of the alternatives is written."""
    found = [[key for key in group if written(scenario, (*path, key))] for group in model.alternatives]
    chosen = [keys[0] for keys in found if keys]
    for key in chosen[1:]:
        yield Problem((*path, key), f"stands beside {chosen[0]}", "give one of the two", show=False)


def _model(scenario: Scenario, model: ModelChoice) -> Iterator[Problem]:
    yield from _one_of(scenario, MODEL, ModelChoice)
    given = [key for key in DIMENSIONS if getattr(model, key) is not None]
    if model.name or model.config:
        return
    wanted = ["layers", "latent_dim"] if "latent_dim" in given else ["layers", "kv_heads", "head_dim"]
    missing = [key for key in wanted if key not in given]
    extra = [key for key in given if key not in wanted]
    allowed = "layers, kv_heads and head_dim; or layers and latent_dim; or a name, or config"
    if missing:
        yield Problem((*MODEL, missing[0]), "is missing", allowed)
    elif extra:
        yield Problem((*MODEL, extra[0]), "stands beside latent_dim", allowed)


def _kind(scenario: Scenario, requests: Requests) -> Iterator[Problem]:
    for key, mark in kinds_of(Requests).items():
        if requests.kind not in mark.kinds and written(scenario, (*REQUESTS, key)):
            allowed = f"leave it out, or set requests.kind to {' or '.join(mark.kinds)}"
            yield Problem((*REQUESTS, key), f"is not for kind {requests.kind}", allowed, show=False)
    needed = {"poisson": ["interval"], "gamma": ["interval", "cv"], "trace": ["path"]}
    for key in needed.get(requests.kind, []):
        if not written(scenario, (*REQUESTS, key)):
            yield Problem((*REQUESTS, key), "is missing", f"kind {requests.kind} needs it")


def _window(requests: Requests) -> Iterator[Problem]:
    from_ns, to_ns = requests.span_ns
    if to_ns is not None and (to_ns < from_ns or (to_ns == from_ns and requests.kind == "trace")):
        yield Problem((*REQUESTS, "window"), "ends before it begins", "from below to", show=False)
    if to_ns is None and from_ns and requests.kind == "burst":
        yield Problem((*REQUESTS, "window", "to"), "is missing", "the end of a burst")


def _sizes(scenario: Scenario, requests: Requests) -> Iterator[Problem]:
    yield from _one_of(scenario, REQUESTS, Requests)
    if requests.kind == "trace":
        yield from _trace(scenario, requests)
        return
    if requests.kv_bytes is None and requests.prompt_tokens is None:
        allowed = "1b to 1tib, or prompt_tokens and workload.model"
        yield Problem((*REQUESTS, "kv_bytes"), "is missing", allowed)
    if requests.prompt_tokens is not None and scenario.workload.model is None:
        yield Problem(MODEL, "is missing", MODEL_NEEDED, show=False)
    for key, tokens in (("prompt_tokens", requests.prompt_tokens), ("output_tokens", requests.output_tokens)):
        if tokens is not None:
            yield from _tokens(scenario, (*REQUESTS, key), tokens)


def _tokens(scenario: Scenario, path: Path, tokens: Tokens) -> Iterator[Problem]:
    yield from _one_of(scenario, path, Tokens)
    if tokens.fixed is None and tokens.lognormal is None and tokens.cdf is None:
        yield Problem(path, "has no length", "a number, lognormal or cdf", show=False)
    if tokens.lognormal is not None and tokens.lognormal.median is None:
        yield Problem((*path, "lognormal", "median"), "is missing", "the length that half of them are below")


def _trace(scenario: Scenario, requests: Requests) -> Iterator[Problem]:
    chosen = FORMATS.get(requests.format)
    if scenario.workload.model is None and requests.format not in ("nixl", "auto"):
        yield Problem(MODEL, "is missing", MODEL_NEEDED, show=False)
    if requests.tick == "spread" and chosen is not None and not chosen.tick_ns:
        yield Problem(
            (*REQUESTS, "tick"), f"has nothing to spread: {chosen.name}'s clock has no steps", "as-is"
        )
