"""Waiting for a moment exactly, as a program in the lab must. Only the standard library, and little of it.

In virtual time reading the clock moves it; an absolute sleep does not. Used by all that has a timetable: the
traffic, the probes, the pauses.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

_PR_SET_TIMERSLACK = 29
_CLOCK_MONOTONIC = 1
_TIMER_ABSTIME = 1
_EINTR = 4
_TFD_NONBLOCK = 0o4000

_libc = ctypes.CDLL(None, use_errno=True)


def exact_timers() -> None:
    """Switch off the 50 us by which the kernel may delay this process's timers."""
    _libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


class Timer:
    """A descriptor that can be read from a moment on, and with an interval again after each.

    Read it to wait for what comes next. With `wait` reading does so by itself; else it fails when there is
    nothing yet (EAGAIN), which in virtual time moves the clock. OSError when there is no descriptor left.
    """

    def __init__(self, *, wait: bool) -> None:
        self.descriptor = _libc.timerfd_create(_CLOCK_MONOTONIC, 0 if wait else _TFD_NONBLOCK)
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def start(self, first_ns: int, interval_ns: int = 0) -> None:
        """Set the first moment by the monotonic clock, and the time from one to the next (0: no other)."""
        setting = (ctypes.c_long * 4)(*divmod(interval_ns, 1_000_000_000), *divmod(first_ns, 1_000_000_000))
        _libc.timerfd_settime(self.descriptor, _TIMER_ABSTIME, setting, None)

    def clear(self) -> None:
        """Read it where that does not wait, or it can be read for ever."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.descriptor, 8)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.descriptor)


def sleep_until_ns(moment_ns: int) -> None:
    """Sleep until the monotonic clock shows `moment_ns`, without reading the clock."""
    request = (ctypes.c_long * 2)(*divmod(moment_ns, 1_000_000_000))
    while _libc.clock_nanosleep(_CLOCK_MONOTONIC, _TIMER_ABSTIME, request, None) == _EINTR:
        pass
