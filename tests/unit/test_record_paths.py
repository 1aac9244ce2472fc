"""The paths of transfers, pieced together from the datapath's flows."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from testbed.record.paths import Megaflow, measured_paths, parse_flows
from tests.support.synthetic import datapath_flows, hot_spine, incast

DUMP = (Path(__file__).parents[1] / "data" / "record" / "datapath-flows.txt").read_text()
CASE = incast()
WHOLE = ("p1-leaf1", "leaf1-spine2", "spine2-leaf3", "leaf3-d1")


def test_an_exact_flow_is_parsed_to_value_mask_bytes_and_output() -> None:
    assert parse_flows(DUMP)[0] == Megaflow(
        in_port="leaf1-p1",
        value=(0x0A000101, 0x0A000301, 6, 20000, 10000),
        mask=(0xFFFFFFFF, 0xFFFFFFFF, 0xFF, 0xFFFF, 0xFFFF),
        bytes=67108864,
        outputs=("leaf1-spine2",),
    )


def test_masks_are_read_in_dotted_decimal_and_hexadecimal() -> None:
    assert [flow.mask for flow in parse_flows(DUMP)[1:3]] == [
        (0, 0xFFFFFF00, 0, 0, 0),
        (0xFFFF0000, 0xFFFFFFFF, 0xFF, 0, 0xFFFF),
    ]


def test_actions_on_the_packet_are_no_outputs() -> None:
    assert parse_flows(DUMP)[1].outputs == ("spine2-leaf3",)


def test_arp_and_recirculated_flows_are_left_out() -> None:
    assert [flow.in_port for flow in parse_flows(DUMP)] == [
        "leaf1-p1",
        "spine2-leaf1",
        "leaf3-spine2",
        "leaf3-d1",
    ]


def test_a_path_goes_through_exact_and_wildcarded_flows() -> None:
    assert measured_paths(DUMP, CASE.plan)[0] == WHOLE


def test_a_transfer_without_flows_has_no_path() -> None:
    assert measured_paths(DUMP, CASE.plan)[1] is None


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_a_path_with_a_hole_is_no_path(cut: int) -> None:
    lines = DUMP.splitlines()
    del lines[cut]
    assert measured_paths("\n".join(lines), CASE.plan)[0] is None


def test_every_path_of_the_toy_runs_is_found_again() -> None:
    for case in (CASE, hot_spine()):
        found = measured_paths(datapath_flows(case), case.plan)
        assert found == dict(enumerate(case.paths))


def _with_second_output(carried: int) -> str:
    first = DUMP.splitlines()[0]
    other = first.replace("tos=0/0", "tos=0/0x3").replace("bytes:67108864", f"bytes:{carried}")
    return DUMP + other.replace("actions:leaf1-spine2", "actions:leaf1-spine1") + "\n"


def test_the_data_decides_where_the_first_packet_went_another_way() -> None:
    assert measured_paths(_with_second_output(74), CASE.plan)[0] == WHOLE


def test_a_transfer_that_changed_its_path_has_no_single_one() -> None:
    assert measured_paths(_with_second_output(30_000_000), CASE.plan)[0] is None


@pytest.mark.parametrize(
    "actions", ["drop", "userspace(pid=0,slow_path(match))", "leaf1-spine2,leaf1-spine1"]
)
def test_a_flow_without_exactly_one_output_ends_the_path(actions: str) -> None:
    text = DUMP.replace("actions:leaf1-spine2", f"actions:{actions}", 1)
    assert measured_paths(text, CASE.plan)[0] is None


def test_flows_that_go_in_a_circle_are_no_path() -> None:
    text = DUMP.replace("spine2-leaf3\n", "spine2-leaf1\n").replace(
        "in_port(leaf3-spine2)", "in_port(leaf1-spine2)"
    )
    text = text.replace("actions:leaf3-d1", "actions:leaf1-spine2")
    assert measured_paths(text, CASE.plan)[0] is None


def test_a_port_of_another_switch_ends_the_path() -> None:
    text = DUMP.replace("actions:leaf1-spine2", "actions:leaf2-spine2", 1)
    text = text.replace("in_port(spine2-leaf1)", "in_port(spine2-leaf2)")  # where that port would lead
    assert measured_paths(text, CASE.plan)[0] is None


@pytest.mark.parametrize(
    "line",
    [
        "in_port(" * 100_000,
        "ipv4(" * 100_000 + "in_port(a) actions:x",
        "in_port(a) ipv4() actions:x " + "tcp(" * 100_000,
        "in_port(a) ipv4() actions:" + "a" * 100_000,
        "in_port(a) ipv4() actions:" + "a(" * 100_000,
        "in_port(a) ipv4() actions:x(" + "(a)" * 100_000,
        "in_port(a) ipv4() actions:" + "a(b(c(" * 50_000,
    ],
    ids=lambda line: line[-30:],
)
def test_no_line_takes_longer_than_its_length(line: str) -> None:
    started = time.process_time()
    parse_flows(line)
    assert time.process_time() - started < 2  # 36 s for a fifth of the first, were each place tried anew
