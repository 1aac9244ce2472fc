"""Who has confirmed what."""

from __future__ import annotations

import pytest

from controller.errors import SwitchError
from controller.installation import Installation, ready_document
from controller.rules import Bucket, Group, Rule, SwitchRules

LEAF = SwitchRules(
    "leaf1", 1, (Group(1, (Bucket(1, 1),), ("ipv4_src",), 0),), (Rule(100, "10.0.0.0/8", group_id=1),)
)
SPINE = SwitchRules("spine1", 0x10001, (), ())


def installation() -> Installation:
    return Installation({1: LEAF, 0x10001: SPINE})


def test_it_is_complete_when_every_barrier_is_answered() -> None:
    s = installation()
    s.sent(1, [10, 11])
    assert [s.confirmed(1, 10), s.confirmed(1, 11)] == [False, False]
    assert s.missing() == "spine1 did not connect"
    s.sent(0x10001, [10])
    assert s.missing() == "spine1 did not confirm the rules"
    assert s.confirmed(0x10001, 10) is True
    assert s.complete
    assert s.missing() == ""


def test_a_reply_to_something_else_changes_nothing() -> None:
    s = installation()
    s.sent(1, [10])
    s.sent(0x10001, [])
    assert s.confirmed(1, 99) is False
    assert s.confirmed(7, 10) is False
    assert not s.complete


def test_a_switch_that_connects_again_has_to_confirm_again() -> None:
    s = installation()
    s.sent(1, [10])
    s.sent(0x10001, [20])
    s.confirmed(1, 10)
    assert s.confirmed(0x10001, 20) is True
    s.sent(1, [30])
    assert not s.complete
    assert s.confirmed(1, 10) is False, "a reply of the old connection"
    assert s.confirmed(1, 30) is True


def test_barriers_of_a_lost_connection_are_forgotten() -> None:
    s = installation()
    s.sent(0x10001, [])
    s.sent(1, [10])
    s.sent(1, [30])
    assert s.confirmed(1, 30) is True


def test_every_missing_switch_is_named() -> None:
    s = installation()
    assert s.missing() == "leaf1, spine1 did not connect"
    s.sent(1, [10])
    assert s.missing() == "spine1 did not connect; leaf1 did not confirm the rules"


def test_an_unknown_switch_is_refused() -> None:
    assert installation().rules_for(1) is LEAF
    with pytest.raises(SwitchError) as caught:
        installation().rules_for(0x99)
    assert str(caught.value) == (
        "a switch with the unknown dpid 0x99 connected; expected leaf1 (0x1), spine1 (0x10001)"
    )


def test_the_report_counts_groups_and_rules() -> None:
    assert ready_document(installation(), "os-ken", "4.2.0") == {
        "framework": "os-ken",
        "version": "4.2.0",
        "switches": {"1": {"groups": 1, "rules": 1}, "65537": {"groups": 0, "rules": 0}},
    }
