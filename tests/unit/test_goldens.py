"""Every shipped scenario has a golden, made from the settings that it has now."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.regress.golden import golden_path, read_golden, settings_of
from testbed.scenario import load_scenario, shipped_scenarios

FOLDER = Path(__file__).parents[1] / "data/goldens"
NAMES = [name for name, _ in shipped_scenarios()]


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_has_the_settings_of_its_scenario(name: str) -> None:
    golden = read_golden(golden_path(FOLDER, name, 1), name, 1, "virtual")
    assert golden.settings == settings_of(load_scenario(name))
    assert golden.summary["fidelity.valid"] is True
    assert golden.tolerances == ()


def test_there_is_no_golden_without_a_scenario() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(f"{name}-1.json" for name in NAMES)
