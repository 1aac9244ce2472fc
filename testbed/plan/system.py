"""From the scenario's keys to the serving system of a plan. Reads the prefill profile, nothing else.

A burst whose KV sizes are given, with every key of the serving system at its default, has none: each request
is then one transfer at its arrival, as if written out. Called by `testbed.plan.build`.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import replace

from testbed.errors import InputError
from testbed.plan.model import SERVED_PORTS
from testbed.plan.profile import Profile, at_rate, read_profile
from testbed.plan.requests import model_of
from testbed.plan.served import most_served
from testbed.plan.serving import Costs, jobs_of
from testbed.scenario.models import Scenario, Workload
from testbed.scenario.placement import leaf_spine
from testbed.scenario.problems import Problem
from traffic.connectors import Handover, handover
from traffic.jobs import Serving
from traffic.kv import moved_bytes_per_token
from traffic.plain_file import open_plain
from traffic.request import BLOCK_TOKENS, Request
from traffic.tcp_replay import CONNECT_LEAD_NS

PROFILE_BYTES_MAX = 10_000_000


def is_served(scenario: Scenario) -> bool:
    """Whether requests pass through a serving system, and not straight onto the network."""
    workload = scenario.workload
    if workload.requests is None:
        return False
    given = workload.requests.kind == "burst" and workload.requests.kv_bytes is not None
    timed = any(name in workload.model_fields_set for name in ("prefill", "decode", "slo"))
    return not given or timed or _handed(workload)


def _handed(workload: Workload) -> bool:
    """Whether hand-over or placement differ from the default."""
    preset = type(workload.connector)()
    return workload.connector != preset or workload.placement.policy != "round-robin"


def serving_system(scenario: Scenario, seed: int, requests: Iterable[Request]) -> Serving:
    """Return the serving system of a scenario with `requests` as its jobs; InputError for what cannot be."""
    workload, hosts = scenario.workload, scenario.hosts
    hand = _handover(scenario)
    if hand.pace_bps >= scenario.fabric.host_link.rate_bps:
        hand = replace(hand, pace_bps=0)  # the NIC is slower than the posting of descriptors
    time_factor = workload.scale.time_factor
    token_bytes = _token_bytes(scenario)
    costs = Costs(lambda request: _bytes_of(request, token_bytes, scenario), _profile(scenario), time_factor)
    block_bytes = token_bytes * (workload.requests.block_tokens if workload.requests else BLOCK_TOKENS)
    cache_blocks = int(workload.decode.cache_bytes // block_bytes) if block_bytes else 0
    serving = Serving(
        scheme=workload.connector.preset,
        handover=hand,
        prefill_hosts=_names("p", hosts.prefill.count),
        decode_hosts=_names("d", hosts.decode.count),
        store_hosts=_names("s", hosts.store.count) if hand.store else (),
        prefill_policy=workload.prefill.policy,
        prefill_slots=workload.prefill.slots,
        placement=workload.placement.policy,
        skew=workload.placement.skew,
        staleness_ns=workload.placement.staleness_ns,
        decode_slots=workload.decode.slots,
        step_ns=round(workload.decode.step_ns * time_factor),
        slo_ttft_ns=round((workload.slo.ttft_ns or 0) * time_factor),
        cache_blocks=cache_blocks,
        lead_ns=CONNECT_LEAD_NS,
        nic_of_gpu=leaf_spine(scenario).nic_of_gpu,
        seed=seed,
        size_factor=workload.scale.size_factor,
        time_factor=time_factor,
        jobs=jobs_of(_with_tokens(requests, token_bytes), costs, _clients(workload), blocks=cache_blocks > 0),
    )
    if most_served(serving) > SERVED_PORTS:
        raise scenario.error(_too_many(serving))
    return serving


def _with_tokens(requests: Iterable[Request], token_bytes: int) -> Iterator[Request]:
    """Yield the requests; one whose KV is given has as many tokens as those bytes are, if that is known."""
    for request in requests:
        if request.kv_bytes is not None and token_bytes and not request.prompt_tokens:
            request = replace(request, prompt_tokens=max(1, request.kv_bytes // token_bytes))
        yield request


def _too_many(serving: Serving) -> Problem:
    wrong = f"are {most_served(serving)} transfers, each of which has a port of its own"
    allowed = f"at most {SERVED_PORTS}: use fewer requests or streams"
    return Problem(("workload", "requests"), wrong, allowed, show=False)


def _names(letter: str, count: int) -> tuple[str, ...]:
    return tuple(f"{letter}{number}" for number in range(1, count + 1))


def _clients(workload: Workload) -> int:
    requests = workload.requests
    return requests.clients if requests and requests.kind == "closed-loop" else 0


# ---- bytes ----------------------------------------------------------------------------


def _ranks(scenario: Scenario) -> int:
    """Return how many flows a request has: one for each GPU of the side that has more of them."""
    parallel = scenario.workload.tensor_parallel
    return max(parallel.prefill, parallel.decode)


def _token_bytes(scenario: Scenario) -> int:
    """Return the KV of a token over all flows of a request, unscaled; 0 without a model."""
    model, workload = model_of(scenario), scenario.workload
    return (
        0 if model is None else moved_bytes_per_token(model, workload.dtype, workload.tensor_parallel.decode)
    )


def _bytes_of(request: Request, token_bytes: int, scenario: Scenario) -> int:
    whole = token_bytes * request.prompt_tokens if request.kv_bytes is None else request.kv_bytes
    return max(1, round(whole * scenario.workload.scale.size_factor))


def _handover(scenario: Scenario) -> Handover:
    model, flows = model_of(scenario), _ranks(scenario)
    connector = scenario.workload.connector.connector
    return handover(
        connector,
        token_bytes=_token_bytes(scenario) // (flows * connector.streams),
        layers=model.layers if model else 0,
        flows=flows,
        nics=scenario.hosts.nics,
    )


# ---- prefill --------------------------------------------------------------------------


def _profile(scenario: Scenario) -> Profile | None:
    prefill = scenario.workload.prefill
    if prefill.tokens_per_second is not None:
        return at_rate(prefill.tokens_per_second)
    return None if prefill.profile is None else _read_profile(scenario)


def _read_profile(scenario: Scenario) -> Profile:
    path = scenario.file(("workload", "prefill", "profile"))
    try:
        with open_plain(path) as file:
            raw = file.read(PROFILE_BYTES_MAX + 1)
        if len(raw) > PROFILE_BYTES_MAX:
            raise scenario.error(_unreadable(f"is larger than {PROFILE_BYTES_MAX} bytes; no profile is"))
        return read_profile(io.StringIO(raw.decode("utf-8-sig"), newline=""), str(path))
    except OSError as error:
        raise scenario.error(_unreadable(f"cannot be read: {error.strerror}")) from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text; save the file as UTF-8") from None


def _unreadable(wrong: str) -> Problem:
    return Problem(
        ("workload", "prefill", "profile"), wrong, "give a CSV file with the columns tokens and ms"
    )
