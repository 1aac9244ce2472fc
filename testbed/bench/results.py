"""Measured sections as files, one JSON file each: a page may show what was measured at different times.

Beside the figures stand the machine and the state of the code they are from.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.bench.figures import Found, from_json
from testbed.errors import InputError
from testbed.run.environment import made_with

FORMAT_VERSION = 1
REMEDY = "measure the section again"


@dataclass(frozen=True)
class Result:
    """A section's figures, and what they were made with: a text for each name."""

    section: str
    found: Found
    made_with: Mapping[str, str]


def machine() -> dict[str, str]:
    """Return what the figures depend on: processor, memory, system, lab kernel, packages and commit."""
    made = made_with()
    memory_gb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    return {
        "processor": f"{os.cpu_count()} x {_processor()}, {memory_gb:.0f} GB of memory",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        **{name: made[name] for name in ("lab kernel", "packages", "testbed")},
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def write(folder: Path, result: Result) -> None:
    """Write a section's file into the folder, in the place of an older one."""
    head = {"format_version": FORMAT_VERSION, "made_with": dict(result.made_with)}
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{result.section}.json.part"
    part.write_text(json.dumps(head | result.found.as_json(), indent=1) + "\n")
    part.rename(folder / f"{result.section}.json")


def read(folder: Path, section: str) -> Result | None:
    """Return what was measured of a section; None when nothing was. InputError for a file of another kind."""
    path = folder / f"{section}.json"
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text())
        version = content["format_version"]
        if version != FORMAT_VERSION:
            raise InputError(f"{path}: format {version}, expected {FORMAT_VERSION}; {REMEDY}")
        return Result(section, from_json(content), content["made_with"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: no result of `testbed bench` ({error}); {REMEDY}") from error
