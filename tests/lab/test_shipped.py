"""Three shipped scenarios, run once each with the installed command: what they must show."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from tests.support.command import HEADER_BYTES, MIB, Run, manifest, predicted_paths, run, wire_bytes

# Hosts and fabric of both scenarios, as the files have them.
HOST_BPS = 100_000_000_000
ROUND_TRIP_NS = 2 * 4 * 1_000
KV_BYTES = 64 * MIB
MTU = 4200
ALONE_NS = wire_bytes(KV_BYTES, MTU) * 8 / (HOST_BPS / 1e9)

STABLE_KEYS = {
    "": "format_version scenario seed backend clock dilation transfers ttft_ms links verdict fidelity",
    "transfers": "count completed bytes fct_ms ideal_ms slowdown last_end_ms ideal_last_end_ms",
    "transfers.fct_ms": "mean p50 p95 p99 max",
    "transfers.slowdown": "mean p50 p95 p99 max",
    "ttft_ms": "count mean p50 p95 p99 max by_decode by_pair",
    "ttft_ms.by_decode.d1": "p50 p99",
    "ttft_ms.by_pair.p1->d1": "p50 p99",
    "links.leaf3-d1": "segment from to rate_bps bytes utilisation queue_bytes ce_marks drops",
    "links.leaf3-d1.utilisation": "mean peak",
    "links.leaf3-d1.queue_bytes": "mean p99 max",
    "verdict": "segment link share shares text",
    "verdict.shares": "source-rail source-leaf spine dest-leaf dest-landing sender",
    "fidelity": "valid reasons",
}
"""What scripts may rely on; more may be added anywhere but at the top, where the test has them by name."""

TRANSFER_COLUMNS = (
    "id src dst bytes start_ms first_byte_ms end_ms fct_ms ideal_ms slowdown lost_ms unavoidable_ms "
    "lost_source_rail_ms lost_source_leaf_ms lost_spine_ms lost_dest_leaf_ms lost_dest_landing_ms "
    "lost_sender_ms path congestion_control retransmissions error"
)


@pytest.fixture(scope="module")
def incast(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("incast") / "record", "incast")


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("baseline") / "record", "baseline")


@pytest.fixture(scope="module")
def too_late(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("too-late") / "record", "feedback-too-late")


# ---- incast: the result ---------------------------------------------------------------


def test_incast_ends_when_the_one_downlink_has_carried_all_bytes(incast: Run) -> None:
    # Eight transfers behind one port: bytes on the wire over its rate, and a round trip.
    assert incast.last_end_ns() == pytest.approx(8 * ALONE_NS + ROUND_TRIP_NS, rel=0.01)
    assert incast.last_end_ns() == pytest.approx(incast.record.plan.ideal_last_end_ns, rel=0.01)


def test_incast_is_the_destination_leafs_fault(incast: Run) -> None:
    assert incast.summary["verdict"]["segment"] == "dest-leaf"
    assert incast.summary["verdict"]["link"] == "leaf3-d1"
    assert incast.summary["fidelity"]["valid"] is True
    assert incast.summary["transfers"]["completed"] == 8


def test_incast_marks_at_the_destination_port(incast: Run) -> None:
    # A quarter of the packets, as a simulator of the same DCTCP finds; a tenth says that marking works.
    link = incast.summary["links"]["leaf3-d1"]
    assert link["ce_marks"] > link["packets"] / 10
    assert link["drops"] == 0


def test_incast_marks_nowhere_else(incast: Run) -> None:
    # Links whose senders together cannot exceed their rate never have a queue. Three or more hosts of 100G
    # do exceed a fabric link of 200G, but with their first windows only (42 kB each), not for long
    # enough to fill it to K_min; one packet in 10,000 is what a few of those windows at once could mark.
    for name, link in incast.summary["links"].items():
        if name != "leaf3-d1":
            senders = sum(name in path.split() for path in incast.paths)
            allowed = 0 if senders * HOST_BPS <= link["rate_bps"] else link["packets"] / 10_000
            assert link["ce_marks"] <= allowed, name
            assert link["utilisation"]["peak"] < 0.5, name


def test_incast_takes_the_paths_the_hash_predicts(incast: Run) -> None:
    assert incast.paths == predicted_paths(incast.record.plan)


# ---- incast: the lab was what was asked for -------------------------------------------


def test_dctcp_and_ecn_are_read_back_from_both_ends(incast: Run) -> None:
    found = {
        (outcome.sender_congestion_control, outcome.receiver_congestion_control, outcome.ecn)
        for outcome in incast.record.outcomes
    }
    assert found == {("dctcp", "dctcp", True)}


def test_every_setting_is_read_back(incast: Run) -> None:
    entries = incast.record.facts["readback"]
    assert [entry for entry in entries if not entry["ok"] or entry["planned"] != entry["found"]] == []
    topology = incast.record.plan.topology
    by_place = {entry["where"]: set() for entry in entries}
    for entry in entries:
        by_place[entry["where"]].add(entry["what"])
    switches = {switch.name for switch in topology.switches}
    for link in topology.links:
        wanted = {"rate in B/s", "limit", "tso", "gso", "gro"}
        wanted |= {"rate", "K_min", "K_max", "marking probability"} if link.src in switches else set()
        assert wanted <= by_place[link.name], link.name
    for host in topology.hosts:
        wanted = {"ipv4/tcp_congestion_control", "ipv4/tcp_ecn", "ipv4/tcp_rmem", "ipv4/tcp_wmem"}
        assert wanted <= by_place[host.name], host.name
    for switch in switches:
        assert {"rules", "groups"} <= by_place[switch], switch


# ---- incast: how finely it was measured -----------------------------------------------


def test_queues_are_sampled_about_every_20_us(incast: Run) -> None:
    for group in incast.record.groups:
        times = incast.record.sample_times(group)
        busy = times[(times >= 0) & (times <= incast.last_end_ns())]
        # Beside the probe runs a program that may have its turn first: some microseconds, not a whole step.
        assert np.abs(np.diff(busy) - 20_000).max() < 10_000, group.name
        assert len(busy) == pytest.approx(incast.last_end_ns() / 20_000, abs=2), group.name


def test_progress_has_a_record_at_least_every_100_us_while_bytes_arrive(incast: Run) -> None:
    for outcome in incast.record.outcomes:
        times, received = incast.record.progress(outcome.id)
        assert outcome.first_byte_ns is not None
        assert outcome.end_ns is not None
        moments = [outcome.first_byte_ns, *times, outcome.end_ns]
        assert np.diff(moments).max() <= 120_000
        assert (np.diff(received) > 0).all()
        assert received[-1] <= KV_BYTES


# ---- incast: what is written ----------------------------------------------------------


@pytest.mark.parametrize("path", STABLE_KEYS)
def test_summary_has_the_stable_keys(incast: Run, path: str) -> None:
    value = incast.summary
    for key in filter(None, path.split(".")):
        value = value[key]
    assert set(STABLE_KEYS[path].split()) <= set(value)
    if not path:
        assert set(value) - set(STABLE_KEYS[path].split()) == {"fabric", "events", "pauses", "roce"}


def test_summary_names_every_link(incast: Run) -> None:
    assert set(incast.summary["links"]) == {link.name for link in incast.record.plan.topology.links}


def test_transfers_csv_is_well_formed(incast: Run) -> None:
    text = (incast.out / "transfers.csv").read_text()
    assert text.splitlines()[0] == TRANSFER_COLUMNS.replace(" ", ",")
    assert text.endswith("\n")
    assert "\r" not in text
    assert [row["id"] for row in incast.rows] == [str(number) for number in range(8)]
    for row in incast.rows:
        assert (row["src"], row["dst"]) == (f"p{int(row['id']) + 1}", "d1")
        assert row["bytes"] == str(KV_BYTES)
        assert float(row["fct_ms"]) == pytest.approx(float(row["end_ms"]) - float(row["start_ms"]), abs=2e-6)
        assert float(row["slowdown"]) == pytest.approx(
            float(row["fct_ms"]) / float(row["ideal_ms"]), abs=1e-5
        )
        assert row["error"] == ""


def test_report_opens_offline(incast: Run) -> None:
    page = (incast.out / "report.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    assert re.findall(r"https?://", page) == []
    assert "leaf3-d1" in page


def test_record_is_complete_and_says_what_made_it(incast: Run) -> None:
    assert manifest(incast.out)["status"] == "complete"
    assert manifest(incast.out)["reason"] is None
    environment = json.loads((incast.out / "environment.json").read_text())
    assert set(environment["seconds"]) >= {"boot_s", "build_s", "traffic_s"}
    assert incast.record.problems == ()


def test_the_person_sees_steps_and_a_table(incast: Run) -> None:
    steps = [line.split(" s  ")[1] for line in incast.done.stderr.splitlines()]
    assert steps[0] == "open vswitch"
    assert steps[-2:] == ["traffic", "done"]
    assert "dest-leaf held up the transfers" in incast.done.stdout
    assert str(incast.out / "report.html") in incast.done.stdout


# ---- baseline: nothing is in the way --------------------------------------------------


def test_baseline_takes_the_ideal_time(baseline: Run) -> None:
    assert baseline.summary["transfers"]["slowdown"]["p99"] <= 1.05
    assert baseline.last_end_ns() == pytest.approx(ALONE_NS + ROUND_TRIP_NS, rel=0.01)
    assert baseline.summary["fidelity"]["valid"] is True


def test_baseline_has_no_standing_queue_at_any_switch(baseline: Run) -> None:
    # A host that sends as fast as its link goes always has packets waiting in its own queue, as the kernel
    # lets it (a millisecond at its rate at most): no switch is in their way.
    hosts = {host.name for host in baseline.record.plan.topology.hosts}
    for name, link in baseline.summary["links"].items():
        assert (link["ce_marks"], link["drops"]) == (0, 0), name
        if link["from"] not in hosts:
            assert link["standing_ms"] == 0, name
            # Every port is at least as fast as what feeds it: what meets there is a few packets.
            assert link["queue_bytes"]["max"] <= 10 * (MTU + HEADER_BYTES), name


def test_baseline_accuses_nothing(baseline: Run) -> None:
    assert baseline.summary["verdict"]["segment"] is None
    assert baseline.summary["verdict"]["link"] is None


def test_baseline_takes_the_paths_the_hash_predicts(baseline: Run) -> None:
    assert baseline.paths == predicted_paths(baseline.record.plan)


def test_baseline_crosses_no_xoff_and_says_zero(baseline: Run) -> None:
    xoff = baseline.summary["events"]["xoff"]
    assert {key: xoff[key] for key in ("links", "crossings", "total_ms", "longest_ms")} == dict.fromkeys(
        ("links", "crossings", "total_ms", "longest_ms"), 0
    )
    assert {link["xoff_crossings"] for link in baseline.summary["links"].values()} == {0, None}
    assert "PFC risk    none: no queue reached XOFF" in baseline.done.stdout
    assert "PFC risk: none, XOFF not reached" in (baseline.out / "report.html").read_text()


# ---- feedback-too-late: where PFC would have paused senders ---------------------------


def test_a_burst_within_the_loop_crosses_xoff_at_its_port(too_late: Run) -> None:
    xoff = too_late.summary["events"]["xoff"]
    own = too_late.summary["events"]["links"]["leaf3-d1"]["xoff"]
    assert (xoff["link"], xoff["links"]) == ("leaf3-d1", 1)
    assert xoff["crossings"] == too_late.summary["links"]["leaf3-d1"]["xoff_crossings"] >= 1
    assert (xoff["total_ms"], xoff["longest_ms"]) == (own["total_ms"], own["longest_ms"])
    # The same from the samples: the level as the plan has it, each sample held until the next.
    series = too_late.record.series("leaf3-d1")
    level = {queue.link: queue.xoff_bytes for queue in too_late.record.plan.queues}["leaf3-d1"]
    assert level == 200_000
    above = series.backlog_bytes[:-1] >= level
    assert xoff["total_ms"] * 1e6 == pytest.approx(np.diff(series.time_ns)[above].sum(), abs=1)
    assert 0 < xoff["longest_ms"] <= xoff["total_ms"]


def test_the_person_is_told_of_the_pfc_risk(too_late: Run) -> None:
    times = too_late.summary["events"]["xoff"]["crossings"]
    assert f"PFC risk    leaf3-d1 crossed XOFF {times} time" in too_late.done.stdout
    assert f"PFC risk: XOFF crossed {times} time" in (too_late.out / "report.html").read_text()
