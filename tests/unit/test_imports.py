from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {"pydantic", "numpy", "jinja2", "yaml", "os_ken", "eventlet"}


@pytest.mark.parametrize("module", ["testbed.run.inside", "traffic.tcp_replay"])
def test_what_runs_inside_the_lab_loads_nothing_heavy(module: str) -> None:
    """What import-linter cannot see: a package's __init__ is run for each of its modules."""
    code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) & HEAVY == set()
