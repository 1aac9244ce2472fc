"""The suite's own rules: tiers, a time limit for each, and no silent skip in CI.

* A test's folder is its tier: tests/lab and tests/e2e give the markers `lab` and `e2e`, and each
  tier has a time limit of its own unless a test sets one (`@pytest.mark.timeout`).
* Where the variable CI is set, a skipped test fails the session, unless its reason starts with
  `announced:`. A skip that nobody reads is a test that nobody has.

Fixtures stand beside the tests that use them, not here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

ANNOUNCED = "announced:"
TESTS = Path(__file__).parent
# Seconds: a unit test is quick, a lab test boots a kernel, an e2e test runs whole commands.
TIER_TIMEOUT_S = {"unit": 60, "lab": 180, "e2e": 600}

_skipped = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_skipped] = []
    config.pluginmanager.register(SkipPolicy(config), "skip-policy")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        tier = tier_of(item.path)
        if tier in ("lab", "e2e"):
            item.add_marker(tier)
        if tier in TIER_TIMEOUT_S and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIER_TIMEOUT_S[tier]))


def tier_of(path: Path) -> str:
    """The folder below tests/ that `path` stands in, or an empty string."""
    return path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""


class SkipPolicy:
    """Collects the skips that were not announced and lets them fail the session in CI."""

    def __init__(self, config: pytest.Config) -> None:
        self._found = config.stash[_skipped]
        self._strict = os.environ.get("CI", "").lower() not in ("", "0", "false")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        if not reason.startswith(ANNOUNCED):
            self._found.append(f"{report.nodeid}: {reason}")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        if self._strict and self._found and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        yield

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._strict and self._found:
            terminalreporter.section("skipped in CI without being announced: a failure", red=True)
            for line in self._found:
                terminalreporter.write_line(line)
