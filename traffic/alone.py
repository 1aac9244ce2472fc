"""How long a request's KV takes alone on an idle network, by arithmetic. Pure; called by the plan."""

from __future__ import annotations

import math

from traffic.connectors import Handover


def exposed_ns(transfer_ns: float, prefill_ns: int, steps: int) -> float:
    """Return how long after its prefill a transfer ends that may begin when the first of `steps` is computed.

    With equal steps the last can leave at the end of prefill only, and all of them take `transfer_ns` from
    the first one's end on: max(X/L, X - P (L - 1)/L).
    """
    return max(transfer_ns / steps, transfer_ns - prefill_ns * (steps - 1) / steps)


def stream_bps(hand: Handover, path_bps: float, round_trip_ns: float, overhead: float = 1.0) -> float:
    """Return the rate of one stream on a path of its own: what descriptors cost and the window limit it.

    Those two are of payload, of which the wire carries `overhead` times as much.
    """
    limits = [path_bps]
    if hand.pace_bps:
        limits.append(hand.pace_bps * overhead)
    if hand.window_bytes and round_trip_ns > 0:
        limits.append(hand.window_bytes * overhead * 8e9 / round_trip_ns)
    return min(limits)


def store_ns(serial_ns: float, size_bytes: int, chunk_bytes: int) -> float:
    """Return how long two hops take of which the second passes on whole chunks: one more chunk than one hop.

    `serial_ns` is the time of all bytes over one hop.
    """
    chunks = max(1, math.ceil(size_bytes / chunk_bytes)) if chunk_bytes else math.inf
    return serial_ns * (1 + 1 / chunks)
