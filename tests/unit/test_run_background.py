"""iperf3's command lines, when each flow starts and ends, and its reports."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import LabError
from testbed.plan.model import BackgroundFlow
from testbed.run import background
from testbed.run.background import Background, client_command, server_command, timeline
from tests.support.lab import small_plan

MS = 1_000_000
FLOW = BackgroundFlow(3, "p2", "d1", "tcp", 0, 1 * MS, 2_000 * MS, 5201)


def test_the_receiver_serves_one_flow_in_its_own_host() -> None:
    assert server_command(FLOW) == [
        "ip", "netns", "exec", "d1", "iperf3", "-s", "-1", "-p", "5201", "--forceflush",
    ]  # fmt: skip


HEAD = ["ip", "netns", "exec", "p2", "iperf3", "-c", "10.0.2.1", "-p", "5201", "-J"]


@pytest.mark.parametrize(
    ("changes", "tail"),
    [
        ({}, ["-t", "2", "-C", "dctcp"]),
        ({"rate_bps": 5_000_000_000}, ["-t", "2", "-C", "dctcp", "--fq-rate", "5000000000"]),
        (
            {"protocol": "udp", "rate_bps": 1_000_000},
            ["-t", "2", "-u", "-b", "1000000", "--pacing-timer", "20"],
        ),
        # iperf3 reads `-t 0` as for ever, and no fraction.
        ({"duration_ns": 10 * MS}, ["-t", "1", "-C", "dctcp"]),
        ({"duration_ns": 1_500 * MS}, ["-t", "2", "-C", "dctcp"]),
        ({"duration_ns": 3_000 * MS}, ["-t", "3", "-C", "dctcp"]),
    ],
)
def test_the_senders_command(changes: dict[str, Any], tail: list[str]) -> None:
    assert client_command(replace(FLOW, **changes), "10.0.2.1", "dctcp") == HEAD + tail


def test_another_protocol_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^iperf3 has no protocol 'sctp'$"):
        client_command(replace(FLOW, protocol="sctp"), "10.0.2.1", "dctcp")


def test_flows_start_and_end_at_their_moments() -> None:
    short = replace(FLOW, start_ns=5 * MS, duration_ns=10 * MS)
    later = replace(FLOW, start_ns=12 * MS, duration_ns=1_500 * MS)
    assert timeline([FLOW, short, later]) == [
        (1 * MS, 0, True),  # of whole seconds: ends by itself
        (5 * MS, 1, True),
        (12 * MS, 2, True),
        (15 * MS, 1, False),
        (1_512 * MS, 2, False),
    ]


class FakeClient:
    def __init__(self, log: list[str], name: str) -> None:
        self.log = log
        self.name = name

    def send_signal(self, number: int) -> None:
        self.log.append(f"{signal.Signals(number).name} {self.name}")

    def wait(self) -> None:
        self.log.append(f"reap {self.name}")


def test_a_flow_is_interrupted_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    plan = replace(
        small_plan(),
        background=(
            replace(FLOW, id=0),
            replace(FLOW, id=1, start_ns=0, duration_ns=10 * MS, port=5202),
        ),
    )
    monkeypatch.setattr(background, "exact_timers", lambda: log.append("exact timers"))
    monkeypatch.setattr(background, "sleep_until_ns", lambda moment_ns: log.append(f"at {moment_ns // MS}"))
    monkeypatch.setattr(background, "wait_until", lambda predicate, timeout_s, what: log.append(what))

    def popen(command: list[str], **_: Any) -> FakeClient:
        port = command[command.index("-p") + 1]
        log.append(f"{'server' if '-s' in command else 'client'} {port}")
        return FakeClient(log, port)

    monkeypatch.setattr(background.subprocess, "Popen", popen)
    flows = Background(plan, tmp_path)
    flows.prepare()
    flows.run(1_000 * MS)
    assert log == [
        "server 5202", "iperf3 on d1", "server 5201", "iperf3 on d1", "exact timers",
        "at 1000", "client 5202", "at 1001", "client 5201", "at 1010", "SIGINT 5202",
        "reap 5202", "reap 5201",
    ]  # fmt: skip


def test_a_receiver_listens_once_it_says_so(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("-----\n")
    assert not background._listens(log)
    log.write_text("-----\nServer listening on 5201 (test #1)\n")
    assert background._listens(log)


def test_each_flows_report_is_kept_with_its_number(tmp_path: Path) -> None:
    plan = replace(small_plan(), background=(FLOW, replace(FLOW, id=4)))
    for number in (3, 4):
        (tmp_path / f"iperf3-{number}.json").write_text(json.dumps({"end": number}))
    assert Background(plan, tmp_path).reports() == [
        {"id": 3, "iperf3": {"end": 3}},
        {"id": 4, "iperf3": {"end": 4}},
    ]


@pytest.mark.parametrize("text", [None, "", "iperf3: error - unable to connect"])
def test_a_report_that_is_no_json(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "iperf3-3.json").write_text(text)
    plan = replace(small_plan(), background=(FLOW,))
    with pytest.raises(LabError) as caught:
        Background(plan, tmp_path).reports()
    assert str(caught.value) == f"iperf3 from p2 to d1 reported no JSON: {text or ''!r}"
