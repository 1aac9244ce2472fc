"""Comparing captured answers of the lab with the plan; each wrong value is named with both values."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from testbed.errors import ReadbackError
from testbed.lab import readback
from testbed.lab.netlink import HtbClass
from testbed.lab.readback import (
    Item,
    by_device,
    class_texts,
    delay_items,
    equal,
    filter_texts,
    near,
    parse_rate,
    port_items,
    queue_items,
    rate_items,
    redirect_item,
    require,
    rule_items,
)
from tests.support.lab import FakeNetlink, captured, datagrams, small_plan, text

PLAN = small_plan()
QUEUES = {queue.link: queue for queue in PLAN.queues}
PORTS: list[str] = captured("tc-class-devices.json")
HOST_PORTS = ["leaf1-p1", "leaf1-p2", "leaf2-d1"]
INTERFACES: dict[str, int] = captured("interfaces.json")


class Tools:
    """Stands in for `run`: answers commands from a table, keeps what was run."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers = answers
        self.calls: list[tuple[str, str | None]] = []

    def __call__(self, command: list[str], *, stdin: str | None = None) -> str:
        line = " ".join(command)
        self.calls.append((line, stdin))
        return self.answers[line]


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Tools:
    tools = Tools({"tc -j -d qdisc show": text("tc-qdisc.json"), "tc -batch -": text("tc-class.txt")})
    monkeypatch.setattr(readback, "run", tools)
    monkeypatch.setattr(readback.socket, "if_nametoindex", INTERFACES.__getitem__)
    return tools


def answer_netlink(monkeypatch: pytest.MonkeyPatch, stem: str) -> None:
    monkeypatch.setattr(readback, "Netlink", lambda _protocol: FakeNetlink(datagrams(stem)))


def wrong(items: list[Item]) -> list[str]:
    return [f"{item.where} {item.what}: {item.found}, not {item.planned}" for item in items if not item.ok]


# ---- queues ---------------------------------------------------------------------------


