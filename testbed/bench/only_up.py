"""Runs inside the lab: brings the plan up as for any run, and ends when it stands. For the bench."""

from __future__ import annotations

from pathlib import Path

from testbed.lab.bringup import Lab
from testbed.plan.model import Plan
from testbed.run.inside import Progress, main


def stand(_plan: Plan, _lab: Lab, _record: Path, _work_dir: Path, progress: Progress) -> None:
    """Say that the lab stands."""
    progress("up")


if __name__ == "__main__":
    main(stand)
