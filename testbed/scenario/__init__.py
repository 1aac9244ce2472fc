"""The scenario language: what a person writes, checked and with units resolved.

It knows the language only: what will happen in a run is worked out by `testbed.plan.build`. The command
line loads scenarios through here.
"""

from testbed.scenario.loader import load_scenario, shipped_scenarios
from testbed.scenario.models import Scenario

__all__ = ["Scenario", "load_scenario", "shipped_scenarios"]
