"""`python -m testbed.lab.at_once MODULE ARGUMENT...`: run a module whose memory comes at once.

For programs of a lab with a kernel of its own. In User-Mode Linux each first touch of a page costs
some 100 us of real time, because the kernel learns of it as a signal of a traced process. Memory that
is locked is filled when it is asked for instead, in the kernel and many pages together: importing
os-ken, 10,000 pages, takes half as long. A guest has no swap, so that a lock keeps nothing from anyone.
"""

from __future__ import annotations

import ctypes
import runpy
import sys
import threading

_MCL_FUTURE = 2
THREAD_STACK_BYTES = 1 << 20
"""The stack of a thread: 8 MiB by default, all of which would be filled."""


def main() -> None:
    """Lock what memory this process will have, and become the module named first."""
    if ctypes.CDLL(None, use_errno=True).mlockall(_MCL_FUTURE):
        raise OSError(ctypes.get_errno(), "mlockall")
    threading.stack_size(THREAD_STACK_BYTES)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
