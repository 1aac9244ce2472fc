"""All sections of the bench, in the order of the page."""

from __future__ import annotations

from collections.abc import Callable

from testbed.bench import analysis, growth, packets, scale, simulator, startup
from testbed.bench.figures import Found
from testbed.bench.sections import Section, Setting
from testbed.signals import scratch_folder

SECTIONS: tuple[Section, ...] = (
    startup.SECTION,
    startup.SECTION_LARGE,
    packets.SECTION,
    simulator.SECTION,
    analysis.SECTION,
    scale.SECTION,
    growth.SECTION,
)


def measure(section: Section, runs: int, tell: Callable[[str], None]) -> Found:
    """Measure a section in a folder of its own, which is gone afterwards."""
    with scratch_folder("bench") as folder:
        return section.measure(Setting(runs, folder, tell))
