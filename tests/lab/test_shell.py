"""`testbed shell`: Mininet's prompt in a running lab, piped and typed, and what is left when it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.command import (
    COMES_WITHIN_S,
    Machine,
    command,
    processes_in,
    state_of,
    wait_for,
    write_scenario,
)
from tests.support.terminal import Terminal, terminal

pytestmark = [pytest.mark.slow, pytest.mark.ovs]

PROMPT = "mininet> "
COMMANDS = """\
nodes
p1 ping -c 2 d1
py d1.IP()
links
p1 tc -s qdisc show dev p1-leaf1
dpctl dump-flows
py p1.popen(['ip', '-br', 'link']).communicate()[0].decode()
link p1 leaf1 down
p1 ping -c 1 -W 1 d1
link p1 leaf1 up
d1 iperf3 -s -1 -D
p1 iperf3 -c d1 -n 10M
x1 ping d1
exit
nodes
"""
RTT = "icmp_seq=2 ttl=64 time=0.008 ms"
"""Four links of 1 us each way."""


@pytest.fixture(scope="module")
def transcript(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each of `COMMANDS` printed; nothing is left of the lab."""
    folder, machine = tmp_path_factory.mktemp("piped"), Machine()
    done = subprocess.run(
        command("shell", write_scenario(folder)),
        cwd=folder, input=COMMANDS, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert list((folder / "runs").iterdir()) == []
    machine.assert_clean(folder)
    parts = done.stdout.split(PROMPT)
    assert parts[0] == ""
    return {said.split("\n", 1)[0]: said.split("\n", 1)[1] for said in parts[1:]}


def test_piped_commands_run_in_order_up_to_exit(transcript: dict[str, str]) -> None:
    assert list(transcript) == COMMANDS.split("exit")[0].splitlines() + ["exit"]


def test_mininets_own_commands(transcript: dict[str, str]) -> None:
    assert transcript["nodes"].splitlines()[-1] == "c0 d1 leaf1 leaf2 p1 p2 spine1 spine2"
    assert "p1-leaf1<->leaf1-p1 (OK OK)" in transcript["links"]
    assert transcript["py d1.IP()"] == "10.0.2.1\n"
    assert transcript["x1 ping d1"] == "*** Unknown command: x1 ping d1\n"


def test_hosts_answer_by_name_after_the_delay_of_their_links(transcript: dict[str, str]) -> None:
    said = transcript["p1 ping -c 2 d1"]
    assert RTT in said
    assert "2 packets transmitted, 2 received, 0% packet loss" in said


def test_queues_and_rules_can_be_looked_at(transcript: dict[str, str]) -> None:
    qdisc = transcript["p1 tc -s qdisc show dev p1-leaf1"]
    assert qdisc.startswith("qdisc htb 1: root")
    assert "qdisc bfifo 10: parent 1:1" in qdisc
    flows = transcript["dpctl dump-flows"]
    assert re.findall(r"^\*\*\* (\S+)", flows, re.M) == ["leaf1", "leaf2", "spine1", "spine2"]
    assert "priority=100,ip,nw_dst=10.0.0.0/8 actions=group:1" in flows


def test_a_program_started_by_python_is_in_its_host(transcript: dict[str, str]) -> None:
    said = transcript["py p1.popen(['ip', '-br', 'link']).communicate()[0].decode()"]
    assert sorted(line.split("@")[0].split()[0] for line in said.splitlines() if line) == ["lo", "p1-leaf1"]


def test_a_pulled_cable_loses_packets_and_the_host_keeps_its_routes(transcript: dict[str, str]) -> None:
    assert "1 packets transmitted, 0 received" in transcript["p1 ping -c 1 -W 1 d1"]
    said = transcript["p1 iperf3 -c d1 -n 10M"]
    assert re.search(r" sec  10\.\d MBytes .* sender", said)


# ---- typed ----------------------------------------------------------------------------


def frozen(folder: Path) -> bool:
    """Whether the guest, which works in a folder below, is stopped."""
    return "T" in [state_of(pid) for pid in processes_in(folder)]


def shell(folder: Path, *words: str) -> list[str]:
    return command("shell", write_scenario(folder), *words)


def test_a_person_at_a_terminal(tmp_path: Path) -> None:
    machine = Machine()
    with terminal(shell(tmp_path), tmp_path) as person:
        said = person.until(PROMPT)
        assert "hosts     p1 p2 d1\r\nswitches  leaf1 leaf2 spine1 spine2\r\n" in said
        assert "\033]7717" not in said  # the prompt's own mark is taken out
        # While nobody types the guest is stopped, and goes on at the next key.
        wait_for(lambda: frozen(tmp_path / "runs"), COMES_WITHIN_S, lambda: "the guest runs on")
        person.type("p1 ping -c 2 d1\n")
        assert RTT in person.until(PROMPT)
        # Control-C ends what runs, not the lab.
        person.type("p1 ping d1\n")
        person.until("icmp_seq=5 ")
        person.type("\x03")
        assert "packets transmitted" in person.until(PROMPT)
        person.type("sh sleep 100000000\n")
        time.sleep(0.5)
        person.type("\x03")
        assert "Interrupt" in person.until(PROMPT)
        person.type("nod\t\n")
        assert "c0 d1 leaf1 leaf2 p1 p2 spine1 spine2" in person.until(PROMPT)
        person.type("sh stty size\n")
        assert "24 80" in person.until(PROMPT)
        person.type("\x04")
        assert person.ended() == 0
    assert list((tmp_path / "runs").iterdir()) == []
    machine.assert_clean(tmp_path)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (lambda person: person.process.send_signal(signal.SIGTERM), 128 + signal.SIGTERM),
        (Terminal.close, 128 + signal.SIGHUP),
        (lambda person: person.type("\x1d"), 128 + signal.SIGINT),
    ],
    ids=["SIGTERM", "terminal closed", "Ctrl-]"],
)
def test_however_it_ends_nothing_is_left(tmp_path: Path, end, status: int) -> None:  # type: ignore[no-untyped-def]
    machine = Machine()
    with terminal(shell(tmp_path), tmp_path) as person:
        person.until(PROMPT)
        wait_for(lambda: frozen(tmp_path / "runs"), COMES_WITHIN_S, lambda: "the guest runs on")
        end(person)
        assert person.ended(20) == status
    assert list((tmp_path / "runs").iterdir()) == []
    machine.assert_clean(tmp_path)


def test_on_the_real_clock(tmp_path: Path) -> None:
    words = ["--backend", "uml", "--clock", "real", "--set", "dilation=1000"]
    with terminal(shell(tmp_path, *words), tmp_path) as person:
        said = person.until(PROMPT, 120)
        assert "All rates are divided, all delays multiplied by 1000 (dilation)." in said
        assert "Time stands still" not in said
        person.type("p1 ping -c 2 d1\n")
        times = re.findall(r"time=([\d.]+) ms", person.until(PROMPT))
        assert [float(each) >= 8 for each in times] == [True, True]
        assert not frozen(tmp_path / "runs")
        person.type("exit\n")
        assert person.ended() == 0
    assert os.listdir(tmp_path / "runs") == []