def test_the_captured_lab_is_as_planned(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_netlink(monkeypatch, "class-dump")
    items = port_items([PLAN.topology.link(name) for name in PORTS], PLAN)
    assert wrong(items) == []
    assert len(items) == len(PORTS) * (7 + 7)
    assert [line for line, _ in tools.calls] == ["tc -j -d qdisc show", "tc -batch -"]


CHANGES: list[tuple[str, Any, str]] = [
    ("limit", 7_999_999, "limit: 7999999, not 8000000"),
    ("min", 100_001, "K_min: 100001, not 100000"),
    ("max", 400_001, "K_max: 400001, not 400000"),
    ("ecn", False, "marking instead of dropping: False, not True"),
    ("nodrop", False, "no early drop: False, not True"),
    ("ewma", 1, "EWMA weight exponent: 1, not 0"),
    ("probability", 0.1112, "marking probability: 0.1112, not 0.111111"),
    ("probability", None, "marking probability: nothing, not 0.111111"),
]


@pytest.mark.parametrize(("key", "value", "message"), CHANGES)
def test_a_wrong_value_of_a_queue(key: str, value: Any, message: str) -> None:
    kinds = copy.deepcopy(by_device(captured("tc-qdisc.json"))["leaf2-d1"])
    assert wrong(queue_items(QUEUES["leaf2-d1"], kinds)) == []
    kinds["red"]["options"][key] = value
    assert wrong(queue_items(QUEUES["leaf2-d1"], kinds)) == [f"leaf2-d1 {message}"]


def test_a_value_that_tc_does_not_print_is_wrong() -> None:
    kinds = copy.deepcopy(by_device(captured("tc-qdisc.json"))["leaf2-d1"])
    del kinds["red"]["options"]["nodrop"]
    assert wrong(queue_items(QUEUES["leaf2-d1"], kinds)) == ["leaf2-d1 no early drop: None, not True"]


@pytest.mark.parametrize(
    ("kinds", "found"), [({}, "nothing"), ({"htb": {}, "fq": {}}, "fq htb"), ({"bfifo": {}}, "bfifo")]
)
def test_a_port_without_its_queue(kinds: dict[str, Any], found: str) -> None:
    assert wrong(queue_items(QUEUES["leaf2-d1"], kinds)) == [f"leaf2-d1 queue: {found}, not red"]


def test_the_queue_of_a_host_only_has_a_limit() -> None:
    kinds = by_device(captured("tc-qdisc-host.json"))["d1-leaf2"]
    assert [(item.what, item.ok) for item in queue_items(QUEUES["d1-leaf2"], kinds)] == [("limit", True)]
    smaller = replace(QUEUES["d1-leaf2"], limit_bytes=7_000_000)
    assert wrong(queue_items(smaller, kinds)) == ["d1-leaf2 limit: 8000000, not 7000000"]


# ---- rates ----------------------------------------------------------------------------

LINE = "class htb 1:1 root leaf 10: prio 0 rate 100Gbit ceil 100Gbit burst 0b cburst 0b "
CLASS = HtbClass(12_500_000_000, 12_500_000_000, 64, 64, 4214)


@pytest.mark.parametrize(
    ("line", "rate_class", "message"),
    [
        (LINE.replace("rate 100G", "rate 99G"), CLASS, "rate: 9.9e+10, not 1e+11"),
        (LINE.replace("ceil 100G", "ceil 200G"), CLASS, "ceiling: 2e+11, not 1e+11"),
        (LINE, replace(CLASS, burst_ns=128), "burst in ns: 128, not 64"),
        (LINE, replace(CLASS, cburst_ns=0), "cburst in ns: 0, not 64"),
        (LINE, replace(CLASS, quantum_bytes=1514), "quantum: 1514, not 4214"),
    ],
)
def test_a_wrong_value_of_a_rate(line: str, rate_class: HtbClass, message: str) -> None:
    link = PLAN.topology.link("leaf2-d1")
    assert wrong(rate_items(link, LINE, [CLASS], PLAN)) == []
    assert wrong(rate_items(link, line, [rate_class], PLAN)) == [f"leaf2-d1 {message}"]


@pytest.mark.parametrize(
    ("line", "classes", "found"), [("", [], "0"), ("", [CLASS], "1"), (LINE, [CLASS, CLASS], "2")]
)
def test_a_port_without_one_rate_class(line: str, classes: list[HtbClass], found: str) -> None:
    link = PLAN.topology.link("leaf2-d1")
    message = f"leaf2-d1 rate class: {found}, not one htb class"
    assert wrong(rate_items(link, line, classes, PLAN)) == [message]


@pytest.mark.parametrize(
    ("printed", "rate_bps"),
    [("100Gbit", 1e11), ("2500Mbit", 2.5e9), ("9876Kbit", 9.876e6), ("1bit", 1), ("1.5Tbit", 1.5e12)],
)
def test_rates_as_tc_prints_them(printed: str, rate_bps: float) -> None:
    assert parse_rate(printed) == pytest.approx(rate_bps, rel=1e-15)


@pytest.mark.parametrize("printed", ["", "100", "100gbit", "Gbit", "100 Gbit/s"])
def test_a_rate_that_tc_does_not_print(printed: str) -> None:
    with pytest.raises(ValueError, match=f"^tc printed the rate {printed!r}$"):
        parse_rate(printed)


def test_class_texts_are_matched_to_their_devices_in_one_call(tools: Tools) -> None:
    lines = text("tc-class.txt").replace("100Gbit ceil", "1Gbit ceil", 1)
    tools.answers["tc -batch -"] = lines
    texts = class_texts(PORTS)
    assert list(texts) == PORTS
    assert [name for name, line in texts.items() if "rate 1Gbit" in line] == [PORTS[0]]
    assert tools.calls == [("tc -batch -", "".join(f"class show dev {name}\n" for name in PORTS))]


def test_where_a_device_has_no_class_each_is_asked_by_itself(tools: Tools) -> None:
    lines = text("tc-class.txt").splitlines(keepends=True)
    tools.answers["tc -batch -"] = "".join(lines[2:])
    tools.answers |= {f"tc class show dev {name}": f"answer for {name}" for name in PORTS}
    assert class_texts(PORTS) == {name: f"answer for {name}" for name in PORTS}


# ---- delays ---------------------------------------------------------------------------


def test_the_captured_delays_are_as_planned(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_netlink(monkeypatch, "first-dump")
    tools.answers["tc -batch -"] = text("tc-filter.txt")
    items = delay_items(PLAN)
    assert wrong(items) == []
    assert [item.where for item in items] == ["delay-near"] * 2 + ["delay-far"] * 2 + [*HOST_PORTS]
    further = small_plan("fabric.fabric_link.delay=2us")
    assert wrong(delay_items(further)) == ["delay-far delay in ns: 4000, not 6000"]
    assert wrong(delay_items(small_plan("fabric.loss=0.25"))) == [
        "delay-near loss: 0, not 0.25",
        "delay-far loss: 0, not 0.25",
    ]


def test_without_delay_nothing_is_asked(tools: Tools) -> None:
    assert delay_items(small_plan("fabric.host_link.delay=0us", "fabric.fabric_link.delay=0us")) == []
    assert tools.calls == []


WAYS = [("u32 match ip dst 10.0.2.0/24", "delay-near"), ("matchall", "delay-far")]
PLANNED = "0a000200/ffffff00 delay-near delay-far"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (("device delay-far", "device delay-near"), "0a000200/ffffff00 delay-near delay-near"),
        (("match 0a000200", "match 0a000300"), "0a000300/ffffff00 delay-near delay-far"),
        (("Redirect to device delay-far", "Mirror to device delay-far"), "0a000200/ffffff00 delay-near"),
    ],
)
def test_a_wrong_way_to_the_delay_stages(tools: Tools, change: tuple[str, str], found: str) -> None:
    tools.answers["tc -batch -"] = text("tc-filter.txt")
    shown = filter_texts(HOST_PORTS)["leaf2-d1"]
    host = PLAN.topology.nics["d1"]
    assert redirect_item(host, WAYS, shown).ok
    message = f"leaf2-d1 way to delay: {found}, not {PLANNED}"
    assert wrong([redirect_item(host, WAYS, shown.replace(*change))]) == [message]


