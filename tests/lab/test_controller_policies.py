"""The routing policies in whole runs: the paths that the packets took are those that were to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import SMALL, Run, predicted_paths, run, write_scenario

FOUR = (
    SMALL.split("hosts:")[0].replace("fabric_link: {rate: 200gbit", "fabric_link: {rate: 100gbit")
    + """\
hosts: {prefill: {count: 4}, decode: {count: 4}}
"""
)
ONE_LONG_THEN_SHORT = (
    FOUR
    + """\
routing: {policy: least-loaded}
workload:
  transfers:
    - {from: p1, to: d1, bytes: 256mib}
    - {from: p2, to: d2, bytes: 4mib, start: 10ms}
    - {from: p3, to: d3, bytes: 4mib, start: 15ms}
    - {from: p4, to: d4, bytes: 4mib, start: 20ms}
"""
)
"""The long one takes 21.8 ms at its host's rate, which is the rate of a fabric link as well."""

REQUESTS = "workload: {requests: {count: 12, kv_bytes: 64kib}}\n"

PINNED = "routing: {policy: pinned, pinned: [{from: p1, spine: 2}, {from: p2, to: d2, spine: 2}]}\n"


def spines(done: Run) -> list[str]:
    return [path.split()[1].rpartition("-")[2] for path in done.paths]


def play(folder: Path, text: str, *sets: str) -> Run:
    folder.mkdir(exist_ok=True)
    return run(folder / "record", write_scenario(folder, text), sets=list(sets))


def test_pinned_flows_take_their_spine_and_all_others_the_hashs(tmp_path: Path) -> None:
    done = play(tmp_path, FOUR + PINNED + REQUESTS)
    assert done.paths == predicted_paths(done.record.plan)
    pinned = {
        spine
        for spine, transfer in zip(spines(done), done.record.plan.transfers, strict=True)
        if transfer.src in ("p1", "p2")
    }
    assert pinned == {"spine2"}
    assert set(spines(done)) == {"spine1", "spine2"}


def test_polarised_flows_to_one_host_meet_on_one_spine(tmp_path: Path) -> None:
    sets = ("routing.policy=polarised", "hosts.decode.count=1", "fabric.leaves=3", "fabric.spines=4")
    done = play(tmp_path, FOUR + REQUESTS, *sets, "hosts.prefill.leaves=[1,2]", "fabric.hosts_per_leaf=2")
    assert done.paths == predicted_paths(done.record.plan)
    assert {path.split()[1].partition("-")[0] for path in done.paths} == {"leaf1", "leaf2"}
    assert len(set(spines(done))) == 1


@pytest.mark.parametrize("framework", ["os-ken", "ryu"])
def test_least_loaded_avoids_the_link_that_the_counters_show_busy(tmp_path: Path, framework: str) -> None:
    done = play(tmp_path, ONE_LONG_THEN_SHORT, f"controller.framework={framework}")
    assert spines(done) == ["spine1", "spine2", "spine2", "spine2"]
    assert done.summary["fidelity"]["valid"] is True
    # A first packet's way over the controller is over when the transfer starts: all take their ideal times.
    assert done.summary["transfers"]["slowdown"]["max"] < 1.03


def test_without_counters_the_third_flow_meets_the_long_one(tmp_path: Path) -> None:
    done = play(tmp_path, ONE_LONG_THEN_SHORT, "routing.poll=1s")
    assert spines(done)[2] == "spine1"
    assert done.summary["transfers"]["slowdown"]["max"] > 1.5


def test_least_loaded_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    first, again = (play(tmp_path / name, ONE_LONG_THEN_SHORT) for name in ("first", "again"))
    for name in ("transfers.csv", "summary.json"):
        assert (first.out / name).read_bytes() == (again.out / name).read_bytes()
