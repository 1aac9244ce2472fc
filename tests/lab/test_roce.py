"""RoCE in the lab: what is on the wire, DCQCN's answer to marks, and losses repaired."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import PcapNgReader

from tests.support.command import MIB, ONE_LEAF, Run, call, settings, write_scenario
from traffic.roce import packets
from traffic.roce.dcqcn import SETS

TEXT = """\
name: roce
fabric:
  leaves: 1
  spines: 1
  hosts_per_leaf: 4
  host_link: {rate: 100gbit, delay: 1us}
  mtu: 4200
  queue: {kmin: 100kb, kmax: 400kb, pmax: 0.2, limit: 8mb}
hosts: {prefill: {count: 2, leaves: [1]}, decode: {count: 1, leaves: [1]}}
transport: {kind: roce, dcqcn: hpcc-paper}
workload:
  transfers:
    - {from: p1, to: d1, bytes: 2mib}
    - {from: p1, to: d1, bytes: 1000001b, start: 3ms}
    - {from: p2, to: d1, bytes: 1000001b, start: 3ms, from_port: 40404}
"""
"""One transfer alone, and then two at once through the same port."""


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("roce")
    out = folder / "record"
    links = ["--capture", "leaf1-d1", "--capture", "d1-leaf1"]
    return Run(call("run", write_scenario(folder, TEXT), "--out", out, *links), out)


def capture(done: Run, link: str) -> Path:
    return done.out / "raw" / f"capture-{link}.pcapng"


def read(path: Path) -> list[Any]:
    """Every packet of a capture, as scapy reads it."""
    with PcapNgReader(str(path)) as reader:
        return list(reader)


@pytest.fixture(scope="module")
def down(wire: Run) -> list[Any]:
    """What left for d1."""
    return read(capture(wire, "leaf1-d1"))


@pytest.fixture(scope="module")
def up(wire: Run) -> list[Any]:
    """What left d1."""
    return read(capture(wire, "d1-leaf1"))


def test_the_run_is_valid_and_lost_nothing(wire: Run) -> None:
    assert wire.summary["fidelity"]["reasons"] == []
    assert wire.done.returncode == 0
    assert sum(link["drops"] for link in wire.summary["links"].values()) == 0
    roce = wire.summary["roce"]
    assert (roce["intact"], roce["naks"], roce["timeouts"], roce["bad_packets"]) == (True, 0, 0, 0)


@pytest.mark.parametrize("link", ["leaf1-d1", "d1-leaf1"])
def test_tshark_takes_every_packet_for_roce_and_none_for_malformed(wire: Run, link: str) -> None:
    tshark = shutil.which("tshark")
    if tshark is None:
        pytest.skip("announced: no tshark")
    words = [tshark, "-r", str(capture(wire, link)), "-T", "fields", "-e", "frame.protocols"]
    words += ["-e", "infiniband.bth.opcode", "-e", "_ws.malformed"]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line.split("\t") for line in lines]
    assert len(rows) > 100 if link == "leaf1-d1" else len(rows) > 20
    assert {row[0].removesuffix(":data") for row in rows} == {"eth:ethertype:ip:udp:infiniband"}
    assert {row[2] for row in rows} == {""}
    data = {"6", "7", "8", "9"} if link == "leaf1-d1" else {"129"}
    assert {row[1] for row in rows} == data | {"17"}


def test_every_icrc_is_the_one_scapy_works_out(down: list[Any], up: list[Any]) -> None:
    for packet in [*down, *up]:
        whole = bytes(packet[UDP].payload)
        again = packet[Ether].copy()
        assert BTH in again
        assert again[BTH].compute_icrc(whole[:-4]) == whole[-4:]


def test_the_wire_has_what_the_record_says(wire: Run, down: list[Any], up: list[Any]) -> None:
    roce = wire.summary["roce"]
    sent = Counter(packet[BTH].opcode for packet in down)
    answers = Counter(packet[BTH].opcode for packet in up)
    openings = len(wire.record.plan.transfers)
    assert sum(sent[code] for code in packets.WRITES) == roce["packets_sent"]
    assert sent[packets.ACKNOWLEDGE] == openings
    assert answers[packets.CNP] == roce["cnps_sent"] == roce["cnps_received"] > 0
    # Two full messages and one of 2 MiB; one each of 1,000,001 B. The last of each has immediate data.
    assert (sent[packets.WRITE_FIRST], sent[packets.WRITE_LAST_IMMEDIATE]) == (4, 3)
    marked = [packet for packet in down if packet[IP].tos & 3 == 3]
    assert len(marked) == roce["ce_packets"]
    assert {packet[UDP].sport for packet in down} == {20_000, 20_001, 40_404}


def test_one_transfer_alone_is_not_marked_and_two_are(wire: Run) -> None:
    alone, first, second = (outcome.roce["ce_packets"] for outcome in wire.record.outcomes)
    assert alone == 0
    assert first > 0
    assert second > 0


def test_one_transfer_alone_takes_its_bytes_over_the_rate(wire: Run) -> None:
    transfer, outcome = wire.record.plan.transfers[0], wire.record.outcomes[0]
    assert outcome.end_ns is not None
    # A tick at each end, and a frame's own time at the switch.
    assert transfer.ideal_ns <= outcome.end_ns + 100 <= transfer.ideal_ns + 2_000


def test_notifications_of_a_queue_pair_are_the_interval_apart(up: list[Any]) -> None:
    times: dict[int, list[float]] = {}
    for packet in up:
        if packet[BTH].opcode == packets.CNP:
            times.setdefault(packet[BTH].dqpn, []).append(float(packet.time))
    gaps = [b - a for moments in times.values() for a, b in pairwise(moments)]
    interval_s = SETS["hpcc-paper"].parameters.cnp_interval_ns / 1e9
    assert gaps
    # What the link adds is the time of the answers before it.
    assert min(gaps) >= interval_s - 1e-6


# ---- losses ----------------------------------------------------------------------------

LOSSY = [
    *ONE_LEAF, "fabric.loss=0.002",
    "transport.kind=roce", "transport.dcqcn=off", "transport.ack_timeout=200us",
    "hosts.prefill.count=2", "hosts.decode.count=2", "workload.requests.kv_bytes=4mib",
]  # fmt: skip


@pytest.mark.parametrize(("recovery", "operation"), [("go-back-n", "read"), ("selective-repeat", "write")])
def test_lost_packets_are_sent_again_and_all_bytes_arrive(
    tmp_path: Path, recovery: str, operation: str
) -> None:
    ways = [f"transport.recovery={recovery}", f"transport.operation={operation}"]
    out = tmp_path / "record"
    sets = settings([*LOSSY, *ways])
    done = Run(call("run", write_scenario(tmp_path), "--out", out, *sets), out)
    assert done.summary["fidelity"]["reasons"] == []
    roce, transfers = done.summary["roce"], done.summary["transfers"]
    assert (roce["intact"], transfers["completed"], transfers["bytes"]) == (True, 2, 8 * MIB)
    # 2,048 packets at 0.2 %: 4 are lost on average, none or more than 15 once in 50 and 60,000 seeds.
    repeated = transfers["retransmissions"]
    assert repeated >= 1
    if recovery == "selective-repeat":
        assert repeated <= 15
    assert 1.0 < transfers["slowdown"]["max"] < 3.0
