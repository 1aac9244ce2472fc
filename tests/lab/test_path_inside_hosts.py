"""Rails and landings in a run: what blocks cost, latency, one slow host among others, and the buffer."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.scenario.rails import effective_rate_bps
from tests.support.command import MIB, ONE_LEAF, Run, small, wire_bytes

MTU = 4200
SLOW = "fabric.host_link.rate=10gbit"
PAIRS = [
    *("hosts.decode.count=2", "workload.requests=null"),
    "workload.transfers=[{from: p1, to: d1, bytes: 2mib}, {from: p2, to: d2, bytes: 2mib}]",
]
"""Two transfers on one leaf that have no link in common."""


def serial_ns(payload_bytes: int, rate_bps: float) -> float:
    return wire_bytes(payload_bytes, MTU) * 8 / rate_bps * 1e9


def ends_ns(done: Run) -> list[int | None]:
    return [outcome.end_ns for outcome in done.record.outcomes]


def read_back(done: Run, where: str) -> dict[str, str]:
    return {item["what"]: item["found"] for item in done.record.facts["readback"] if item["where"] == where}


# ---- rate -----------------------------------------------------------------------------


def test_placing_blocks_takes_its_part_of_the_landings_rate(tmp_path: Path) -> None:
    # A block of 64 KiB takes 52.4 us at 10 Gbit/s; 26 us more to place it leave two thirds of the rate.
    cost = ["hosts.decode.nic_to_gpu=10gbit", "hosts.decode.block=64kib", "hosts.decode.block_cost=26us"]
    one = ["hosts.prefill.count=1", "workload.requests.count=1", "workload.requests.kv_bytes=4mib"]
    done = small(tmp_path, *ONE_LEAF, *cost, *one)
    rate_bps = effective_rate_bps(10_000_000_000, 65_536, 26_000)
    assert done.record.plan.topology.link("d1-d1g1").rate_bps == rate_bps
    assert rate_bps == pytest.approx(65_536 * 8 / (52.4288e-6 + 26e-6), rel=1e-9)
    # The 1 % holds the first round trips (some 10 us of 5 ms) and whole packets.
    assert done.last_end_ns() == pytest.approx(serial_ns(4 * MIB, rate_bps) + 2_000, rel=0.01)
    assert read_back(done, "d1-d1g1") == {"rate class": "True", "buffer": "4000000"}
    assert done.summary["verdict"]["link"] == "d1-d1g1"


def test_a_slow_rail_slows_its_own_host_alone(tmp_path: Path) -> None:
    (tmp_path / "even").mkdir()
    even = small(tmp_path / "even", *ONE_LEAF, SLOW, "fabric.hosts_per_leaf=4", *PAIRS)
    (tmp_path / "slow").mkdir()
    slow = small(tmp_path / "slow", *ONE_LEAF, SLOW, "hosts.slow_rails=[{host: p1, rate: 2gbit}]", *PAIRS)
    assert slow.record.plan.topology.rail("p2", 1) is None
    first, second = ends_ns(slow)
    assert first == pytest.approx(serial_ns(2 * MIB, 2e9) + 2_000, rel=0.01)
    # Not a byte of p2 meets one of p1: 10 us are what two programs' turns in one guest may differ by.
    assert second == pytest.approx(ends_ns(even)[1], abs=10_000)
    assert slow.summary["verdict"]["link"] == "p1g1-p1"
    assert even.summary["verdict"]["segment"] is None


def test_each_gpu_has_its_own_rail(tmp_path: Path) -> None:
    # GPU 2 of p1 is slow; what GPU 1 sends through the same NIC at the same time is not.
    sets = [
        *("hosts.gpus_per_host=2", "hosts.prefill.count=1", "hosts.decode.count=2", "workload.requests=null"),
        "hosts.slow_rails=[{host: p1, gpu: 1, rate: 4gbit}, {host: p1, gpu: 2, rate: 2gbit}]",
        "workload.transfers=[{from: p1, to: d1, bytes: 2mib}, {from: p1, to: d2, bytes: 2mib}]",
    ]
    done = small(tmp_path, *ONE_LEAF, SLOW, *sets)
    expected = [serial_ns(2 * MIB, 4e9) + 2_000, serial_ns(2 * MIB, 2e9) + 2_000]
    assert ends_ns(done) == pytest.approx(expected, rel=0.01)
    assert [path.split()[0] for path in done.paths] == ["p1g1-p1", "p1g2-p1"]


# ---- latency --------------------------------------------------------------------------


def first_byte_ns(folder: Path, *sets: str) -> int:
    folder.mkdir()
    stages = ["hosts.prefill.gpu_to_nic=5gbit", "hosts.decode.nic_to_gpu=5gbit", "hosts.prefill.count=1"]
    done = small(folder, *ONE_LEAF, SLOW, *stages, "workload.requests.count=1", *sets)
    outcome = done.record.outcomes[0]
    assert outcome.first_byte_ns is not None
    assert done.summary["fidelity"]["valid"] is True
    return outcome.first_byte_ns - outcome.start_ns


def test_latency_is_in_the_first_byte(tmp_path: Path) -> None:
    near = first_byte_ns(tmp_path / "near")
    # Two links of 1 us. A shaper lets the first packet of an idle queue pass at once and makes the next
    # one wait for it, so nothing is added to it; the clock's reads take some ns.
    assert near == pytest.approx(2_000, abs=500)
    far = first_byte_ns(tmp_path / "far", "hosts.prefill.latency=100us", "hosts.decode.latency=30us")
    # The connection is open before: one way, once through each stage.
    assert far - near == pytest.approx(130_000, abs=500)


# ---- the buffer before the GPU --------------------------------------------------------


def landed(folder: Path, senders: int) -> Run:
    landing = ["hosts.decode.nic_to_gpu=2gbit", "hosts.decode.buffer=256kb"]
    count = [f"hosts.prefill.count={senders}", f"workload.requests.count={senders}"]
    return small(folder, *ONE_LEAF, SLOW, *landing, *count, "workload.requests.kv_bytes=1mib")


def test_one_sender_never_overruns_the_landing_buffer(tmp_path: Path) -> None:
    done = landed(tmp_path, 1)
    link = done.summary["links"]["d1-d1g1"]
    assert link["drops"] == 0
    # The receiver's window is what the buffer holds, so it fills and no further.
    assert 240_000 < link["queue_bytes"]["max"] <= 256_000
    assert done.record.outcomes[0].retransmissions == 0
    assert done.last_end_ns() == pytest.approx(serial_ns(MIB, 2e9) + 2_000, rel=0.01)
    assert done.summary["verdict"]["segment"] == "dest-landing"
    assert done.summary["fidelity"]["valid"] is True


def test_two_senders_do_and_the_run_stays_valid(tmp_path: Path) -> None:
    done = landed(tmp_path, 2)
    link = done.summary["links"]["d1-d1g1"]
    assert link["drops"] > 0
    assert link["queue_bytes"]["max"] <= 256_000
    assert done.summary["transfers"]["retransmissions"] >= link["drops"]
    assert done.summary["transfers"]["completed"] == 2
    assert done.summary["fidelity"]["valid"] is True
