"""Departures of a backlogged port against size over rate. Pure functions of the record.

Mininet-HiFi's invariant (Handigol and others, CoNEXT 2012): a port with packets waiting sends each when the
one before it has been sent. Called by the checks of the measurement and by the validation.
"""

from __future__ import annotations

import math

import numpy as np

from testbed.analysis.stats import Floats
from testbed.record.reader import Record


def backlogged_gaps(record: Record, link: str, unit: int) -> tuple[Floats, Floats]:
    """Return measured and ideal ns of each `unit` packets in a row that left `link` while it had a backlog.

    A packet leaves when the one before it has been sent: the time from packet i to i + unit is that of the
    packets i to i + unit - 1. The port is backlogged from one sample to the next when both saw what it sends
    meanwhile. InputError when the departures of `link` were not recorded.
    """
    left, series = record.departures(link), record.series(link)
    rate_bps = record.plan.topology.link(link).rate_bps
    count = max(len(left.time_ns) - unit, 0)
    if not count or len(series.time_ns) < 2:
        return np.empty(0), np.empty(0)
    level = max(2 * (record.plan.mtu + 14), rate_bps * record.plan.measure.interval_ns / 8e9)
    high = series.backlog_bytes > level
    steady = high[:-1] & high[1:]
    slot = np.clip(np.searchsorted(series.time_ns, left.time_ns, "right") - 1, 0, len(steady) - 1)
    inside = (left.time_ns >= series.time_ns[0]) & (left.time_ns < series.time_ns[-1])
    idle = np.cumsum(np.concatenate(([0], ~(steady[slot] & inside))))
    sent = np.concatenate(([0], np.cumsum(left.frame_bytes)))
    measured = (left.time_ns[unit:] - left.time_ns[:-unit]).astype(np.float64)
    ideal = (sent[unit : unit + count] - sent[:count]) * 8e9 / rate_bps
    whole = idle[unit + 1 : unit + 1 + count] == idle[:count]
    return measured[whole], ideal[whole]


def percentile(values: Floats, q: float) -> float:
    """Return a percentile; no number when there are no values, so that no bound holds."""
    return float(np.percentile(values, q)) if len(values) else math.nan
