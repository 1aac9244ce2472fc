"""What the JSON files of a record hold, and whether one does: kinds of values, nothing about their meaning.

A file is checked once, where it is read, so that nobody after the reader meets a text in the place of a
number. Keys that are not known here are passed over: a newer lab may report more. Called by
`testbed.record.reader`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.record.codec import Damage

WHOLE_MAX = 2**62
"""Times, bytes and counts are held in 64 bits, with room for sums of two."""


@dataclass(frozen=True)
class Each:
    """A mapping from any name to values of one shape."""

    shape: Shape


@dataclass(frozen=True)
class OrNone:
    """A value of a shape, or null."""

    shape: Shape


Shape = type | list[Any] | Mapping[str, Any] | Each | OrNone
"""A kind of single value, a list of one shape, a mapping by its keys, or one of the above.

In a mapping each known key that is there has its shape; one that has to be there is the reader's business.
"""

TIME = OrNone(int)

MANIFEST: Shape = {"status": str, "reason": OrNone(str), "files": Each({"bytes": int, "sha256": str})}

FACTS: Shape = {"readback": OrNone([{"where": OrNone(str), "what": OrNone(str), "ok": OrNone(bool)}])}

COUNTERS: Shape = Each(int)

TCP_COUNTERS: Shape = Each(COUNTERS)

ROCE_COUNTERS: Shape = {"bad_packets": OrNone(COUNTERS), "lost_at_sockets": OrNone(COUNTERS)}

SAMPLES: Shape = {"links": OrNone([str]), "rows": OrNone(int)}

DEPARTURES: Shape = {"lost": int}

DEADLOCK: Shape = {"time_ns": int, "links": [str]}

_ROCE: Shape = {
    **dict.fromkeys(("packets_sent", "not_landed", "ce_packets", "cnps_sent", "cnps_received"), TIME),
    **dict.fromkeys(("naks", "timeouts"), TIME),
    **dict.fromkeys(("first_cnp_ns", "shortest_cnp_gap_ns", "sent_at_first_cnp"), TIME),
}

OUTCOMES: Shape = [
    {
        "id": int,
        "start_ns": int,
        "planned_start_ns": int,
        "first_byte_ns": TIME,
        "end_ns": TIME,
        "bytes": int,
        "congestion_control": OrNone({"sender": OrNone(str), "receiver": OrNone(str)}),
        "ecn": OrNone(bool),
        "retransmissions": OrNone(int),
        "error": OrNone(str),
        "releases": [[int]],
        "roce": OrNone(_ROCE),
    }
]

REQUESTS: Shape = {
    "requests": [
        {
            **dict.fromkeys(("id", "bytes", "cached_blocks"), int),
            **dict.fromkeys(("prefill_host", "decode_host", "store_host"), str),
            **dict.fromkeys(("arrival_ns", "prefill_start_ns", "prefill_end_ns", "landed_ns"), TIME),
            **dict.fromkeys(("admitted_ns", "first_token_ns", "ended_ns"), TIME),
            "error": OrNone(str),
        }
    ],
    "transfers": list,
}


def fitted(value: Any, shape: Shape, at: str) -> Any:
    """Return `value` if it has the shape; Damage names the place below `at` where it has not."""
    if isinstance(shape, OrNone):
        return None if value is None else fitted(value, shape.shape, at)
    if isinstance(shape, list):
        _expect(isinstance(value, list), value, "a list", at)
        for number, item in enumerate(value):
            fitted(item, shape[0], f"{at}[{number}]")
    elif isinstance(shape, type):
        _expect(type(value) is shape, value, shape.__name__, at)
        _expect(shape is not int or abs(value) <= WHOLE_MAX, value, "a number of 62 bits", at)
    else:
        _expect(isinstance(value, dict), value, "a mapping", at)
        for key, item in value.items():
            below = shape.shape if isinstance(shape, Each) else shape.get(key)
            if below is not None:
                fitted(item, below, f"{at}: {key[:40]}")
    return value


def _expect(fits: bool, value: Any, wanted: str, at: str) -> None:
    if not fits:
        raise Damage(f"{at} is {type(value).__name__}; expected {wanted}")
