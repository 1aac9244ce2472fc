"""Stands in for the runs that `check` and `sweep` make: a program that answers from a file at once.

Called by the unit tests of `testbed.regress`.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.run import many

PROGRAM = """
import json, pathlib, sys
words = sys.argv[1:]
out = pathlib.Path(words[words.index("--out") + 1])
with open(pathlib.Path(__file__).with_name("asked.txt"), "a") as asked:
    asked.write(" ".join(words) + "\\n")
answers = json.loads(pathlib.Path(__file__).with_name("answers.json").read_text())
changes = [words[at + 1] for at, word in enumerate(words) if word == "--set"]
seed = words[words.index("--seed") + 1]
keys = [f"{' '.join(changes)} {seed}", f"{words[1]} {seed}", seed, "all"]
code, message, summary = next(answers[key] for key in keys if key in answers)
if summary is not None:
    out.mkdir(parents=True)
    (out / "summary.json").write_text(json.dumps(summary))
    (out / "manifest.json").write_text(json.dumps({"format_version": 1, "status": "complete"}))
if message:
    print(message, file=sys.stderr)
sys.exit(code)
"""

SUMMARY: dict[str, Any] = {
    "format_version": 1,
    "scenario": "small",
    "seed": 1,
    "backend": "uml",
    "clock": "virtual",
    "transfers": {
        "count": 8,
        "completed": 8,
        "bytes": 1_000_000_000,
        "fct_ms": {"p50": 40.0, "p99": 43.5},
        "slowdown": {"p50": 7.8, "p99": 8.0},
        "last_end_ms": 100.0,
        "jain": 0.99,
        "retransmissions": 0,
    },
    "ttft_ms": {"p50": 40.0, "p99": 43.5, "max": 44.0},
    "links": {
        "leaf2-d1": {
            "segment": "dest-leaf",
            "ce_marks": 100,
            "drops": 0,
            "queue_bytes": {"mean": 200.5, "p99": 500, "max": 600},
        },
        "p1-leaf1": {
            "segment": "source-rail",
            "ce_marks": 0,
            "drops": 0,
            "queue_bytes": {"mean": 0.0, "p99": 0, "max": 9000},
        },
    },
    "fabric": {"utilisation": 0.5, "limiting_links": ["leaf2-d1"]},
    "verdict": {"segment": "dest-leaf", "link": "leaf2-d1", "share": 0.9, "text": "It was the leaf."},
    "fidelity": {"valid": True, "reasons": [], "checks": [{"name": "status", "ok": True, "detail": "done"}]},
}
"""What a run says, as far as the commands that make many runs look at it."""

Answer = tuple[int, str, dict[str, Any] | None]


def summary(**values: Any) -> dict[str, Any]:
    """Return `SUMMARY` with some values changed; `__` in a name stands for a dot, `_to_` for a hyphen."""
    changed = copy.deepcopy(SUMMARY)
    for name, value in values.items():
        place: Any = changed
        *above, last = name.replace("_to_", "-").split("__")
        for key in above:
            place = place[key]
        place[last] = value
    return changed


class StandIn:
    """The program in place of the testbed, what it answers, and what it was asked."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "run.py").write_text(PROGRAM)
        monkeypatch.setattr(many, "COMMAND", (sys.executable, str(folder / "run.py")))

    def answers(self, **by_key: Answer) -> None:
        """Set the answers: by `changes seed`, `scenario seed`, seed, or for `all`."""
        (self.folder / "answers.json").write_text(json.dumps(by_key))

    @property
    def asked(self) -> list[str]:
        """The command lines of all runs so far."""
        path = self.folder / "asked.txt"
        return path.read_text().splitlines() if path.exists() else []
