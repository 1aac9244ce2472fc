"""Hosts with two NICs on two rails: who meets whom, which way packets take, and what a far NIC costs.

One run of eight transfers, far enough apart in time where they should not meet. Tolerances as in
`test_closed_forms`: 1 % holds the first round trips, a packet at each hop and the shaper's whole nanoseconds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import MIB, Run, predicted_paths, run, wire_bytes, write_scenario

SHARE = 0.01
RATE_BPS = 10_000_000_000
FAR_BPS = 4_000_000_000
SIZE = 4 * MIB
MS = 1_000_000

SCENARIO = """\
name: two-rails
fabric:
  leaves: 2
  spines: 2
  hosts_per_leaf: 4
  host_link: {rate: 10gbit, delay: 1us}
  fabric_link: {rate: 10gbit, delay: 1us}
hosts:
  gpus_per_host: 4
  nics_per_host: 2
  rail_optimised: true
  affinity: [1, 1, 2, 2]
  prefill: {count: 2, gpu_to_far_nic: 4gbit}
  decode: {count: 2, nic_to_far_gpu: 4gbit}
routing: {policy: pinned, pinned: [{from: p2, to: d2, spine: 2}]}
workload:
  transfers:
    - {from: p1, to: d1, bytes: 4mib, from_gpu: 1, to_gpu: 1}
    - {from: p2, to: d1, bytes: 4mib, from_gpu: 2, to_gpu: 2}
    - {from: p1, to: d1, bytes: 4mib, from_gpu: 3, to_gpu: 3}
    - {from: p1, to: d2, bytes: 4mib, from_gpu: 4, to_gpu: 4}
    - {from: p1, to: d1, bytes: 4mib, from_gpu: 1, to_gpu: 3, from_nic: 2, start: 20ms}
    - {from: p1, to: d2, bytes: 4mib, from_gpu: 2, to_gpu: 1, to_nic: 2, start: 20ms}
    - {from: p2, to: d2, bytes: 4mib, from_gpu: 3, to_gpu: 1, start: 40ms}
    - {from: p2, to: d2, bytes: 4mib, from_gpu: 1, to_gpu: 1, start: 60ms}
  background:
    - {from: p2, to: d1, from_nic: 2, to_nic: 2, protocol: udp, rate: 500mbit, start: 60ms, duration: 10ms}
