"""Waiting for a moment exactly, as a program in the lab must. Only the standard library, and little of it.

In virtual time reading the clock moves it; an absolute sleep does not. Used by all that has a timetable: the
traffic, the probes, the pauses.
"""

from __future__ import annotations

import ctypes

_PR_SET_TIMERSLACK = 29
_CLOCK_MONOTONIC = 1
_TIMER_ABSTIME = 1
_EINTR = 4

_libc = ctypes.CDLL(None, use_errno=True)


def exact_timers() -> None:
    """Switch off the 50 us by which the kernel may delay this process's timers."""
    _libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def sleep_until_ns(moment_ns: int) -> None:
    """Sleep until the monotonic clock shows `moment_ns`, without reading the clock."""
    request = (ctypes.c_long * 2)(*divmod(moment_ns, 1_000_000_000))
    while _libc.clock_nanosleep(_CLOCK_MONOTONIC, _TIMER_ABSTIME, request, None) == _EINTR:
        pass
