"""Small incasts over other fabrics, rates, packets and congestion controls, against closed forms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import MIB, ONE_LEAF, predicted_paths, small, wire_bytes

FOUR = 4 * MIB


def ideal_ns(payload_bytes: int, mtu: int, rate_bps: float, delay_ns: int, count: int = 2) -> float:
    """Return when `count` equal transfers through one port of `rate_bps` have arrived: the closed form."""
    return count * wire_bytes(payload_bytes, mtu) * 8 / (rate_bps / 1e9) + delay_ns


@pytest.mark.parametrize(
    ("rate_bps", "mtu", "payload_mib"),
    [
        (1_000_000_000, 4200, 1),
        (10_000_000_000, 1500, 4),
        (10_000_000_000, 9000, 4),
        (100_000_000_000, 4200, 8),
        (400_000_000_000, 9000, 32),
    ],
)
def test_two_to_one_takes_the_closed_form(tmp_path: Path, rate_bps: int, mtu: int, payload_mib: int) -> None:
    done = small(
        tmp_path,
        *ONE_LEAF,
        f"fabric.host_link.rate={rate_bps // 1_000_000_000}gbit",
        f"fabric.mtu={mtu}",
        f"workload.requests.kv_bytes={payload_mib}mib",
    )
    # Two links of 1 us; the 1 % holds slow start and what a shaper lets through at once.
    expected = ideal_ns(payload_mib * MIB, mtu, rate_bps, 2_000)
    assert done.last_end_ns() == pytest.approx(expected, rel=0.01)
    assert done.summary["fidelity"]["valid"] is True
    assert set(done.ce_marks()) == {"leaf1-d1"}
    assert done.summary["verdict"]["segment"] == "dest-leaf"
    assert done.paths == ["p1-leaf1 leaf1-d1", "p2-leaf1 leaf1-d1"]


@pytest.mark.parametrize("name", ["cubic", "reno", "bbr"])
def test_congestion_control_is_the_one_asked_for_and_unmarked(tmp_path: Path, name: str) -> None:
    done = small(tmp_path, f"transport.congestion_control={name}")
    outcomes = done.record.outcomes
    found = {(o.sender_congestion_control, o.receiver_congestion_control, o.ecn) for o in outcomes}
    assert found == {(name, name, False)}
    assert done.ce_marks() == {}  # without ECN nothing can be marked
    assert done.summary["fidelity"]["valid"] is True
    assert done.summary["transfers"]["completed"] == 2


def test_ecn_may_be_had_with_another_congestion_control(tmp_path: Path) -> None:
    done = small(tmp_path, "transport.congestion_control=cubic", "transport.ecn=true")
    assert [outcome.ecn for outcome in done.record.outcomes] == [True, True]
    assert set(done.ce_marks()) == {"leaf2-d1"}


def test_a_single_spine_is_every_path(tmp_path: Path) -> None:
    done = small(tmp_path, "fabric.spines=1")
    assert done.paths == [f"p{i}-leaf1 leaf1-spine1 spine1-leaf2 leaf2-d1" for i in (1, 2)]
    assert done.last_end_ns() == pytest.approx(ideal_ns(FOUR, 4200, 100e9, 4_000), rel=0.01)
    assert done.summary["verdict"]["segment"] == "dest-leaf"


def test_an_oversubscribed_leaf_is_the_source_leafs_fault(tmp_path: Path) -> None:
    done = small(tmp_path, "fabric.spines=1", "fabric.fabric_link.rate=50gbit")
    # The uplink carries both at 50 Gbit/s; behind it nothing can queue.
    assert set(done.ce_marks()) == {"leaf1-spine1"}
    assert done.summary["verdict"]["segment"] == "source-leaf"
    assert done.summary["verdict"]["link"] == "leaf1-spine1"
    assert done.last_end_ns() == pytest.approx(ideal_ns(FOUR, 4200, 50e9, 4_000), rel=0.01)


def test_hash_fields_may_be_a_subset(tmp_path: Path) -> None:
    done = small(tmp_path, "routing.hash_fields=[ipv4_src]", "workload.requests.count=8", "fabric.spines=4")
    assert done.paths == predicted_paths(done.record.plan)
    # Ports are not hashed: a host's transfers, whatever their port, take one path.
    assert len(set(done.paths)) <= 2
    assert done.paths[0::2] == [done.paths[0]] * 4
    assert done.paths[1::2] == [done.paths[1]] * 4


def test_a_short_queue_drops_and_the_transfers_still_arrive(tmp_path: Path) -> None:
    done = small(
        tmp_path,
        "transport.congestion_control=cubic",
        "fabric.queue.kmin=100kb",
        "fabric.queue.kmax=150kb",
        "fabric.queue.limit=200kb",
    )
    link = done.summary["links"]["leaf2-d1"]
    assert link["drops"] > 0
    # The samples see the queue at its limit, and never a packet above it.
    assert 190_000 < link["queue_bytes"]["max"] <= 200_000
    assert done.summary["transfers"]["completed"] == 2
    assert done.summary["transfers"]["retransmissions"] >= link["drops"]
    assert done.summary["fidelity"]["valid"] is True


def test_starts_are_drawn_from_the_window(tmp_path: Path) -> None:
    done = small(tmp_path, "workload.requests.window=2ms", "workload.requests.count=6")
    planned = [transfer.start_ns for transfer in done.record.plan.transfers]
    assert planned == sorted(planned)
    assert planned[0] >= 0
    assert planned[-1] < 2_000_000
    assert len(set(planned)) == 6
    begun = [outcome.start_ns for outcome in done.record.outcomes]
    # A timer of the virtual clock is exact; beside it stand the clock's reads of 256 ns.
    assert [max(0, got - want) < 20_000 for got, want in zip(begun, planned, strict=True)] == [True] * 6
    assert done.summary["fidelity"]["valid"] is True


def test_scale_shrinks_every_transfer(tmp_path: Path) -> None:
    done = small(tmp_path, "workload.scale.bytes=0.25")
    assert [row["bytes"] for row in done.rows] == [str(MIB), str(MIB)]
    assert done.summary["transfers"]["bytes"] == 2 * MIB


def test_links_may_have_no_delay(tmp_path: Path) -> None:
    done = small(tmp_path, "fabric.host_link.delay=0us", "fabric.fabric_link.delay=0us")
    assert done.last_end_ns() == pytest.approx(ideal_ns(FOUR, 4200, 100e9, 0), rel=0.01)
    assert done.summary["fidelity"]["valid"] is True


def test_ryu_runs_the_same_rules(tmp_path: Path) -> None:
    runs = {}
    for framework in ("os-ken", "ryu"):
        folder = tmp_path / framework
        folder.mkdir()
        runs[framework] = small(folder, f"controller.framework={framework}")
    ours, theirs = runs["os-ken"], runs["ryu"]
    assert theirs.record.facts["controller"]["framework"] == "ryu"
    assert theirs.record.facts["controller"]["switches"] == ours.record.facts["controller"]["switches"]
    assert theirs.paths == ours.paths == predicted_paths(ours.record.plan)
    assert theirs.summary["verdict"]["segment"] == ours.summary["verdict"]["segment"] == "dest-leaf"
    # Not byte for byte: the two programs wait at other moments, so packets meet other random numbers.
    assert theirs.last_end_ns() == pytest.approx(ours.last_end_ns(), rel=0.02)
    assert json.loads((theirs.out / "environment.json").read_text())["framework"] == "ryu"
