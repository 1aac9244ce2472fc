"""`testbed validate --quick`, as CI runs it: every row holds, as JSON and as a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import call

pytestmark = pytest.mark.slow

LIMIT_S = 580
FAMILIES = {"shaping", "gaps", "marking", "dctcp", "collapse", "ecmp", "closed_forms", "diagnosis"}


def test_the_quick_validation_holds(tmp_path: Path) -> None:
    page = tmp_path / "validation.md"
    done = call("validate", "--quick", "--json", "--page", page, limit_s=LIMIT_S)
    rows = json.loads(done.stdout)
    assert [row for row in rows if not row["passed"]] == []
    assert done.returncode == 0
    assert {row["name"].partition(".")[0] for row in rows} >= FAMILIES
    text = page.read_text()
    assert f"Made by `testbed validate --quick`; do not edit. {len(rows)} of {len(rows)} rows hold." in text
    assert text.count("\n| holds | ") == len(rows)
    assert "| lab kernel | " in text


def test_an_unknown_measurement_is_refused() -> None:
    done = call("validate", "gpas")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "testbed: gpas: no measurement is called so; see `testbed validate --list`; did you mean 'gaps'?\n"
    )
