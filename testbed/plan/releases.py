"""When the bytes of a transfer would arrive alone: if they may leave only in parts, or as they are posted.

Pure arithmetic. Called where a record's transfers get their ideal times and where what they lost is split.
"""

from __future__ import annotations

from testbed.plan.model import NO_REQUEST, Transfer

Releases = tuple[tuple[int, int], ...]
"""Moments (ns) and how many bytes in all may have left from each on."""


def alone(releases: Releases, size_bytes: int, serial_ns: float) -> tuple[list[float], list[float]]:
    """Return shares of a transfer, rising, and when (ns after the first release) each would have arrived.

    Straight lines lie between them. `serial_ns` is the time of all `size_bytes` at the path's rate; the
    path's delay is not in it. Without releases all bytes may leave at once.
    """
    if len(releases) < 2:
        return [0.0, 1.0], [0.0, serial_ns]
    shares, times = [0.0], [0.0]
    begun = releases[0][0]
    for moment, upto in releases:
        share = min(upto / size_bytes, 1.0)
        if moment - begun > times[-1]:
            shares.append(shares[-1])
            times.append(float(moment - begun))
        times.append(times[-1] + (share - shares[-1]) * serial_ns)
        shares.append(share)
    return shares, times


def alone_ns(releases: Releases, size_bytes: int, serial_ns: float) -> float:
    """Return when (ns after the first release) the last byte would have arrived alone, without the delay."""
    return alone(releases, size_bytes, serial_ns)[1][-1]


def posting_ns(transfer: Transfer) -> float:
    """Return how long it takes to post a transfer's descriptors, 0 where that costs nothing.

    A pace that a scenario gives a transfer of its own is no cost of the kind: it is what the sender does.
    """
    paced = transfer.request != NO_REQUEST and transfer.pace_bps
    return transfer.bytes * 8e9 / transfer.pace_bps if paced else 0.0