"""


@pytest.fixture(scope="module")
def rails(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("rails")
    return run(folder / "record", write_scenario(folder, SCENARIO))


def fct_ns(rails: Run, number: int) -> int:
    outcome = rails.record.outcomes[number]
    assert outcome.end_ns is not None
    return outcome.end_ns - outcome.start_ns


def serial_ns(rate_bps: float) -> float:
    return wire_bytes(SIZE, 4200) * 8 / rate_bps * 1e9


def test_the_run_is_valid_and_lost_nothing(rails: Run) -> None:
    assert rails.summary["fidelity"]["valid"] is True
    assert {outcome.retransmissions for outcome in rails.record.outcomes} == {0}


def test_from_rail_to_rail_nothing_leaves_the_rails_leaf(rails: Run) -> None:
    assert rails.paths[:4] == [
        "p1n1-leaf1 leaf1-d1n1",
        "p2n1-leaf1 leaf1-d1n1",
        "p1n2-leaf2 leaf2-d1n2",
        "p1n2-leaf2 leaf2-d2n2",
    ]


def test_between_rails_a_spine_is_crossed_as_the_rules_foretell(rails: Run) -> None:
    foretold = predicted_paths(rails.record.plan)[5]
    assert foretold.startswith("p1n1-leaf1 leaf1-spine")
    assert rails.paths[5] == f"{foretold} d2n2-d2g1"
    assert rails.paths[6] == "p2n2-leaf2 leaf2-spine2 spine2-leaf1 leaf1-d2n1"
    assert rails.paths[7] == "p2n1-leaf1 leaf1-d2n1"


@pytest.mark.parametrize(
    ("meeting", "where"), [((0, 1), "at the receiving NIC"), ((2, 3), "at the sending NIC")]
)
def test_transfers_that_meet_at_a_nic_end_at_twice_one_alone(
    rails: Run, meeting: tuple[int, int], where: str
) -> None:
    alone = fct_ns(rails, 7)
    assert alone == pytest.approx(serial_ns(RATE_BPS) + 2_000, rel=SHARE)
    assert max(fct_ns(rails, number) for number in meeting) == pytest.approx(2 * alone, rel=SHARE), where


def test_a_nic_that_is_not_the_gpus_own_is_reached_at_the_far_rate(rails: Run) -> None:
    assert fct_ns(rails, 4) == pytest.approx(serial_ns(FAR_BPS) + 2_000, rel=SHARE)
    assert rails.record.paths[4] == ("p1g1-p1n2", "p1n2-leaf2", "leaf2-d1n2")
    assert fct_ns(rails, 5) == pytest.approx(serial_ns(FAR_BPS) + 6_000, rel=SHARE)
    path = rails.record.paths[5]
    assert path is not None
    assert (path[0], path[-2:]) == ("p1n1-leaf1", ("leaf2-d2n2", "d2n2-d2g1"))


def test_answers_leave_by_the_nic_that_was_asked(rails: Run) -> None:
    # ACKs of four transfers to each of d1's NICs at most: hundreds of packets, and nothing of it is data.
    series = {name: rails.record.series(name) for name in ("d1n1-leaf1", "d1n2-leaf2")}
    during = {name: item.packets[item.time_ns <= 10 * MS][-1] for name, item in series.items()}
    assert min(during.values()) > 100
    # From 20 ms on only its second NIC has a connection.
    later = {name: item.packets[item.time_ns <= 30 * MS][-1] - during[name] for name, item in series.items()}
    assert later["d1n1-leaf1"] == 0
    assert later["d1n2-leaf2"] > 100


def test_background_load_uses_the_nics_it_names(rails: Run) -> None:
    series = rails.record.series("p2n2-leaf2")
    before, after = (series.bytes[series.time_ns <= moment][-1] for moment in (59 * MS, 75 * MS))
    assert after - before == pytest.approx(500e6 / 8 * 10e-3, rel=0.1)
    down = rails.record.series("leaf2-d1n2")
    assert down.bytes[-1] - down.bytes[down.time_ns <= 59 * MS][-1] == pytest.approx(after - before, rel=0.05)


def test_every_nic_is_read_back(rails: Run) -> None:
    entries = rails.record.facts["readback"]
    assert [entry for entry in entries if not entry["ok"]] == []
    by_place = {(entry["where"], entry["what"]): entry["found"] for entry in entries}
    for nic in rails.record.plan.topology.nics.values():
        assert by_place[nic.up, "gso_max_segs"] == "1"
        assert by_place[nic.host, f"ipv4/conf/{nic.up}/rp_filter"] == "['0']"
        assert (nic.down, "way to delay") in by_place
    assert by_place["p1g1-p1n2", "rate class"] == by_place["d2n2-d2g1", "rate class"] == "True"


def test_how_a_hosts_kv_is_spread_over_its_nics_is_told(rails: Run) -> None:
    uses = rails.summary["fabric"]["nics"]
    assert {name: use["idle"] for name, use in uses.items()} == {"p1": [], "p2": [], "d1": [], "d2": []}
    # Of p1's five transfers of one size three left by the second NIC; headers and ACKs are less than 1 %.
    assert (uses["p1"]["busiest"], uses["p1"]["share"]) == ("p1n2", pytest.approx(3 / 5, abs=0.01))


WAYS = """\
name: two-ways
fabric: {leaves: 1, spines: 1, hosts_per_leaf: 4, host_link: {rate: 400gbit, delay: 1us}}
hosts:
  gpus_per_host: 2
  nics_per_host: 2
  prefill: {count: 1, gpu_to_far_nic: host-bounce}
  decode: {count: 1, nic_to_far_gpu: gdr-other-numa}
workload:
  transfers:
    - {from: p1, to: d1, bytes: 64kib, from_gpu: 1, to_gpu: 1}
    - {from: p1, to: d1, bytes: 64kib, from_gpu: 1, to_gpu: 1, from_nic: 2, start: 5ms}
    - {from: p1, to: d1, bytes: 64kib, from_gpu: 1, to_gpu: 1, to_nic: 2, start: 10ms}
    - {from: p1, to: d1, bytes: 64kib, from_gpu: 1, to_gpu: 1, from_nic: 2, to_nic: 2, start: 15ms}
"""


def test_each_way_between_gpu_and_nic_has_a_latency_of_its_own(tmp_path: Path) -> None:
    done = run(tmp_path / "record", write_scenario(tmp_path, WAYS))
    assert done.summary["fidelity"]["valid"] is True
    first = [(outcome.first_byte_ns or 0) - outcome.start_ns for outcome in done.record.outcomes]
    # host-bounce 7 us, gdr-other-numa 1.43 us, as docs/rails.md has them; the clock's reads take some ns.
    assert [moment - first[0] for moment in first] == pytest.approx([0, 7_000, 1_430, 8_430], abs=300)
    assert first[0] == pytest.approx(2_000, abs=500)
