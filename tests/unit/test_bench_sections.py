"""The bench's sections: what they make of what was measured; measuring itself is a lab test's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.bench import packets, simulator, startup
from testbed.bench.figures import Figure, Found
from testbed.bench.labs import STOCK, Fabric, durations, total
from testbed.bench.packets import Ran
from testbed.bench.processes import Usage, Watch, processes_of, usage_of
from testbed.bench.programs import Spent
from testbed.bench.sections import Setting
from testbed.bench.simulator import Flows, Ours
from testbed.errors import LabError, MachineError
from testbed.plan.model import Plan


def named(found: Found) -> dict[str, Figure]:
    return {figure.what: figure for figure in found.figures}


# ---- startup --------------------------------------------------------------------------


def test_a_fabric_has_its_hosts_in_the_plan(tmp_path: Path) -> None:
    fabric = Fabric(4, 2, 4)
    plan = fabric.plan(tmp_path)
    assert (fabric.hosts, len(plan.topology.hosts), len(plan.topology.switches)) == (16, 16, 6)
    assert [host.role for host in plan.topology.hosts].count("decode") == 4


def test_a_step_lasts_until_the_next_and_what_comes_after_the_lab_is_left_out() -> None:
    moments = [("boot", 0.0), ("open vswitch", 0.5), ("hosts", 0.75), ("up", 2.0), ("done", 9.0)]
    steps = durations(moments)
    assert steps == {"boot": 0.5, "open vswitch": 0.25, "hosts": 1.25}
    assert total(steps, "boot") == 1.5


@pytest.mark.parametrize(("runs", "stock_runs"), [(1, 1), (5, 2)])
def test_start_up_is_compared_without_what_both_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: int, stock_runs: int
) -> None:
    entries: list[str] = []

    def brought_up(_plan: Plan, entry: str, _out: Path) -> dict[str, float]:
        entries.append(entry)
        own = {"hosts and links": 30.0} if entry == STOCK else {"controller": 2.0, "reading back": 1.0}
        return {"boot": 0.5, "open vswitch": 0.25, **own}

    monkeypatch.setattr(startup, "bring_up", brought_up)
    figures = named(startup.measure_large(Setting(runs, tmp_path, lambda _step: None)))
    assert entries.count(STOCK) == stock_runs
    ratio = figures["128 hosts: stock Mininet over the testbed"]
    assert (ratio.samples, ratio.aim) == ((10.0,) * stock_runs, "10 times")
    assert figures["128 hosts: reading back"].shown == "1 s"
    assert figures["128 hosts: from running daemons to a lab that stands"].median == 3.0


# ---- packets --------------------------------------------------------------------------


def test_packets_are_counted_for_each_second_and_their_time_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ran(_folder: Path, _scenario: str, sets: tuple[str, ...]) -> Ran:
        without = packets.NO_PROBES[0] in sets
        return Ran(10.0, 400_000, 2_000_000, Usage(4.0 if without else 6.0, 1.0, 2.0, 1.0))

    monkeypatch.setattr(packets, "_run", ran)
    figures = named(packets.measure(Setting(2, tmp_path, lambda _step: None)))
    sent = figures["RoCE: data packets sent and received a second and core"]
    assert (sent.samples, sent.aim) == ((40_000.0, 40_000.0), "10,000 or more")
    assert figures["TCP: packet-hops a second and core"].samples == (200_000.0, 200_000.0)
    assert figures["TCP: time for one packet and hop"].shown == "5 us"
    assert figures["RoCE: share of the guest's kernel"].shown == "60 %"
    assert figures["RoCE: share of processor time that probes cost"].shown == "20 %"
    assert figures["TCP: traffic phase"].command == (
        "testbed run incast --set workload.requests.kv_bytes=256mib"
    )


def test_the_leader_of_a_session_is_the_guests_kernel() -> None:
    found = usage_of({7: (True, 3.0, 1.0), 8: (False, 2.0, 0.5), 9: (False, 1.0, 0.25)})
    assert found == Usage(3.0, 1.0, 3.0, 0.75)
    assert found.since(Usage(1.0, 1.0, 1.0, 0.25)) == Usage(2.0, 0.0, 2.0, 0.5)
    assert found.total_s == 7.75


BUSY = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"


@contextmanager
def program(text: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program in a session of its own, which does not outlive the test."""
    command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-c", text]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_processes_of_a_session_are_found() -> None:
    with program(f"{BUSY}print(flush=True); time.sleep(60)") as process:
        assert process.stdout is not None
        process.stdout.readline()
        ((number, (leads, own_s, _)),) = processes_of(process.pid).items()
    assert (number, leads) == (process.pid, True)
    assert own_s > 0
    assert processes_of(process.pid) == {}


