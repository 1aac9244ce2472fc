"""What a record of RoCE says: sums, the first notification, and reasons not to believe it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.analysis import summarise, transfer_losses
from testbed.analysis.fidelity import check_roce
from testbed.analysis.roce import summarise_roce
from testbed.plan.model import Roce, Transport
from testbed.record.reader import Record
from testbed.report import render_report
from testbed.scenario.summary_keys import Names, unknown_key
from testbed.terminal import _roce
from tests.support.synthetic import CASES, write_record
from traffic.roce.dcqcn import SETS

OWN = Roce(4096, "write", "go-back-n", 1 << 20, 0, 4_000_000, 500, SETS["hpcc"].parameters)
FACTS = {
    "packets_sent": 100, "not_landed": 2,
    "ce_packets": 10, "cnps_sent": 4, "cnps_received": 4, "naks": 1, "timeouts": 0,
    "shortest_cnp_gap_ns": 4_000, "first_cnp_ns": None, "crc_sent": 5, "crc_landed": 5,
}  # fmt: skip


@pytest.fixture
def plain(tmp_path: Path) -> Record:
    return Record.open(write_record(tmp_path / "record", CASES["incast"]()))


def roce(plain: Record, counters: dict[str, Any] | None = None, **changes: Any) -> Record:
    """The record as if it were RoCE's; `changes` are of the first transfer."""
    plan = replace(plain.plan, transport=Transport("roce", "dcqcn hpcc", True, 1_000_000, OWN))
    outcomes = [replace(outcome, roce=FACTS) for outcome in plain.outcomes]
    outcomes[0] = replace(outcomes[0], roce={**FACTS, **changes})
    return replace(plain, plan=plan, outcomes=tuple(outcomes), roce_counters=counters or {})


def test_a_run_by_tcp_has_none(plain: Record) -> None:
    assert summarise_roce(plain) is None
    assert check_roce(plain).detail == "no transfer is RoCE"
    assert _roce(None) == []


def test_counts_are_summed_over_all_transfers(plain: Record) -> None:
    count = len(plain.outcomes)
    found = summarise_roce(roce(plain, cnps_sent=5, shortest_cnp_gap_ns=3_000))
    assert found is not None
    assert (found["packets_sent"], found["cnps_sent"]) == (100 * count, 4 * count + 1)
    assert found["not_landed"] == 2 * count
    assert (found["shortest_cnp_gap_us"], found["intact"], found["bad_packets"]) == (3.0, True, 0)
    assert set(found["first_cnp"].values()) == {None}


def test_the_queue_is_looked_at_when_the_first_sender_is_notified(plain: Record) -> None:
    link = max(plain.link_names, key=lambda name: plain.series(name).backlog_bytes.max())
    series = plain.series(link)
    at = int(series.backlog_bytes.argmax())
    found = summarise_roce(roce(plain, first_cnp_ns=int(series.time_ns[at])))
    assert found is not None
    payload = sum(transfer.bytes for transfer in plain.plan.transfers)
    peak = int(series.backlog_bytes[at])
    assert found["first_cnp"] == {
        "at_ms": series.time_ns[at] / 1e6,
        "queue": link,
        "queued_bytes": peak,
        "queued_share": peak / payload,
    }
    assert link in _roce(found)[1]


def test_the_page_says_what_roce_did(plain: Record) -> None:
    record = roce(plain, first_cnp_ns=100_000)
    page = render_report(record, summarise(record), transfer_losses(record))
    assert "CNPs sent and 32 received, 8 NAKs, 0 timeouts; the payload landed as it was sent." in page
    assert re.search(r"When the first CNP reached a sender, 100.µs after the start, \S+.\S+ stood at", page)
    assert "RoCE:" not in render_report(plain, summarise(plain), transfer_losses(plain))


def test_every_key_may_be_expected(plain: Record) -> None:
    found = summarise(roce(plain))["roce"]
    paths = [("roce", key) for key in found] + [("roce", "first_cnp", key) for key in found["first_cnp"]]
    assert [unknown_key(path, Names((), ())) for path in paths] == [None] * len(paths)


MARKED = "queues marked"


@pytest.mark.parametrize(
    ("counters", "changes", "reason"),
    [
        ({}, {"crc_landed": 6}, "the payload of transfers 0 is not what was sent"),
        ({"bad_packets": {"icrc": 3}}, {}, "packets arrived that none had sent so: 3 icrc"),
        ({"lost_at_sockets": {"10.0.1.1": 2}}, {}, "the lab's own sockets lost packets at 10.0.1.1"),
        ({}, {"ce_packets": 10**9}, MARKED),
        ({}, {"cnps_received": 3}, "notifications were sent and"),
    ],
)
def test_what_must_not_be_believed_is_said(
    plain: Record, counters: dict[str, Any], changes: dict[str, Any], reason: str
) -> None:
    sound = check_roce(roce(plain))
    assert (sound.ok, sound.detail) == (True, "what landed is what was sent, and every notification arrived")
    wrong = check_roce(roce(plain, counters, **changes))
    assert not wrong.ok
    assert reason in wrong.detail


def test_lost_notifications_are_no_fault_where_packets_are_lost(plain: Record) -> None:
    record = roce(plain, cnps_received=3)
    lossy = replace(record, plan=replace(record.plan, loss=0.001))
    assert check_roce(lossy).ok
