"""The transfers of a plan as the traffic matrices of NIXL's kvbench, to run the same on real hosts.

Called by `testbed plan --nixl`. The folder is one that `requests: {kind: trace, format: nixl}` reads again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from testbed.errors import InputError
from testbed.plan.model import Plan, Transfer
from traffic.traces import nixl


def write_matrices(plan: Plan, folder: Path) -> int:
    """Write the folder and return how many patterns it has; InputError where it cannot be written.

    Ranks are the GPUs of p1, p2, ... in turn, then those of d1, d2, ...; sizes are the transfers' own, as
    they are scaled. A folder that has something in it is refused: a matrix left over would be read.
    """
    ranks = _ranks(plan)
    cells = [(one.start_ns, *_pair(ranks, one), one.bytes) for one in plan.transfers]
    try:
        if folder.is_dir() and any(folder.iterdir()):
            raise InputError(f"{folder}: is not empty; give a new folder")
        (folder / "matrices").mkdir(parents=True)
        names = [_write(folder, name, text) for name, text in nixl.files(cells, len(ranks))]
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}") from None
    return len(names) - 1


def _write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return name


def _ranks(plan: Plan) -> Mapping[tuple[str, int], int]:
    hosts = [host for role in ("prefill", "decode") for host in plan.topology.hosts if host.role == role]
    pairs = ((host.name, gpu) for host in hosts for gpu in range(1, len(host.affinity) + 1))
    return {pair: rank for rank, pair in enumerate(pairs)}


def _pair(ranks: Mapping[tuple[str, int], int], one: Transfer) -> tuple[int, int]:
    ends = (one.src, one.src_gpu), (one.dst, one.dst_gpu)
    other = next((host for host, gpu in ends if (host, gpu) not in ranks), None)
    if other is not None:
        raise InputError(f"{other}: is neither a prefill nor a decode host, and a matrix has only those")
    return ranks[ends[0]], ranks[ends[1]]