def test_a_port_that_lost_its_filters_is_found(tools: Tools) -> None:
    whole = text("tc-filter.txt")
    second = whole.index("filter protocol ip pref 1 u32 chain 0 \n", 1)
    tools.answers["tc -batch -"] = whole[second:]
    tools.answers |= {f"tc filter show dev {name} ingress": "" for name in HOST_PORTS}
    texts = filter_texts(HOST_PORTS)
    assert texts == dict.fromkeys(HOST_PORTS, "")
    message = "leaf1-p1 way to delay: nothing, not 0a000100/ffffff00 delay-near delay-far"
    assert wrong([redirect_item(PLAN.topology.nics["p1"], WAYS, texts["leaf1-p1"])]) == [message]


# ---- hosts and switches ---------------------------------------------------------------


class Kernel:
    """Answers for d1's NIC as planned, but for what a test changes."""

    def __init__(self, limit: int = 8_000_000, **changes: int) -> None:
        self.limit, self.rate = limit, replace(CLASS, **changes)

    def htb_classes(self, _index: int) -> list[HtbClass]:
        return [self.rate]

    def fifo_limits(self, _index: int) -> dict[int, int]:
        return {0x100000: self.limit}

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("kernel", "segments", "found"),
    [
        (Kernel(), 1, []),
        (Kernel(), 65_535, ["gso_max_segs: 65535, not 1"]),
        (Kernel(), None, ["gso_max_segs: None, not 1"]),
        (Kernel(limit=1), 1, ["limit: 1, not 8000000"]),
        (
            Kernel(rate_bytes_per_s=1, ceil_bytes_per_s=2),
            1,
            ["rate in B/s: 1, not 12500000000", "ceiling in B/s: 2, not 12500000000"],
        ),
    ],
)
def test_a_nic(
    kernel: Kernel, segments: int | None, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readback, "Netlink", lambda _protocol: kernel)
    monkeypatch.setattr(readback.socket, "if_nametoindex", lambda _name: 7)
    monkeypatch.setattr(readback, "gso_max_segs", lambda _netlink, index: segments if index == 7 else 0)
    monkeypatch.setattr(readback, "offloads", lambda _device: {"tso": False})
    items = readback.nic_items(PLAN.topology.nics["d1"], PLAN)
    assert wrong(items) == [f"d1-leaf2 {text}" for text in found]
    assert [item.what for item in items] == [
        "rate in B/s", "ceiling in B/s", "burst in ns", "cburst in ns", "quantum", "limit",
        "tso", "gso_max_segs",
    ]  # fmt: skip


def test_an_offload_that_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readback, "offloads", lambda _device: {"tso": False, "gso": True, "gro": False})
    assert wrong(readback.offload_items("leaf2-d1")) == ["leaf2-d1 gso: True, not False"]


def test_rules_of_a_real_switch() -> None:
    flows, groups = text("flows-leaf1.txt"), text("groups-leaf1.txt")
    assert wrong(rule_items("leaf1", (1, 5), flows, groups)) == []
    assert wrong(rule_items("leaf1", (2, 6), flows, groups)) == [
        "leaf1 groups: 1, not 2",
        "leaf1 rules: 5, not 6",
        "leaf1 groups with an explicit hash: 1, not 2",
    ]
    implicit = groups.replace("selection_method=hash,", "")
    assert wrong(rule_items("leaf1", (1, 5), flows, implicit)) == [
        "leaf1 groups with an explicit hash: 0, not 1"
    ]


# ---- items ----------------------------------------------------------------------------


def test_a_tolerance_is_relative_and_includes_its_edge() -> None:
    assert near("x", "y", 1000.0, 1001.0, 0.001).ok
    assert near("x", "y", 1000.0, 999.0, 0.001).ok
    assert not near("x", "y", 1000.0, 1001.1, 0.001).ok


def test_what_was_read_is_returned_when_all_of_it_is_right() -> None:
    assert require([equal("leaf1", "groups", 1, 1)]) == [
        {"where": "leaf1", "what": "groups", "planned": "1", "found": "1", "ok": True}
    ]


def test_one_difference_is_an_error_with_both_values() -> None:
    items = [equal("leaf1", "groups", 1, 1), equal("leaf1", "rules", 5, 4)]
    with pytest.raises(ReadbackError, match=r"^leaf1: rules is 4, the plan says 5$"):
        require(items)


def test_more_differences_are_counted() -> None:
    items = [equal("leaf1", "rules", 5, 4), equal("leaf2", "rules", 5, 4), equal("spine1", "rules", 5, 4)]
    with pytest.raises(ReadbackError) as caught:
        require(items)
    assert str(caught.value) == "leaf1: rules is 4, the plan says 5 (and 2 more differences)"
