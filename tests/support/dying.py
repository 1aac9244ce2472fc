"""`python -m tests.support.dying SCENARIO OUT INTERPRETER`: a run with another controller interpreter.

That is the way into a running lab: the interpreter may kill a part of it. A program of its own, so that some
runs go on beside each other. Prints the error that the run ended with.
"""

from __future__ import annotations

import sys
from pathlib import Path

from testbed.errors import TestbedError
from testbed.lab import job
from testbed.plan.build import build_plan
from testbed.run.launch import run_plan
from testbed.scenario import load_scenario
from testbed.scenario.dump import scenario_yaml


def main() -> None:
    """Run the scenario."""
    path, out, interpreter = sys.argv[1:]
    job.controller_python = lambda framework: interpreter
    scenario = load_scenario(path)
    plan = build_plan(scenario, seed=1, backend="uml", clock="virtual")
    try:
        run_plan(plan, scenario_yaml(scenario), Path(out), lambda step, seconds: None)
    except TestbedError as error:
        print(error)


if __name__ == "__main__":
    main()
