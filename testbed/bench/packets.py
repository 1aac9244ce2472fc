"""Packets and hops in real time: how many a second, and where the time goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.bench.figures import Figure, Found, ratios
from testbed.bench.processes import Usage, watched_run
from testbed.bench.sections import Section, Setting
from testbed.record.reader import Record

TCP = ("incast", ("workload.requests.kv_bytes=256mib",))
ROCE = ("roce-incast", ("workload.requests.kv_bytes=32mib",))
COMMAND = "testbed bench packets"
AIMS = {"RoCE": "10,000 or more"}
NO_PROBES = ("measure.interval=1s", "measure.progress=1s")

PROSE = """\
Eight hosts send to one over the fabric of `incast`; a data packet crosses four links, as does its ACK or
CNP. Each packet is counted at each link it leaves (`packets` of `summary.json`), data packets where they
leave the senders, and the seconds are those of the traffic phase (`traffic_s` of `environment.json`):
from the start of the workload to the last fact written. A guest runs on one processor, so that a second
of it is a second of a core.

Where the time goes is what the system counts for the guest's processes during that phase: those of the
guest kernel (packets, queues, TCP, timers), those of the programs in the guest, and for both what the
machine's kernel spends on them, which for a program in the guest is mostly being stopped and continued
by ptrace. What probes cost is a run against one whose probes look once a second, in processor time,
which other work on the machine disturbs less. Still the two of a pair differ by chance: where the spread
reaches below nothing, the cost is not told from none. The samples between two readings of progress, five
here, are one system call, at which the machine stops and continues the program; in it the kernel describes
each queue five times, and what it needs of the processor's caches for that the packets have to bring back. A
longer `measure.interval` makes samples fewer."""


@dataclass(frozen=True)
class Ran:
    """A run: seconds of its traffic phase, data packets, packets times links, and what its processes used."""

    seconds: float
    sent: int
    hops: int
    usage: Usage


def measure(setting: Setting) -> Found:
    """Run both transports with probes and without, in turn."""
    figures: list[Figure] = []
    for name, (scenario, sets) in (("TCP", TCP), ("RoCE", ROCE)):
        probed, bare = [], []
        for number in range(1, setting.runs + 1):
            setting.tell(f"{name}, run {number} of {setting.runs}")
            probed.append(_run(setting.folder, scenario, sets))
            setting.tell(f"{name} without probes, run {number} of {setting.runs}")
            bare.append(_run(setting.folder, scenario, (*sets, *NO_PROBES)))
        command = " ".join(["testbed run", scenario, *(f"--set {each}" for each in sets)])
        figures += _figures(name, command, probed, bare)
    return Found(tuple(figures), PROSE)


def _run(folder: Path, scenario: str, sets: Sequence[str]) -> Ran:
    out = folder / scenario
    usage = watched_run(scenario, sets, out)
    record = Record.open(out, verify=False)
    hops = sum(record.totals(name)["packets"] for name in record.link_names)
    senders = [nic.up for host in record.plan.topology.hosts if host.role == "prefill" for nic in host.nics]
    sent = sum(record.totals(name)["packets"] for name in senders)
    return Ran(record.environment["seconds"]["traffic_s"], sent, hops, usage)


def _figures(name: str, command: str, probed: Sequence[Ran], bare: Sequence[Ran]) -> list[Figure]:
    def figure(what: str, value: Callable[[Ran], float], unit: str) -> Figure:
        return Figure(f"{name}: {what}", tuple(value(each) for each in probed), unit, command)

    def share(what: str, value: Callable[[Usage], float]) -> Figure:
        shares = tuple(100 * value(each.usage) / each.usage.total_s for each in probed)
        return Figure(f"{name}: share of {what}", shares, "%", COMMAND)

    with_s, without_s = ([each.usage.total_s for each in ran] for ran in (probed, bare))
    cost = tuple(100 * (1 - each) for each in ratios(without_s, with_s))
    return [
        figure("packets times links", lambda ran: ran.hops, ""),
        figure("traffic phase", lambda ran: ran.seconds, "s"),
        Figure(
            f"{name}: data packets sent and received a second and core",
            tuple(each.sent / each.seconds for each in probed),
            "",
            command,
            AIMS.get(name, ""),
        ),
        figure("packet-hops a second and core", lambda ran: ran.hops / ran.seconds, ""),
        figure("time for one packet and hop", lambda ran: 1e6 * ran.seconds / ran.hops, "us"),
        Figure(
            f"{name}: processor time of the phase", tuple(each.usage.total_s for each in probed), "s", COMMAND
        ),
        share("the guest's kernel", lambda used: used.kernel_s),
        share("the machine's kernel for the guest's", lambda used: used.kernel_system_s),
        share("programs in the guest", lambda used: used.programs_s),
        share("the machine's kernel for programs in the guest", lambda used: used.programs_system_s),
        Figure(f"{name}: share of processor time that probes cost", cost, "%", COMMAND, "at most 15 %"),
    ]


SECTION = Section("packets", "packets and hops a second, and where the time goes", measure)
