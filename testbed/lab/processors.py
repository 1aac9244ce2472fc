"""A processor of its own for a guest, and the first turn on it. Runs outside the lab.

User-Mode Linux and the guest program it traces take turns, some ten thousand times a second. On two
processors each turn wakes an idle one, which in a virtual machine costs more than the turn's work: `incast`
takes 2.3 times as long as on one. So each guest is bound to one, and two guests never to the same. On a real
clock each turn it waits for is lateness besides.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def processor_of_its_own(process: int) -> Iterator[int | None]:
    """Bind a process, and all that it will start, to one processor for the time of the block.

    Yields the processor's number; None, and nothing is bound, where each has a guest already or there is only
    one. A processor is taken by a socket's name, which the kernel gives back however its owner ends.
    """
    with contextlib.ExitStack() as stack:
        yield _bind(process, stack)


def _bind(process: int, stack: contextlib.ExitStack) -> int | None:
    processors = sorted(os.sched_getaffinity(0), reverse=True)
    if len(processors) < 2:
        return None
    for number in processors:
        name = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        try:
            name.bind(f"\0kv-testbed-processor-{number}")
            os.sched_setaffinity(process, {number})
        except OSError:
            continue
        return number
    return None


def goes_first(process: int) -> bool:
    """Let a process, and all that it will start, run before every ordinary one; tell whether it does.

    Only where it may, and where another processor is left for what watches it.
    """
    if len(os.sched_getaffinity(0)) < 2:
        return False
    try:
        os.sched_setscheduler(process, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        return False
    return True
