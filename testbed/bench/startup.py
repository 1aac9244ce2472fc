"""What stands before the first packet: each step of bringing a lab up, beside stock Mininet's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.bench.figures import Figure, Found, ratios
from testbed.bench.labs import OURS, STOCK, Fabric, bring_up, total
from testbed.bench.sections import Section, Setting

SMALL, LARGE = Fabric(4, 2, 4), Fabric(8, 8, 16)
LARGE_RUNS, LARGE_STOCK_RUNS = 3, 2
"""Runs of the large fabric at most: stock Mininet takes minutes for it."""

NOT_COUNTED = ("boot", "open vswitch")
"""Steps that both have in common: the guest's boot with Python's imports, and Open vSwitch's daemons."""

PROSE = """\
A fabric of four leaves, two spines and 16 hosts is brought up in the same guest kernel, with the same
Open vSwitch daemons, by the testbed and by stock Mininet 2.3 (`Host`, `OVSSwitch`, `TCLink` with rate,
delay and queue length; its own limit of open files, which `mnexec` closes one by one). Both have the
same hosts, switches and cables under the same names. Compared is the time from running daemons to a lab
that stands; real seconds, read from outside every 20 ms.

Not like for like, and each time in stock Mininet's favour: it starts no controller and has no rules, so
that nothing is forwarded; its hosts have no static neighbours, which the testbed's have for all others;
no queue marks; offloads stay as they are; nothing is read back. `TCLink` takes at most 1 Gbit/s, which
costs the same commands as any other rate. The testbed's own steps contain all of that."""

PROSE_LARGE = "The same with eight leaves, eight spines and 128 hosts."


def measure_small(setting: Setting) -> Found:
    """Bring the small fabric up both ways."""
    figures = _measure(setting, SMALL, setting.runs, setting.runs, Words("testbed bench startup", "5 times"))
    return Found(figures, PROSE)


def measure_large(setting: Setting) -> Found:
    """Bring the large fabric up both ways."""
    runs, stock_runs = min(setting.runs, LARGE_RUNS), min(setting.runs, LARGE_STOCK_RUNS)
    words = Words("testbed bench startup128", "10 times")
    return Found(_measure(setting, LARGE, runs, stock_runs, words), PROSE_LARGE)


@dataclass(frozen=True)
class Words:
    """What stands beside a fabric's figures: the command, and how many times faster it is to be."""

    command: str
    aim: str


def _measure(
    setting: Setting, fabric: Fabric, runs: int, stock_runs: int, words: Words
) -> tuple[Figure, ...]:
    """Take turns, so that each ratio is of neighbours."""
    ours, stock = [], []
    for number in range(1, runs + 1):
        folder = setting.folder / f"{number}"
        folder.mkdir()
        setting.tell(f"{fabric.hosts} hosts, run {number} of {runs}")
        ours.append(bring_up(fabric.plan(folder), OURS, folder / "ours"))
        if number <= stock_runs:
            setting.tell(f"{fabric.hosts} hosts, stock Mininet, run {number} of {stock_runs}")
            stock.append(bring_up(fabric.plan(folder), STOCK, folder / "stock"))
    return tuple(_figures(fabric, ours, stock, words))


def _figures(
    fabric: Fabric, ours: Sequence[Mapping[str, float]], stock: Sequence[Mapping[str, float]], words: Words
) -> list[Figure]:
    what = f"{fabric.hosts} hosts"
    figures = [
        Figure(f"{what}: {step}", tuple(each[step] for each in ours), "s", words.command) for step in ours[0]
    ]
    compared = [total(each, *NOT_COUNTED) for each in ours]
    theirs = [total(each, *NOT_COUNTED) for each in stock]
    return [
        *figures,
        Figure(f"{what}: from running daemons to a lab that stands", tuple(compared), "s", words.command),
        Figure(f"{what}: the same, stock Mininet", tuple(theirs), "s", words.command),
        Figure(
            f"{what}: stock Mininet over the testbed",
            ratios(theirs, compared[: len(theirs)]),
            "times",
            words.command,
            words.aim,
        ),
    ]


SECTION = Section("startup", "from nothing to a lab of 16 hosts that stands", measure_small)
SECTION_LARGE = Section("startup128", "the same for 128 hosts", measure_large)
