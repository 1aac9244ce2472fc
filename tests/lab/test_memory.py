"""A guest that runs out of memory ends at once and says what to set; one that has what it needs does not."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.support.command import Machine, call, manifest, settings, small, write_scenario


@pytest.mark.parametrize("size", [64, 85])
def test_too_little_memory_is_named(tmp_path: Path, size: int) -> None:
    """One has too little to begin; the other throws its programs' pages away and reads them again."""
    out, machine, begun = tmp_path / "record", Machine(), time.monotonic()
    sets = settings([f"memory={size}mib"])
    done = call("run", write_scenario(tmp_path), "--out", out, *sets)
    reason = (
        f"the guest ran out of memory: it had {size} MiB; set memory to more, as --set memory={2 * size}mib"
    )
    assert (done.returncode, done.stderr.splitlines()[-1]) == (3, f"testbed: {reason}")
    assert (manifest(out)["status"], manifest(out)["reason"]) == ("failed", reason)
    assert time.monotonic() - begun < 60
    machine.assert_clean(out)


def test_memory_that_is_given(tmp_path: Path) -> None:
    run = small(tmp_path, "memory=300mib")
    environment = json.loads((run.out / "environment.json").read_text())
    assert environment["memory"]["guest_mib"] == 300
    assert 50 < environment["memory"]["touched_mib"] < 200
