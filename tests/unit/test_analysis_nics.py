"""How a host's KV is spread over its NICs, in the summary and in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.analysis import summarise
from testbed.analysis.nics import nic_use
from testbed.record.reader import Record
from tests.support.synthetic import CASES, write_record


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return Record.open(write_record(tmp_path_factory.mktemp("rails"), CASES["one-rail-of-four"]()))


@pytest.fixture(scope="module")
def summary(record: Record) -> dict[str, Any]:
    return summarise(record)


def test_the_shared_nic_is_named_and_its_share(summary: dict[str, Any]) -> None:
    uses = summary["fabric"]["nics"]
    assert {name: (use["busiest"], use["idle"]) for name, use in uses.items()} == {
        "p1": ("p1n1", ["p1n3", "p1n4"]),
        "d1": ("d1n1", ["d1n3", "d1n4"]),
    }
    assert [use["share"] for use in uses.values()] == pytest.approx([0.75, 0.75], rel=1e-3)


def test_the_verdict_says_who_stood_idle_beside_the_culprit(summary: dict[str, Any]) -> None:
    verdict = summary["verdict"]
    assert (verdict["segment"], verdict["link"]) == ("source-rail", "p1n1-leaf1")
    said = " % utilised and carried 75 % of its host's KV (p1n3 and p1n4 carried nothing) while"
    assert said in verdict["text"]


def test_only_hosts_with_several_nics_are_told_of(tmp_path: Path, record: Record) -> None:
    one = Record.open(write_record(tmp_path / "one", CASES["incast"]()))
    assert "nics" not in summarise(one)["fabric"]
    unsampled = replace(record, groups=())
    assert "nics" not in summarise(unsampled)["fabric"]


def test_a_nic_that_sends_but_is_asked_for_nothing_is_idle_in_its_own_direction(record: Record) -> None:
    links: dict[str, dict[str, int]] = {link.name: {"bytes": 0} for link in record.plan.topology.links}
    links["p1n1-leaf1"]["bytes"], links["p1n2-leaf2"]["bytes"], links["leaf3-p1n3"]["bytes"] = 300, 100, 50
    assert nic_use(record.plan.topology, links) == {
        "p1": {"busiest": "p1n1", "share": 0.75, "idle": ["p1n3", "p1n4"]}
    }


def test_the_measured_paths_are_those_of_the_nics(record: Record) -> None:
    assert record.paths == {
        **dict.fromkeys(range(3), ("p1n1-leaf1", "leaf1-d1n1")),
        3: ("p1n2-leaf2", "leaf2-d1n2"),
    }
