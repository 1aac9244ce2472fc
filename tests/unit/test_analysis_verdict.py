"""Who is accused: the known culprits of the toy runs, nobody in the controls, and the rule at its edges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.analysis import summarise
from testbed.analysis.blame import blame, culprits, limiting_links, slowest
from testbed.analysis.losses import SENDER, TransferLoss
from testbed.analysis.sentence import naive_reading
from testbed.analysis.verdict import verdict
from testbed.record.reader import Record
from tests.support.synthetic import CASES, incast, write_record
from topologies.model import SEGMENTS

SEGMENT_OF = {
    "p1-leaf1": "source-rail",
    "leaf1-spine1": "source-leaf",
    "leaf3-d1": "dest-leaf",
    "leaf3-d2": "dest-leaf",
    "leaf3-s1": "dest-leaf",
    "s1-leaf3": "source-rail",
}
LINKS = {
    name: {
        "segment": segment,
        "from": name.split("-")[0],
        "to": name.split("-")[1],
        "utilisation": {"mean": 0.5},
    }
    for name, segment in SEGMENT_OF.items()
}
IDEAL = 1_000_000


def _loss(number: int = 0, sender: float = 0.0, **by_link: float) -> TransferLoss:
    """Return a loss of an ideal 1 ms; links are written with _ for -."""
    named = {name.replace("_", "-"): lost for name, lost in by_link.items()}
    by_segment = dict.fromkeys((*SEGMENTS, SENDER), 0.0)
    for name, lost in named.items():
        by_segment[SEGMENT_OF[name]] += lost
    by_segment[SENDER] = sender
    total = round(sum(named.values()) + sender)
    return TransferLoss(number, "p1", "d1", IDEAL + total, IDEAL, IDEAL, 0.0, 0.0, sender, named, by_segment)


def _verdict(*losses: TransferLoss) -> dict[str, Any]:
    fabric = {"utilisation": 0.25, "limiting_links": []}
    return verdict(losses, LINKS, fabric, {"mean": 1.5, "p99": 2.0}, LINKS)


@pytest.mark.parametrize(
    ("name", "segment", "link"),
    [
        ("incast", "dest-leaf", "leaf3-d1"),
        ("hot-spine", "spine", "spine1-leaf5"),
        ("hot-uplink", "source-leaf", "leaf1-spine1"),
        ("shared-rail", "source-rail", "p1-leaf1"),
        ("slow-landing", "dest-landing", "d1-d1g1"),
        ("baseline", None, None),
        ("slow-sender", None, None),
    ],
)
def test_the_culprit_of_each_toy_run_is_named(
    name: str, segment: str | None, link: str | None, tmp_path: Path
) -> None:
    found = summarise(Record.open(write_record(tmp_path, CASES[name]())))["verdict"]
    assert (found["segment"], found["link"]) == (segment, link)
    assert sum(found["shares"].values()) == pytest.approx(1, rel=1e-8)
    if segment:
        assert found["share"] == found["shares"][segment] > 0.95


def test_the_incast_is_said_in_a_sentence(tmp_path: Path) -> None:
    found = summarise(Record.open(write_record(tmp_path, incast())))["verdict"]
    assert found["text"] == (
        "dest-leaf held up the transfers: 99 % of the time lost, and 99 % of what the slowest 1 % lost, "
        "went to the queue of leaf3-d1 (the leaf's downlink to the decode host), which was 100 % utilised "
        "while the links between switches averaged 8 %."
    )
    assert (found["scope"], found["link_share"]) == ("all", found["share"])
    assert found["by_decode"]["d1"]["segment"] == "dest-leaf"
    assert found["by_pair"]["p3->d1"]["segment"] == "dest-leaf"


def test_the_sentences_of_the_controls(tmp_path: Path) -> None:
    quiet = summarise(Record.open(write_record(tmp_path / "a", CASES["baseline"]())))["verdict"]["text"]
    slow = summarise(Record.open(write_record(tmp_path / "b", CASES["slow-sender"]())))["verdict"]["text"]
    assert quiet == (
        "No stretch of the network is accused: transfers took 1.03 times their ideal on average, 1.03 at p99."
    )
    assert slow == (
        "No stretch of the network is accused: transfers took 3.04 times their ideal on average, 3.04 at "
        "p99, but 100 % of the time lost had no standing queue on the path: look at the senders (start-up, "
        "pacing, retransmissions)."
    )


@pytest.mark.parametrize(("lost", "segment"), [(0.0499, None), (0.05, "dest-leaf")])
def test_a_loss_below_a_twentieth_of_the_ideal_accuses_nobody(lost: float, segment: str | None) -> None:
    assert blame([_loss(leaf3_d1=lost * IDEAL)], SEGMENT_OF).segment == segment


@pytest.mark.parametrize(("sender", "segment"), [(300_000.0, None), (299_999.0, "dest-leaf")])
def test_a_sender_that_lost_as_much_leaves_nobody_accused(sender: float, segment: str | None) -> None:
    assert blame([_loss(sender=sender, leaf3_d1=300_000)], SEGMENT_OF).segment == segment


def test_the_costliest_link_of_the_costliest_segment_is_named() -> None:
    found = _verdict(
        _loss(0, leaf1_spine1=500_000),
        _loss(1, leaf3_d1=300_000),
        _loss(2, leaf3_d2=350_000, p1_leaf1=50_000),
    )
    assert (found["segment"], found["link"]) == ("dest-leaf", "leaf3-d2")
    assert found["share"] == pytest.approx(650 / 1200)
    assert found["link_share"] == pytest.approx(350 / 1200)


def test_the_slowest_hundredth_is_heard_when_the_rest_lost_nothing() -> None:
    losses = [_loss(number) for number in range(199)] + [_loss(199, leaf3_d1=900_000)]
    found = _verdict(*losses)
    assert (found["segment"], found["scope"]) == ("dest-leaf", "tail")
    assert found["text"] == (
        "dest-leaf held up the transfers: 100 % of the time lost by the slowest 1 % went to the queue of "
        "leaf3-d1 (the leaf's downlink to the decode host), which was 50 % utilised while the links between "
        "switches averaged 25 %."
    )


def test_the_whole_is_heard_before_the_tail() -> None:
    losses = [_loss(number, leaf1_spine1=100_000) for number in range(99)] + [_loss(99, leaf3_d1=900_000)]
    found = _verdict(*losses)
    assert (found["segment"], found["scope"], found["tail"]["segment"]) == ("source-leaf", "all", "dest-leaf")


@pytest.mark.parametrize(("count", "tail"), [(1, 1), (8, 1), (100, 1), (101, 2), (1000, 10)])
def test_the_tail_is_a_hundredth_and_at_least_one(count: int, tail: int) -> None:
    losses = [_loss(number, sender=float(number)) for number in range(count)]
    assert [loss.id for loss in slowest(losses)] == list(range(count - 1, count - 1 - tail, -1))


def test_a_link_limits_where_it_cost_a_twentieth_of_the_ideal_of_the_transfers_over_it() -> None:
    losses = [_loss(0, leaf3_d1=60_000, p1_leaf1=10_000), _loss(1), _loss(2, leaf3_d2=51_000)]
    assert limiting_links(losses, {0: None, 1: ("p1-leaf1",), 2: ("leaf3-d2",)}) == ["leaf3-d1", "leaf3-d2"]
    assert limiting_links(losses, {1: ("leaf3-d1",), 2: ("leaf3-d1", "leaf3-d2")}) == ["leaf3-d2"]


def test_a_queue_that_costs_nothing_limits_nobody(tmp_path: Path) -> None:
    quiet = summarise(Record.open(write_record(tmp_path / "a", CASES["baseline"]())))
    assert quiet["links"]["p1-leaf1"]["standing_ms"] > 1
    assert quiet["fabric"]["limiting_links"] == []
    full = summarise(Record.open(write_record(tmp_path / "b", incast())))
    assert full["fabric"]["limiting_links"] == ["leaf3-d1"]
    assert full["links"]["leaf3-d1"]["lost_ms"] == pytest.approx(
        full["verdict"]["share"] * full["verdict"]["lost_ms"], rel=1e-8
    )
    assert full["links"]["spine1-leaf3"]["lost_ms"] == 0


def test_without_a_completed_transfer_nothing_is_said() -> None:
    found = _verdict()
    assert (found["segment"], found["share"]) == (None, None)
    assert found["text"] == "No transfer completed, so nothing can be said about where the time went."
    assert set(found["shares"].values()) == {0.0}


def test_groups_are_judged_by_themselves() -> None:
    found = _verdict(_loss(0, leaf3_d1=800_000), replace(_loss(1, sender=700_000), dst="d2"))
    assert found["by_decode"]["d1"]["shares"]["dest-leaf"] == 1
    assert found["by_decode"]["d2"] == {
        "segment": None,
        "lost_ms": 0.7,
        "shares": {**dict.fromkeys(SEGMENTS, 0.0), SENDER: 1.0},
    }
    assert list(found["by_prefill"]) == ["p1"]
    assert found["by_prefill"]["p1"]["shares"]["dest-leaf"] == pytest.approx(8 / 15)


def _two(rail: float, downlink: float, sender: float = 0.0) -> list[str]:
    part = blame([_loss(p1_leaf1=rail, leaf3_d1=downlink, sender=sender)], SEGMENT_OF)
    return [culprit.segment for culprit in culprits(part, SEGMENT_OF)]


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ("leaf3_d1", "the queue of leaf3-d1 (the leaf's downlink to the decode host)"),
        ("leaf3_s1", "the queue of leaf3-s1 (the leaf's downlink to a store)"),
        ("s1_leaf3", "the queue of s1-leaf3 (the NIC of a store)"),
        ("p1_leaf1", "the queue of p1-leaf1 (the way from the GPU to the NIC on the prefill side)"),
        ("leaf1_spine1", "the queue of leaf1-spine1 (a leaf uplink on the prefill side)"),
    ],
)
def test_a_store_is_not_called_a_prefill_or_a_decode_host(link: str, words: str) -> None:
    assert words in _verdict(_loss(**{link: 1e6}))["text"]


def test_of_several_queues_the_largest_part_may_be_a_stores() -> None:
    text = _verdict(_loss(leaf3_s1=6e5, leaf3_d1=4e5))["text"]
    assert "the queues of dest-leaf (the leaf's downlink to the decode host), the largest part (60 %)" in text
    assert "to that of leaf3-s1 (the leaf's downlink to a store), which was 50 % utilised" in text


def test_a_quarter_of_the_time_lost_makes_a_second_culprit() -> None:
    assert _two(749_999, 250_001) == ["source-rail", "dest-leaf"]
    assert _two(750_001, 249_999) == ["source-rail"]
    assert _two(300_000, 700_000) == ["dest-leaf", "source-rail"]
    assert _two(0, 0) == []


def test_a_second_culprit_cost_a_twentieth_of_the_ideal_and_more_than_the_sender() -> None:
    assert _two(100_000, 49_999) == ["source-rail"]
    assert _two(100_000, 50_000) == ["source-rail", "dest-leaf"]
    assert _two(400_000, 300_000, sender=300_000) == ["source-rail"]
    assert _two(400_000, 300_000, sender=299_999) == ["source-rail", "dest-leaf"]


def test_two_culprits_are_both_named(tmp_path: Path) -> None:
    found = summarise(Record.open(write_record(tmp_path, CASES["two-culprits"]())))["verdict"]
    assert [(part["segment"], part["link"]) for part in found["culprits"]] == [
        ("source-rail", "p4g1-p4"),
        ("dest-leaf", "leaf3-d1"),
    ]
    assert [part["share"] for part in found["culprits"]] == [
        found["shares"]["source-rail"],
        found["shares"]["dest-leaf"],
    ]
    assert found["segment"] == "source-rail"
    assert [name for name, accused in found["accused"].items() if accused] == ["source-rail", "dest-leaf"]
    assert found["text"] == (
        "source-rail and dest-leaf held up the transfers: 49 % of the time lost, and 97 % of what the "
        "slowest 1 % lost, went to the queues of source-rail (the way from the GPU to the NIC on the prefill "
        "side), the largest part (16 %) to that of p4g1-p4, which was 99 % utilised; 48 % and 0 % to the "
        "queue of leaf3-d1 (the leaf's downlink to the decode host), which was 98 % utilised while the links "
        "between switches averaged 6 %."
    )


def test_one_culprit_is_a_list_of_one_and_none_an_empty_list(tmp_path: Path) -> None:
    full = summarise(Record.open(write_record(tmp_path / "a", incast())))["verdict"]
    assert full["culprits"] == [
        {"segment": "dest-leaf", "link": "leaf3-d1", "share": full["share"], "link_share": full["link_share"]}
    ]
    quiet = summarise(Record.open(write_record(tmp_path / "b", CASES["baseline"]())))["verdict"]
    assert quiet["culprits"] == []
    assert not any(quiet["accused"].values())


def _naive(**means: float | None) -> dict[str, Any]:
    links = {
        name.replace("_", "-"): {"segment": "spine", "utilisation": {"mean": mean}}
        for name, mean in means.items()
    }
    return naive_reading(links, [name for name in links if name != "p1g1-p1"])


def test_the_naive_reading_knows_only_mean_utilisation_of_cables() -> None:
    assert _naive(leaf3_d1=0.7, leaf1_p1=0.2, p1g1_p1=0.99) == {
        "link": "leaf3-d1",
        "utilisation_mean": 0.7,
        "text": "leaf3-d1 is the busiest link, 70 % utilised.",
    }
    assert _naive(leaf3_d1=0.18, leaf1_p1=0.69, p1g1_p1=0.99) == {
        "link": None,
        "utilisation_mean": 0.69,
        "text": "no link is above 69 %: the network has room to spare.",
    }
    assert _naive(leaf3_d1=None)["text"] == "nothing: no link was sampled."