def test_what_is_used_counts_from_the_first_look_at_traffic_on() -> None:
    watch = Watch()
    with program("while True: pass") as process:
        watch.pause(process, 0.5)
        watch.tell("traffic", 0.0)
        watch.pause(process, 0.5)
        assert watch.usage == Usage()  # what was used before the traffic does not count
        watch.pause(process, 0)
    assert 0 < watch.usage.kernel_s + watch.usage.kernel_system_s < 5
    assert watch.usage.programs_s == 0


# ---- ns-3 -----------------------------------------------------------------------------

PRINTED = "flow 10.5\nflow 12.25\nflow 11.0\npackets 200 marked 50 dropped 0\n"


def test_the_flows_of_ns3_are_read() -> None:
    assert simulator.parse(PRINTED) == Flows((10.5, 12.25, 11.0), 200, 50)
    assert simulator.parse(PRINTED).marked_share == 25.0


@pytest.mark.parametrize("output", ["", "flow 1.5\n", PRINTED.replace("11.0", "0.000000")])
def test_flows_that_did_not_end_are_an_error(output: str) -> None:
    with pytest.raises(LabError, match=r"^ns-3's flows did not all end: "):
        simulator.parse(output)


def test_lines_are_counted_without_comments(tmp_path: Path) -> None:
    source = tmp_path / "x.cc"
    source.write_text('// why\n\n#include "a"\nint main() // here\n{\n}\n')
    scenario = tmp_path / "x.yaml"
    scenario.write_text("# why\nname: x\n\nfabric:\n  leaves: 1\n")
    assert (simulator.lines_of(source), simulator.lines_of(scenario)) == (4, 3)


def test_an_ns3_that_is_not_there_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(simulator.OPTIMISED, str(tmp_path))
    assert simulator.builds() == {"ns-3 (Debian)": Path("/usr"), "ns-3 (optimised)": tmp_path}
    with pytest.raises(MachineError) as caught:
        simulator.build("ns-3 (optimised)", tmp_path, tmp_path)
    remedy = "install the packages libns3-dev and g++ (apt install)"
    assert str(caught.value) in (
        f"ns-3 (optimised): no library of its module applications below {tmp_path}; {remedy}",
        f"ns-3 (optimised): there is no g++; {remedy}",
    )


def test_a_modules_library_is_not_that_of_a_longer_name(tmp_path: Path) -> None:
    (tmp_path / "lib/x86").mkdir(parents=True)
    for name in ("libns3.37-internet-apps-optimized.so", "libns3.37-internet-optimized.so"):
        (tmp_path / "lib/x86" / name).touch()
    found = simulator._library("ns-3", tmp_path, "internet")
    assert found.name == "libns3.37-internet-optimized.so"


def test_both_are_run_in_turn_and_each_ns3_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def ours(_out: Path, sets: tuple[str, ...] = ()) -> Ours:
        ran.append("bare" if sets else "ours")
        seconds = 4.0 if sets else 5.0
        return Ours(Spent(8.0, 8.0, 500.0, ""), seconds, Flows((170.0, 175.0), 1000, 250))

    def theirs(command: list[str]) -> Spent:
        ran.append(Path(command[0]).name)
        return Spent(20.0, 20.0, 60.0, PRINTED)

    monkeypatch.delenv(simulator.OPTIMISED, raising=False)
    monkeypatch.setattr(simulator, "build", lambda _name, _prefix, folder: folder / "debian")
    monkeypatch.setattr(simulator, "run_ours", ours)
    monkeypatch.setattr(simulator, "timed", theirs)
    figures = named(simulator.measure(Setting(2, tmp_path, lambda _step: None)))
    assert ran == ["ours", "bare", "debian"] * 2
    assert figures["ns-3 (Debian): seconds over the testbed's traffic"].samples == (4.0, 4.0)
    assert figures["ns-3 (Debian): seconds over the testbed's traffic without samples"].samples == (5.0, 5.0)
    assert figures["ns-3 (Debian): seconds over the testbed's whole command"].samples == (2.5, 2.5)
    assert figures["ns-3 (Debian): last completion time"].shown == "12.2 ms"
    assert figures["testbed: packets marked"].shown == "25 %"
    assert figures["testbed: lines to write"].median == simulator.lines_of(simulator.SCENARIO)


def test_the_scenario_beside_the_program_sends_as_much() -> None:
    text = simulator.SCENARIO.read_text()
    assert f"kv_bytes: {simulator.BYTES >> 20}mib" in text
    assert "SENDERS = 8" in simulator.PROGRAM.read_text()
    assert "count: 8" in text
