"""`testbed plan` on whole public traces, against a count that shares no code with it.

The files are not part of the project: KV_TRACES is a folder that has them somewhere in it, packed or not.
Where it is not given, the made-up trace of the same size and shape in `tests/unit/test_plan_requests.py` and
the small ones of `tests/data/traces` stand for them.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testbed.plan.codec import from_json
from tests.support.command import call, command

TOKEN_BYTES = 2 * 32 * 8 * 128 * 2
"""llama-3.1-8b: keys and values of 32 layers with 8 heads of 128 elements of 2 bytes."""

MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""

REQUEST_BYTES_MAX = 8_192
"""What a request may add to the memory of a plan, which keeps its transfer but not the row of its trace."""


@dataclass(frozen=True)
class Public:
    """A public trace: its file, how that is read, how many rows it has, and two of their fields."""

    name: str
    rows: Callable[[Iterable[str]], Iterable[Any]]
    count: int
    prompt: str
    answer: str

    def path(self) -> Path:
        folder = os.environ.get("KV_TRACES")
        paths = sorted(Path(folder).rglob(f"{self.name}*")) if folder else []
        if folder is None:
            pytest.skip("announced: needs KV_TRACES, a folder with public traces")
        assert paths, f"no {self.name} below {folder}"
        return paths[0]


TRACES = (
    Public(
        "conversation_trace.jsonl",
        lambda lines: map(json.loads, lines),
        12_031,
        "input_length",
        "output_length",
    ),
    Public("AzureLLMInferenceTrace_code.csv", csv.DictReader, 8_819, "ContextTokens", "GeneratedTokens"),
)


def words(path: Path, limit: int | None = None) -> list[str]:
    """Return the command that plans a trace's first rows, or all."""
    cut = "" if limit is None else f", limit: {limit}"
    sets = ("workload.model=llama-3.1-8b", f"workload.requests={{kind: trace, path: {path}{cut}}}")
    return ["plan", "incast", "--backend", "uml", *(word for one in sets for word in ("--set", one))]


def memory_bytes(*arguments: str) -> int:
    """Return the most memory that a command takes: the child of a small process, whose own counts as well."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *command(*arguments)], capture_output=True, text=True, check=True
    )
    return int(done.stdout.split()[-1]) * 1024


@pytest.mark.slow
@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.name)
def test_counts_totals_and_memory_of_a_whole_trace(trace: Public) -> None:
    path = trace.path()
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(newline="") as file:
        rows = [(int(row[trace.prompt]), int(row[trace.answer])) for row in trace.rows(file)]
    done = call(*words(path), "--json")
    assert done.returncode == 0
    plan = from_json(done.stdout)
    assert plan.workload is not None
    assert (len(rows), plan.workload.skipped) == (trace.count, ())
    assert plan.workload.requests == len(rows)
    assert plan.workload.prompt_tokens == sum(prompt for prompt, _ in rows)
    assert plan.workload.output_tokens == sum(answer for _, answer in rows)
    assert plan.workload.kv_bytes == sum(prompt for prompt, _ in rows) * TOKEN_BYTES
    assert plan.serving is not None
    assert [job.bytes for job in plan.serving.jobs] == [prompt * TOKEN_BYTES for prompt, _ in rows]
    assert memory_bytes(*words(path)) - memory_bytes(*words(path, limit=1)) < len(rows) * REQUEST_BYTES_MAX
