"""Workers beyond this machine: an executor of dask.distributed, by the address of its scheduler.

Dask has schedulers for single machines, clusters and Slurm (dask-jobqueue), and its client is an executor as
Python's own pools are, so that a sweep needs no scheduler of its own. Workers see the same files and have
the testbed installed. Called by `testbed sweep --executor dask://HOST:PORT`.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from testbed.errors import InputError, LabError, MachineError

SCHEME = "dask://"
CONNECT_S = 15


@contextmanager
def executor(address: str | None) -> Iterator[tuple[Executor, int] | None]:
    """Give an executor and its number of workers, or None for this machine.

    Raises InputError for an address of another kind, MachineError without the package, LabError when nobody
    answers or no worker is there.
    """
    if address is None:
        yield None
        return
    if not address.startswith(SCHEME) or len(address) == len(SCHEME):
        raise InputError(f"--executor {address}: is no address; write dask://HOST:PORT, a dask scheduler's")
    try:
        from distributed import Client
    except ImportError:
        raise MachineError(
            "--executor dask://: needs dask.distributed: pip install kv-testbed[dask]"
        ) from None
    try:
        client = Client(address.replace(SCHEME, "tcp://", 1), timeout=CONNECT_S)
    except (OSError, TimeoutError) as error:
        raise LabError(f"--executor {address}: no dask scheduler answers: {error}") from None
    try:
        threads = sum(client.nthreads().values())
        if threads == 0:
            raise LabError(
                f"--executor {address}: the scheduler has no worker; start some: dask worker {address}"
            )
        # Not pure: a task is done anew each time; dask must not answer from what it remembers.
        yield client.get_executor(pure=False), threads
    finally:
        client.close()
