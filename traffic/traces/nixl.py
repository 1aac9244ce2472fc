"""NIXL's traffic matrices: read as transfers between ranks, and written for its benchmark (kvbench).

A folder has `metadata.yaml` with a list of traffic patterns, and a file with a matrix for each: row i,
column j is what rank i sends to rank j. In the benchmark a pattern starts when the one before has ended and
its sleep is over. How long a pattern takes is what the lab is to find out, so here the sleeps alone make the
clock, and patterns overlap where the network is slower than the sleeps.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from traffic.traces.files import lines, shown
from traffic.traces.rows import Format, Reading, Row, Rows, TraceError, Unusable

NAME = "metadata.yaml"
PATTERNS = "traffic_patterns"
NS_PER_S = 1_000_000_000
YAML_BYTES_MAX = 4 << 20

_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{0,6})?)([KMGT]?)(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_RDMA = "[rdma]"


def metadata_path(path: str) -> str:
    """Return the list of patterns: `path` itself, or the file of that name in the folder."""
    return os.path.join(path, NAME) if os.path.isdir(path) else path


def read(path: str, reading: Reading) -> Rows:
    """Yield a row for each cell that is not 0, in the order of patterns, rows and columns; TraceError."""
    metadata, now_ns = metadata_path(path), 0
    for number, pattern in enumerate(_patterns(metadata, reading)):
        now_ns += _sleep_ns(metadata, number, pattern, "sleep_before_launch_sec")
        file = _matrix_file(metadata, number, pattern)
        if file is None:
            yield Unusable(0, now_ns, "a pattern of storage only")
        else:
            yield from _cells(file, now_ns)
        now_ns += _sleep_ns(metadata, number, pattern, "sleep_after_launch_sec")
        now_ns += _sleep_ns(metadata, number, pattern, "decode_compute_sec")


def ranks_of(path: str, reading: Reading) -> int:
    """Return how many ranks the first matrix has, 0 where there is none; TraceError."""
    metadata = metadata_path(path)
    for number, pattern in enumerate(_patterns(metadata, reading)):
        file = _matrix_file(metadata, number, pattern)
        if file is not None:
            return _width(file)
    return 0


def _width(file: str) -> int:
    return max((len(sizes) for _, sizes in islice(_matrix(file), 1)), default=0)


def _patterns(metadata: str, reading: Reading) -> list[dict[str, Any]]:
    assert reading.load_yaml is not None
    text, room = [], YAML_BYTES_MAX
    for _, line in lines(metadata):
        text.append(line)
        room -= len(line) + 1
        if room < 0:
            raise TraceError(metadata, 0, f"is longer than {YAML_BYTES_MAX >> 20} MiB")
    try:
        data = reading.load_yaml("\n".join(text))
    except ValueError as error:
        raise TraceError(metadata, 0, f"is not valid YAML: {error}") from None
    patterns = data.get(PATTERNS) if isinstance(data, dict) else None
    if not isinstance(patterns, list) or not all(isinstance(item, dict) for item in patterns):
        raise TraceError(metadata, 0, f"has no list of mappings {PATTERNS}")
    return patterns


def _sleep_ns(metadata: str, number: int, pattern: Mapping[str, Any], key: str) -> int:
    value = pattern.get(key)
    if value is None:
        return 0
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 10**9:
        wrong = f"{PATTERNS}[{number}].{key} is no number of seconds (found {shown(str(value))})"
        raise TraceError(metadata, 0, wrong)
    return round(value * NS_PER_S)


def _matrix_file(metadata: str, number: int, pattern: Mapping[str, Any]) -> str | None:
    name = pattern.get("matrix_file") or pattern.get("tp_file")
    if name is None and "matrix" not in pattern:
        return None
    if not isinstance(name, str):
        raise TraceError(metadata, 0, f"{PATTERNS}[{number}] has no matrix_file")
    folder = os.path.dirname(metadata)
    file = os.path.join(folder, name)
    within = os.path.realpath(folder or ".")
    if "\0" in name or os.path.commonpath([os.path.realpath(file), within]) != within:
        wrong = f"{PATTERNS}[{number}] has a matrix outside the folder (found {shown(name)}); put it inside"
        raise TraceError(metadata, 0, wrong)
    return file


def _cells(file: str, at_ns: int) -> Iterator[Row]:
    for src, (number, sizes) in enumerate(_matrix(file)):
        for dst, size in enumerate(sizes):
            if size:
                yield Row(number, at_ns, 0, 0, kv_bytes=size, ranks=(src, dst))


def _matrix(file: str) -> Iterator[tuple[int, list[int]]]:
    """Yield line and sizes of each row of a square matrix; of a file with sections those of the first."""
    width, rows, number = 0, 0, 0
    for number, text in lines(file):
        words = text.split()
        if not words or words == [_RDMA]:
            continue
        if words[0].startswith("["):
            break
        width = width or len(words)
        if len(words) != width or rows == width:
            raise TraceError(file, number, f"is no row of a square matrix of {width} ranks")
        rows += 1
        yield number, [_size(file, number, word) for word in words]
    if rows != width:
        raise TraceError(file, number, f"has {rows} rows of {width}: the matrix is not square")


def _size(file: str, number: int, word: str) -> int:
    match = _SIZE.fullmatch(word)
    if match is None:
        raise TraceError(file, number, f"is no size (found {shown(word)}); write a number with K, M or G")
    unit = _UNITS[match[2].upper()]
    return round(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit


# ---- out ------------------------------------------------------------------------------

Cell = tuple[int, int, int, int]
"""When (ns), from rank, to rank, how much (bytes)."""


def files(cells: Iterable[Cell], ranks: int) -> Iterator[tuple[str, str]]:
    """Yield name and text of the files of a folder that `read` gives the same cells of, in order of time.

    Transfers that start together are one pattern. Of several between the same two ranks the later ones are
    patterns of their own, right behind it: a matrix has room for one.
    """
    starts: list[int] = []
    for number, (at_ns, matrix) in enumerate(_grouped(cells)):
        rows = (" ".join(str(matrix.get((src, dst), 0)) for dst in range(ranks)) for src in range(ranks))
        yield f"matrices/matrix_{number}.txt", "\n".join(rows) + "\n"
        starts.append(at_ns)
    yield NAME, _metadata(starts)


def _grouped(cells: Iterable[Cell]) -> Iterator[tuple[int, Mapping[tuple[int, int], int]]]:
    patterns: defaultdict[tuple[int, int], dict[tuple[int, int], int]] = defaultdict(dict)
    seen: Counter[tuple[int, int, int]] = Counter()
    for at_ns, src, dst, size in cells:
        patterns[at_ns, seen[at_ns, src, dst]][src, dst] = size
        seen[at_ns, src, dst] += 1
    for (at_ns, _), matrix in sorted(patterns.items()):
        yield at_ns, matrix


def _metadata(starts: Sequence[int]) -> str:
    rows = [f"{PATTERNS}:"]
    for number, at_ns in enumerate(starts):
        gap_ns = at_ns - (starts[number - 1] if number else 0)
        rows += [
            f"- matrix_file: matrices/matrix_{number}.txt",
            f"  sleep_before_launch_sec: {gap_ns // NS_PER_S}.{gap_ns % NS_PER_S:09}",
            "  mem_type: cuda",
            "  xfer_op: WRITE",
        ]
    return "\n".join(rows) + "\n" if starts else f"{PATTERNS}: []\n"


FORMAT = Format(
    name="nixl",
    meaning="traffic matrices of NIXL's kvbench: a folder with metadata.yaml, or that file",
    source="ai-dynamo/nixl, benchmark/kvbench/test/inference_workload_matgen.py",
    unit="seconds",
    tick_ns=0,
    sign=(PATTERNS,),
    fields=(
        (
            "matrix_file, or [rdma] of tp_file",
            "a request for each cell that is not 0, with its bytes (K, M and G are 1024 each); row and column"
            " are the sending and the receiving GPU: those of p1, p2, ... in turn, then those of d1, d2, ...",
        ),
        ("sleep_before_launch_sec, sleep_after_launch_sec, decode_compute_sec", "the time between patterns"),
        ("storage, mem_type, xfer_op, metadata, iters", "nothing; a pattern of storage only is not used"),
    ),
    read=read,
)
