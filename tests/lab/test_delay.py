"""Propagation delay is really there, and never counts as a queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import MIB, SMALL, Run, run, wire_bytes, write_scenario

PACKET = 4_214
PACED = (
    SMALL.split("workload:")[0]
    + """\
workload:
  transfers:
  - {from: p1, to: d1, bytes: 16mib, rate: 50gbit}
measure: {interval: 100us}
"""
)
"""One flow at half the rate of its slowest link: no queue can form but of a few packets."""


@pytest.fixture(scope="module", params=["0us", "10ms"])
def paced(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Run]:
    """The round trip's delay in ns, and the run. K_min is 20 packets: a tenth of a millisecond of delay
    under the queue would stand far above it."""
    delay_ns = {"0us": 0, "10ms": 10_000_000}[request.param]
    folder = tmp_path_factory.mktemp("paced")
    threshold = f"{20 * PACKET}b"
    sets = [
        f"fabric.host_link.delay={request.param}",
        "fabric.fabric_link.delay=0us",
        f"fabric.queue.kmin={threshold}",
        f"fabric.queue.kmax={threshold}",
    ]
    done = run(folder / "record", write_scenario(folder, PACED), sets=sets)
    return 2 * delay_ns, done


def test_nothing_is_marked_at_half_load(paced: tuple[int, Run]) -> None:
    _, done = paced
    assert done.ce_marks() == {}
    assert done.record.outcomes[0].ecn is True  # it would have been
    assert done.summary["fidelity"]["valid"] is True


def test_no_port_holds_more_than_a_few_packets(paced: tuple[int, Run]) -> None:
    _, done = paced
    for name, link in done.summary["links"].items():
        if name.startswith(("leaf", "spine")):
            assert link["queue_bytes"]["max"] <= 10 * PACKET, name
            assert link["drops"] == 0, name


def test_the_delay_is_really_there(paced: tuple[int, Run]) -> None:
    one_way_ns, done = paced
    outcome = done.record.outcomes[0]
    assert outcome.first_byte_ns is not None
    # The connection is opened 2 ms early. Over a longer round trip its handshake has still to end: SYN,
    # SYN and ACK, and then data, are three ways through the fabric, less the 2 ms.
    expected = 3 * one_way_ns - 2_000_000 if one_way_ns else 0
    # Beside it: serialisation of a first packet at each of four hops (0.3 us at most), and clock reads.
    assert outcome.first_byte_ns - outcome.start_ns == pytest.approx(expected, abs=10_000)


def test_pacing_holds_the_rate(paced: tuple[int, Run]) -> None:
    one_way_ns, done = paced
    if not one_way_ns:  # over a long round trip slow start decides, not the pace
        expected = 16 * MIB * 8 / 50
        assert done.last_end_ns() == pytest.approx(expected, rel=0.02)
    assert done.summary["links"]["leaf2-d1"]["bytes"] >= wire_bytes(16 * MIB, 4200)


def test_a_threshold_of_one_packet_would_have_marked(tmp_path: Path) -> None:
    """The teeth of the above: two such flows into one port, and K_min of one packet, do mark."""
    text = PACED.replace("rate: 50gbit}", "rate: 50gbit}\n  - {from: p2, to: d1, bytes: 1mib, rate: 50gbit}")
    sets = [f"fabric.queue.kmin={PACKET}b", f"fabric.queue.kmax={PACKET}b"]
    done = run(tmp_path / "record", write_scenario(tmp_path, text), sets=sets)
    assert done.ce_marks()["leaf2-d1"] > 0
