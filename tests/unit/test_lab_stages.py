"""The stages inside hosts: their classes, who is led to which, windows, and what the kernel is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.lab import readback, stages
from testbed.lab.netlink import HtbClass, fifo_options, htb_options
from testbed.lab.qdiscs import rate_class
from testbed.lab.readback import stage_items
from testbed.lab.stages import (
    class_id,
    device_of,
    landing_lines,
    priority_of,
    queue_handle,
    stages_of,
    window_of,
)
from testbed.plan.model import Plan
from tests.support.lab import small_plan

RAILS = ("hosts.gpus_per_host=2", "hosts.prefill.gpu_to_nic=40gbit")
LANDINGS = ("hosts.gpus_per_host=2", "hosts.decode.nic_to_gpu=40gbit", "workload.requests.count=3")
SHARED = ("fabric.host_link.rate=200gbit", "hosts.decode.nic_to_gpu=host-bounce")


def names(plan: Plan, host: str) -> list[str]:
    return [stage.name for stage in stages_of(plan, host)]


# ---- which stage ----------------------------------------------------------------------


def test_a_host_has_its_own_stages_in_order() -> None:
    plan = small_plan(*RAILS, *LANDINGS)
    assert names(plan, "p1") == ["p1g1-p1", "p1g2-p1"]
    assert names(plan, "p2") == ["p2g1-p2", "p2g2-p2"]
    assert names(plan, "d1") == ["d1-d1g1", "d1-d1g2"]
    assert names(small_plan(), "p1") == []


def test_rails_stand_at_the_nic_and_landings_behind_it() -> None:
    plan = small_plan()
    assert device_of(plan.topology.nics["p2"]) == "p2-leaf1"
    assert device_of(plan.topology.nics["d1"]) == "d1-landing"


def test_classes_and_queues_are_numbered_alike_and_meet_no_other() -> None:
    assert [class_id(0), class_id(1), class_id(15)] == [0x20001, 0x20002, 0x20010]
    assert [queue_handle(0), queue_handle(15)] == [0x200000, 0x2F0000]


def test_a_sender_has_the_priority_of_its_gpus_class() -> None:
    plan = small_plan(*RAILS, "workload.requests.count=4")
    found = [(item.src, item.src_gpu, priority_of(plan, item)) for item in plan.transfers]
    assert found == [("p1", 1, 0x20001), ("p2", 1, 0x20001), ("p1", 2, 0x20002), ("p2", 2, 0x20002)]


def test_who_has_no_stage_has_no_priority() -> None:
    one_slow = "hosts.slow_rails=[{host: p2, gpu: 2, rate: 10gbit}]"
    plan = small_plan("hosts.gpus_per_host=2", one_slow, "workload.requests.count=4")
    assert [priority_of(plan, item) for item in plan.transfers] == [0, 0, 0, 0x20001]
    assert {priority_of(small_plan(), item) for item in small_plan().transfers} == {0}


def test_gpus_that_share_have_one_priority() -> None:
    plan = small_plan(
        "fabric.host_link.rate=200gbit", "hosts.gpus_per_host=2", "hosts.prefill.gpu_to_nic=host-bounce"
    )
    assert {priority_of(plan, item) for item in plan.transfers} == {0x20001}


# ---- rate and window ------------------------------------------------------------------


def test_a_stages_class_has_its_rate_and_the_clocks_bucket() -> None:
    plan = small_plan(*RAILS)
    assert rate_class(plan.topology.link("p1g2-p1"), plan) == HtbClass(
        5_000_000_000, 5_000_000_000, 64, 64, 4214
    )
    real = small_plan("hosts.prefill.gpu_to_nic=0.8gbit", clock="real")
    # 4214 B at 0.8 Gbit/s are 42140 ns; two of them in ticks of 64 ns.
    assert rate_class(real.topology.link("p1g1-p1"), real).burst_ns == 84_288


@pytest.mark.parametrize(
    ("buffer", "window"),
    [
        ("16kb", 3 * 4148),  # three frames of 4214 B
        ("42140b", 10 * 4148),
        ("42139b", 9 * 4148),
        ("4mb", 949 * 4148),
    ],
)
def test_a_receiver_offers_what_its_buffer_holds(buffer: str, window: int) -> None:
    plan = small_plan("hosts.decode.nic_to_gpu=40gbit", f"hosts.decode.buffer={buffer}")
    assert {window_of(plan, item) for item in plan.transfers} == {window}


def test_without_a_landing_any_window_is_offered() -> None:
    plan = small_plan("hosts.decode.buffer=16kb")
    assert {window_of(plan, item) for item in plan.transfers} == {0}


# ---- the way into a landing -----------------------------------------------------------


def test_each_port_is_led_to_its_gpus_class() -> None:
    plan = small_plan(*LANDINGS)
    assert landing_lines(plan.topology.nics["d1"], stages_of(plan, "d1"), plan) == [
        "qdisc add dev d1-leaf2 clsact",
        "filter add dev d1-leaf2 ingress protocol ip prio 1 matchall "
        "action mirred egress redirect dev d1-landing",
        "filter add dev d1-landing parent 2: protocol ip prio 1 u32 match ip dport 5000 0xffff classid 2:1",
        "filter add dev d1-landing parent 2: protocol ip prio 1 u32 match ip dport 5001 0xffff classid 2:2",
    ]


def test_ports_of_gpus_that_share_meet_in_one_class() -> None:
    plan = small_plan(*SHARED, "hosts.gpus_per_host=2", "workload.requests.count=2")
    lines = landing_lines(plan.topology.nics["d1"], stages_of(plan, "d1"), plan)
    assert [line.split("match ")[1] for line in lines[2:]] == [
        "ip dport 5000 0xffff classid 2:1",
        "ip dport 5001 0xffff classid 2:1",
    ]


def test_the_port_of_a_fast_gpu_is_led_nowhere() -> None:
    slow = "hosts.slow_rails=[{host: d1, gpu: 2, rate: 10gbit}]"
    plan = small_plan("hosts.gpus_per_host=2", slow, "workload.requests.count=2")
    lines = landing_lines(plan.topology.nics["d1"], stages_of(plan, "d1"), plan)
    assert [line.split("match ")[1] for line in lines[2:]] == ["ip dport 5001 0xffff classid 2:1"]


# ---- what is sent ---------------------------------------------------------------------


class Kernel:
    """Keeps what is asked of it, and answers with the classes it was given."""

    def __init__(self, *classes: HtbClass, buffers: dict[int, int] | None = None) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.classes = list(classes)
        self.buffers = buffers or {}

    def add_qdisc(self, index: int, handle: int, parent: int, kind: str, options: bytes) -> None:
        self.asked.append(("qdisc", index, hex(handle), hex(parent), kind, options))

    def add_class(self, index: int, handle: int, parent: int, kind: str, options: bytes) -> None:
        self.asked.append(("class", index, hex(handle), hex(parent), kind, options))

    def htb_classes(self, _index: int) -> list[HtbClass]:
        return self.classes

    def fifo_limits(self, _index: int) -> dict[int, int]:
        return self.buffers

    def close(self) -> None:
        pass


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    made: list[tuple[str, str]] = []
    monkeypatch.setattr(stages, "run", lambda command, *, stdin: made.append((" ".join(command), stdin)))
    monkeypatch.setattr(stages.socket, "if_nametoindex", len)
    return made


def built(plan: Plan, names: list[str], parent: str, device: int) -> list[tuple[Any, ...]]:
    """What stages of 40 Gbit/s with these names are built of."""
    limits = {queue.link: queue.limit_bytes for queue in plan.queues}
    rate = HtbClass(5_000_000_000, 5_000_000_000, 64, 64, 4214).options()
    asked: list[tuple[Any, ...]] = [("qdisc", device, "0x20000", parent, "htb", htb_options(default_class=0))]
    for number, name in enumerate(names):
        own = hex(0x20001 + number)
        asked.append(("class", device, own, "0x20000", "htb", rate))
        queue = fifo_options(limits[name])
        asked.append(("qdisc", device, hex((0x20 + number) << 16), own, "bfifo", queue))
    return asked


def test_rails_are_built_below_the_nics_rate(calls: list[tuple[str, str]]) -> None:
    plan, kernel = small_plan(*RAILS), Kernel()
    stages.build_rails(kernel, plan.topology.nics["p1"], 0x10001, plan)  # type: ignore[arg-type]
    assert kernel.asked == built(plan, ["p1g1-p1", "p1g2-p1"], "0x10001", len("p1-leaf1"))
    assert calls == []


def test_a_landing_is_built_on_a_device_of_its_own(calls: list[tuple[str, str]]) -> None:
    plan, kernel = small_plan(*LANDINGS, "hosts.decode.buffer=100kb"), Kernel()
    host = plan.topology.nics["d1"]
    stages.build_landing(kernel, host, plan)  # type: ignore[arg-type]
    assert kernel.asked == built(plan, ["d1-d1g1", "d1-d1g2"], "0xffffffff", len("d1-landing"))
    assert kernel.asked[2][-1] == fifo_options(100_000)
    lines = "\n".join(landing_lines(host, stages_of(plan, "d1"), plan)) + "\n"
    assert calls == [
        ("ip -batch -", "link add d1-landing type ifb\nlink set d1-landing up\n"),
        ("tc -batch -", lines),
    ]


# ---- read back ------------------------------------------------------------------------

BUFFERS = {0x200000: 4_000_000, 0x210000: 4_000_000}
FILTER = "action order 1: mirred (Egress Redirect to device d1-landing) stolen"
RIGHT = HtbClass(5_000_000_000, 5_000_000_000, 64, 64, 4214)
OTHER = HtbClass(5_000_000_001, 5_000_000_000, 64, 64, 4214)


def wrong(
    monkeypatch: pytest.MonkeyPatch, classes: tuple[HtbClass, ...], buffers: dict[int, int], shown: str
) -> list[str]:
    """The items of d1's landing that differ from the plan when the kernel answers so."""
    plan = small_plan(*LANDINGS)
    kernel = Kernel(*classes, buffers=buffers)
    monkeypatch.setattr(readback.socket, "if_nametoindex", lambda _name: 7)
    monkeypatch.setattr(readback, "run", lambda _command: shown)
    items = stage_items(kernel, plan.topology.nics["d1"], plan)  # type: ignore[arg-type]
    assert len(items) == 5
    return [f"{item.where} {item.what}: {item.found}, not {item.planned}" for item in items if not item.ok]


def test_a_landing_as_it_was_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong(monkeypatch, (RIGHT,), BUFFERS, FILTER) == []


@pytest.mark.parametrize(
    ("classes", "buffers", "shown", "found"),
    [
        (
            (OTHER,),
            BUFFERS,
            FILTER,
            ["d1-d1g1 rate class: False, not True", "d1-d1g2 rate class: False, not True"],
        ),
        (
            (RIGHT,),
            BUFFERS | {0x200000: 3_999_999},
            FILTER,
            ["d1-d1g1 buffer: 3999999, not 4000000"],
        ),
        ((RIGHT,), {0x200000: 4_000_000, 0x220000: 4_000_000}, FILTER, ["d1-d1g2 buffer: None, not 4000000"]),
        ((RIGHT,), BUFFERS, FILTER.replace("d1", "d2"), ["d1 way to the stages: False, not True"]),
        ((RIGHT,), BUFFERS, "", ["d1 way to the stages: False, not True"]),
    ],
)
def test_a_landing_that_differs(
    monkeypatch: pytest.MonkeyPatch,
    classes: tuple[HtbClass, ...],
    buffers: dict[int, int],
    shown: str,
    found: list[str],
) -> None:
    assert wrong(monkeypatch, classes, buffers, shown) == found
