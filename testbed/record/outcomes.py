"""What became of each transfer, as the sender and receiver programs reported it.

Turns the record's list of outcomes into values in scenario time; it judges none of them. Called by
`testbed.record.reader`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.plan.model import Transfer
from testbed.record import layout
from testbed.record.codec import Damage


@dataclass(frozen=True)
class Outcome:
    """What became of one transfer, in scenario nanoseconds. `end_ns` is None when it did not complete.

    `roce` has what only RoCE knows, as `traffic.roce.replay` reports it.
    """

    id: int
    start_ns: int
    first_byte_ns: int | None
    end_ns: int | None
    bytes: int
    sender_congestion_control: str | None
    receiver_congestion_control: str | None
    ecn: bool | None
    retransmissions: int
    error: str | None
    roce: Mapping[str, Any] = field(default_factory=dict)

    @property
    def completed(self) -> bool:
        """True when the last byte arrived and neither end reported an error."""
        return self.end_ns is not None and self.error is None


def parse_outcomes(listed: Any, dilation: float) -> dict[int, Outcome]:
    """Return the outcomes by transfer id; Damage when `listed` is not a list of outcomes."""
    try:
        return {entry["id"]: _outcome(entry, dilation) for entry in listed}
    except (KeyError, TypeError, AttributeError) as error:
        raise Damage(f"{layout.OUTCOMES} is not a list of outcomes: {error!r}") from None


def _outcome(entry: Mapping[str, Any], dilation: float) -> Outcome:
    control = entry.get("congestion_control") or {}
    return Outcome(
        id=entry["id"],
        start_ns=_scenario_time(entry["start_ns"], dilation),
        first_byte_ns=_optional_time(entry.get("first_byte_ns"), dilation),
        end_ns=_optional_time(entry.get("end_ns"), dilation),
        bytes=entry["bytes"],
        sender_congestion_control=control.get("sender"),
        receiver_congestion_control=control.get("receiver"),
        ecn=entry.get("ecn"),
        retransmissions=entry.get("retransmissions") or 0,
        error=entry.get("error"),
        roce=_scenario_times(entry.get("roce") or {}, dilation),
    )


def _scenario_times(facts: Mapping[str, Any], dilation: float) -> dict[str, Any]:
    """Return facts with their times, whose names end with the unit, in scenario nanoseconds."""
    times = {name: _optional_time(facts[name], dilation) for name in facts if name.endswith("_ns")}
    return {**facts, **times}


def unknown_outcome(transfer: Transfer) -> Outcome:
    """Return the outcome of a transfer the lab reported nothing about."""
    error = "the lab reported nothing about it"
    return Outcome(transfer.id, transfer.start_ns, None, None, 0, None, None, None, 0, error)


def _scenario_time(lab_ns: int, dilation: float) -> int:
    return lab_ns if dilation == 1 else round(lab_ns / dilation)


def _optional_time(lab_ns: int | None, dilation: float) -> int | None:
    return None if lab_ns is None else _scenario_time(lab_ns, dilation)
