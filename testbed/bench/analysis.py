"""Analysis and page of a large record: seconds, and memory as samples grow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from testbed.bench.figures import Figure, Found, ratios
from testbed.bench.programs import TESTBED, Spent, timed
from testbed.bench.sections import Section, Setting
from testbed.bench.synthetic import large_record

TRANSFERS = 10_000
MILLION = 1_000_000
MOST_RUNS = 3
"""Runs of what takes some ten seconds."""

COMMAND = "testbed bench analysis"

PROSE = """\
`testbed report DIR` on records of 10,000 transfers that are written for this
(`testbed/bench/synthetic.py`), on the fabric of `incast`: nine hosts, three leaves and two spines. A
reading is one queue at one moment; a sample reads all 30 of them. Peak memory is that of the whole
command, Python and its libraries included; of a file that is read as mapped memory, the part that the
system holds at a moment counts too. What is not like a run: the transfers hardly overlap and their
progress has two entries each, where a long transfer has one for each 100 us."""


def measure(setting: Setting) -> Found:
    """Time the command on a million and on four million readings, and with few transfers beside many."""
    runs = min(setting.runs, MOST_RUNS)
    small = _reports(setting, runs, TRANSFERS, MILLION)
    large = _reports(setting, runs, TRANSFERS, 4 * MILLION)
    few = _reports(setting, runs, TRANSFERS // 10, MILLION)
    figures = [
        *_both(small, f"a million readings, {TRANSFERS:,} transfers", "seconds"),
        *_both(large, f"four million readings, {TRANSFERS:,} transfers", ""),
        *_both(few, f"a million readings, {TRANSFERS // 10:,} transfers", ""),
        Figure(
            "peak memory, four million readings over a million",
            ratios([each.peak_mb for each in large], [each.peak_mb for each in small]),
            "times",
            COMMAND,
            "flat",
        ),
    ]
    return Found(tuple(figures), PROSE)


def _reports(setting: Setting, runs: int, transfers: int, readings: int) -> list[Spent]:
    folder = setting.folder / f"{transfers}-{readings}"
    folder.mkdir()
    setting.tell(f"writing a record of {transfers:,} transfers and {readings:,} readings")
    record = large_record(folder, transfers, readings)
    found = []
    for number in range(1, runs + 1):
        setting.tell(f"{readings:,} readings, run {number} of {runs}")
        found.append(timed([*TESTBED, "report", str(record), "--json"]))
    return found


def _both(found: Sequence[Spent], what: str, aim: str) -> list[Figure]:
    def figure(name: str, value: Callable[[Spent], float], unit: str, aim: str) -> Figure:
        return Figure(f"{what}: {name}", tuple(value(each) for each in found), unit, COMMAND, aim)

    return [
        figure("seconds", lambda spent: spent.seconds, "s", aim),
        figure("peak memory", lambda spent: spent.peak_mb, "MB", ""),
    ]


SECTION = Section("analysis", "summary and page of a record", measure)
