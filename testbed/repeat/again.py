"""Runs a plan once more and compares the results with those of the first time."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.analysis import write_outputs
from testbed.errors import InputError
from testbed.plan.model import Plan
from testbed.record import codec, layout
from testbed.record.reader import Record, read_plan
from testbed.record.writer import in_use
from testbed.repeat.sameness import (
    Changed,
    Difference,
    changed_environment,
    differences,
    raw_differences,
    results_of,
)
from testbed.run.capture import Captures
from testbed.run.launch import run_plan

Tell = Callable[[str, float], None]


@dataclass(frozen=True)
class Comparison:
    """What came out when a record was repeated: the files that were compared, differences of the results, of
    the raw facts, and of what the run was made with."""

    compared: tuple[str, ...]
    results: tuple[Difference, ...]
    raw: tuple[str, ...]
    environment: tuple[Changed, ...]

    @property
    def same(self) -> bool:
        """Whether the results are the same, byte for byte."""
        return not self.results

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as JSON has it."""
        return {
            "same": self.same,
            "differences": [vars(each) for each in self.results],
            "raw": list(self.raw),
            "environment": [vars(each) for each in self.environment],
        }

    def text(self) -> str:
        """Return the comparison for a person."""
        files = f"{', '.join(self.compared[:-1])} and {self.compared[-1]}"
        lines = [f"the same: {files}, byte for byte"] if self.same else []
        lines += [f"differs: {each}" for each in self.results]
        if not self.same:
            lines.append(f"raw facts: {', '.join(self.raw)} differ" if self.raw else _ANALYSIS)
        lines += [f"environment: {each}" for each in self.environment] or [
            "environment: the same kernel, packages, commit and machine"
        ]
        return "\n".join(lines)


_ANALYSIS = "raw facts: the same, so it is the analysis that differs"


def require_virtual(plan: Plan, what: str) -> None:
    """Raise InputError for a plan whose results differ from run to run by nature."""
    if plan.clock != "virtual":
        raise InputError(f"{what} needs the virtual clock; on a real clock no two runs are the same")


def second_run(
    plan: Plan, scenario: str, first: Path, folder: Path, tell: Tell, captures: Captures
) -> list[Difference]:
    """Run `plan` again below `folder` and return where its results differ from those of `first`."""
    write_outputs(Record.open(first))
    run_plan(plan, scenario, folder / "second", tell, captures=captures)
    write_outputs(Record.open(folder / "second"))
    return differences(first, folder / "second")


def open_record(folder: Path) -> Record:
    """Return the record to be repeated. InputError when there is none, it is damaged, or has no results."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give a record's, as runs/incast-1-...")
    if in_use(folder):
        raise InputError(f"{folder}: a run is still writing there; wait for its end")
    record = Record.open(folder)
    status = record.manifest.get("status")
    if status != layout.COMPLETE:
        raise InputError(f"{folder}: the run is {status}: there is nothing to compare with")
    if record.damage:
        raise InputError(f"{folder}: the record is damaged: {record.damage[0]}; what it says is not repeated")
    require_virtual(record.plan, "rerun")
    _require_results(record)
    return record


def _require_results(record: Record) -> None:
    """Raise InputError where a result is missing or is none."""
    folder = record.path
    try:
        codec.read_mapping(folder, layout.SUMMARY)
        codec.read_text(folder, layout.TRANSFERS)
        if record.plan.serving is not None:
            codec.read_text(folder, layout.REQUESTS_TABLE)
    except codec.Damage as damage:
        raise InputError(f"{folder}: {damage}; `testbed report {folder}` makes it") from None


def captures_of(record: Path, plan: Plan) -> Captures:
    """Return what was captured for a record: its links, and how much of each packet."""
    links = [link.name for link in plan.topology.links if (record / layout.capture(link.name)).exists()]
    if not links:
        return Captures()
    name = layout.capture(links[0])
    # pcapng: a section header that says its own length, then an interface with its snap length at byte 12.
    try:
        with codec.open_inside(record, name) as file:
            head = file.read(4096)
        (length,) = struct.unpack_from("<I", head, 4)
        (snaplen,) = struct.unpack_from("<I", head, length + 12)
    except (codec.Damage, struct.error):
        raise InputError(f"{record}: {name} is no capture") from None
    return Captures(tuple(links), snaplen)


def repeat(record: Record, out: Path, tell: Tell, command: Sequence[str]) -> Comparison:
    """Run the plan of `record` again, with its own seed, into `out`, and compare."""
    try:
        scenario = codec.read_text(record.path, layout.SCENARIO)
        # Not the record's own: its transfers are those that were served.
        plan = read_plan(record.path)
    except codec.Damage as damage:
        raise InputError(f"{record.path}: {damage}") from None
    # A capture takes part in the lab: without it, exact bytes differ.
    run_plan(plan, scenario, out, tell, command=command, captures=captures_of(record.path, plan))
    write_outputs(Record.open(out))
    return Comparison(
        results_of(record.path, out),
        tuple(differences(record.path, out)),
        tuple(raw_differences(record.path, out)),
        tuple(changed_environment(record.environment, _environment(out))),
    )


def _environment(out: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((out / layout.ENVIRONMENT).read_text(encoding="utf-8"))
    return found
