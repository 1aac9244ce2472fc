"""What became of each request of the serving engine, and the transfers it was made of, as the lab decided.

Turns the record's file into values in scenario time; computes no result. Called by `testbed.record.reader`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from testbed.errors import InputError
from testbed.plan.build import routes_of
from testbed.plan.codec import value_of
from testbed.plan.model import Plan, Transfer
from testbed.plan.releases import Releases, alone_ns
from testbed.record import layout
from testbed.record.codec import Damage


@dataclass(frozen=True)
class RequestOutcome:
    """A request's hosts, the bytes moved for it, and its moments in scenario ns (None: not reached).

    `bytes` is 0 where all of its KV was at the decode host already. `admitted_ns` is when it joined the
    batch, `first_token_ns` when its first decode step had ended.
    """

    id: int
    prefill_host: str
    decode_host: str
    store_host: str
    bytes: int
    cached_blocks: int
    arrival_ns: int | None
    prefill_start_ns: int | None
    prefill_end_ns: int | None
    landed_ns: int | None
    admitted_ns: int | None
    first_token_ns: int | None
    ended_ns: int | None
    error: str | None

    @property
    def completed(self) -> bool:
        """Whether its first token is known of."""
        return self.first_token_ns is not None and self.error is None


@dataclass(frozen=True)
class Served:
    """All requests, their transfers resolved, and for each transfer whose bytes could leave in parts only
    when they could (scenario ns)."""

    requests: tuple[RequestOutcome, ...]
    transfers: tuple[Transfer, ...]
    releases: Mapping[int, Releases]


NOTHING_SERVED = Served((), (), {})


def parse_served(document: Any, outcomes: Any, plan: Plan) -> Served:
    """Return what the lab wrote of its requests; Damage when it cannot be read.

    `outcomes` is the list of what became of each transfer.
    """
    try:
        requests = tuple(_request(entry, plan.dilation) for entry in document["requests"])
        transfers = [value_of(Transfer, entry, "transfer") for entry in document["transfers"]]
        rows = {row["id"]: row for row in outcomes}
        releases = {
            number: _releases(row, plan.dilation) for number, row in rows.items() if "releases" in row
        }
        resolved = _resolved(transfers, rows, releases, plan)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, InputError) as error:
        raise Damage(f"{layout.REQUESTS} does not say what became of the requests: {error!r}") from None
    return Served(requests, resolved, releases)


def _request(entry: Mapping[str, Any], dilation: float) -> RequestOutcome:
    values: dict[str, Any] = {
        key: _scenario_time(value, dilation) if key.endswith("_ns") else value for key, value in entry.items()
    }
    return RequestOutcome(**values)


def _scenario_time(lab_ns: int | None, dilation: float) -> int | None:
    return lab_ns if lab_ns is None or dilation == 1 else round(lab_ns / dilation)


def _releases(row: Mapping[str, Any], dilation: float) -> Releases:
    return tuple((round(moment / dilation), upto) for moment, upto in row["releases"])


def _resolved(
    transfers: list[Transfer],
    rows: Mapping[int, Mapping[str, Any]],
    releases: Mapping[int, Releases],
    plan: Plan,
) -> tuple[Transfer, ...]:
    """Return the transfers with wire bytes, ideal times, and the moment from which they could leave."""
    routes = routes_of(plan.topology, plan.mtu, plan.transport)
    pace_bps = plan.serving.handover.pace_bps if plan.serving else 0
    found = []
    for transfer in transfers:
        start_ns = rows[transfer.id]["planned_start_ns"] if transfer.id in rows else transfer.start_ns
        moment_ns = _scenario_time(start_ns, plan.dilation) or 0
        whole = routes.resolved(replace(transfer, start_ns=moment_ns, pace_bps=pace_bps))
        delay_ns = routes.facts(whole).delay_ns
        parts = releases.get(whole.id, ())
        alone = alone_ns(parts, whole.bytes, whole.ideal_ns - delay_ns)
        found.append(replace(whole, ideal_ns=math.ceil(alone) + delay_ns))
    return tuple(found)
