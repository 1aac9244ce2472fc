"""Expectations of a scenario, held against a summary. Called by the command line after a run.

The syntax belongs to the scenario language (`testbed.scenario.expectation`), so that a misspelt
expectation is refused when the scenario is read.
"""

from testbed.checks.expectations import Result, evaluate

__all__ = ["Result", "evaluate"]
