"""GPUs in the plan: who sends from which, the ports they have, the queues of their stages, and dilation."""

from __future__ import annotations

from testbed.plan.build import build_plan
from testbed.plan.codec import from_json, to_json
from testbed.plan.dilation import dilated
from testbed.plan.model import Plan, Queue
from testbed.scenario import load_scenario

GBIT = 1_000_000_000


def plan_of(*overrides: str, clock: str = "virtual") -> Plan:
    return build_plan(load_scenario("incast", overrides), seed=1, backend="uml", clock=clock)


def ends(plan: Plan) -> list[tuple[str, int, str, int]]:
    return [(item.src, item.src_gpu, item.dst, item.dst_gpu) for item in plan.transfers]


def listed(*transfers: str) -> tuple[str, str]:
    return "workload.requests=null", f"workload.transfers=[{', '.join(transfers)}]"


# ---- which GPU ------------------------------------------------------------------------


def test_one_gpu_is_the_first() -> None:
    assert {(item.src_gpu, item.dst_gpu, item.dst_port) for item in plan_of().transfers} == {(1, 1, 5_000)}


def test_a_hosts_gpus_send_and_receive_in_turn() -> None:
    sets = ("hosts.gpus_per_host=2", "hosts.prefill.count=3", "hosts.decode.count=2")
    assert ends(plan_of(*sets, "workload.requests.count=7")) == [
        ("p1", 1, "d1", 1),
        ("p2", 1, "d2", 1),
        ("p3", 1, "d1", 2),
        ("p1", 2, "d2", 2),
        ("p2", 2, "d1", 1),
        ("p3", 2, "d2", 1),
        ("p1", 1, "d1", 2),
    ]


def test_a_gpu_that_is_written_is_taken_and_the_turn_goes_on() -> None:
    written = listed(
        "{from: p1, to: d1, bytes: 1mib, from_gpu: 3, to_gpu: 2}",
        "{from: p1, to: d1, bytes: 1mib}",
        "{from: p1, to: d1, bytes: 1mib, to_gpu: 4}",
    )
    assert ends(plan_of("hosts.gpus_per_host=4", *written)) == [
        ("p1", 3, "d1", 2),
        ("p1", 2, "d1", 2),
        ("p1", 3, "d1", 4),
    ]


def test_a_receiving_gpu_is_a_port_and_a_sending_one_is_not() -> None:
    plan = plan_of("hosts.gpus_per_host=4", "hosts.prefill.count=2", "workload.requests.count=6")
    assert [(item.src_port, item.dst_port, item.dst_gpu) for item in plan.transfers] == [
        (20_000, 5_000, 1),
        (20_000, 5_001, 2),
        (20_001, 5_002, 3),
        (20_001, 5_003, 4),
        (20_002, 5_000, 1),
        (20_002, 5_001, 2),
    ]


def test_sixteen_gpus_stay_below_the_ports_of_background_flows() -> None:
    plan = plan_of("hosts.gpus_per_host=16", "workload.requests.count=16")
    assert max(item.dst_port for item in plan.transfers) == 5_015


# ---- ideal times ----------------------------------------------------------------------


def test_a_stage_is_time_lost_and_no_part_of_the_ideal() -> None:
    fast, slow = plan_of(), plan_of("hosts.prefill.gpu_to_nic=10gbit", "hosts.decode.nic_to_gpu=10gbit")
    assert slow.transfers == fast.transfers
    assert slow.ideal_last_end_ns == fast.ideal_last_end_ns


# ---- queues ---------------------------------------------------------------------------


def test_every_stage_has_a_queue_that_only_shapes() -> None:
    plan = plan_of(
        "hosts.gpus_per_host=2",
        "hosts.prefill.count=1",
        "hosts.prefill.gpu_to_nic=40gbit",
        "hosts.decode.nic_to_gpu=host-bounce",
        "hosts.decode.block_cost=5us",
        "hosts.decode.buffer=1mb",
    )
    names = [link.name for link in plan.topology.all_links]
    assert [queue.link for queue in plan.queues] == names
    assert names[-3:] == ["p1g1-p1", "p1g2-p1", "d1-d1mem"]
    assert plan.queues[-3:] == (
        Queue("p1g1-p1", 8_000_000, 8_000_000, 1.0, 8_000_000, None, False),
        Queue("p1g2-p1", 8_000_000, 8_000_000, 1.0, 8_000_000, None, False),
        Queue("d1-d1mem", 1_000_000, 1_000_000, 1.0, 1_000_000, None, False),
    )


def test_a_slow_landing_of_one_host_has_the_same_buffer() -> None:
    plan = plan_of("hosts.slow_rails=[{host: d1, rate: 10gbit}]", "hosts.decode.buffer=64kb")
    assert plan.queues[-1] == Queue("d1-d1g1", 64_000, 64_000, 1.0, 64_000, None, False)


# ---- latency and dilation -------------------------------------------------------------

STAGED = (
    *("hosts.prefill.count=1", "hosts.prefill.gpu_to_nic=40gbit", "hosts.prefill.latency=3us"),
    *("hosts.decode.nic_to_gpu=25gbit", "hosts.decode.latency=7us", "dilation=100"),
)


def test_latencies_stand_in_the_stages() -> None:
    plan = plan_of(*STAGED, clock="real")
    assert {stage.name: (stage.rate_bps, stage.delay_ns) for stage in plan.topology.stages} == {
        "p1g1-p1": (40 * GBIT, 3_000),
        "d1-d1g1": (25 * GBIT, 7_000),
    }


def test_dilation_slows_the_stages_and_keeps_their_buffers() -> None:
    plan = plan_of(*STAGED, clock="real")
    slowed = dilated(plan)
    assert {stage.name: (stage.rate_bps, stage.delay_ns) for stage in slowed.topology.stages} == {
        "p1g1-p1": (400_000_000, 300_000),
        "d1-d1g1": (250_000_000, 700_000),
    }
    assert slowed.queues == plan.queues
    assert ends(slowed) == ends(plan)


def test_a_plan_with_stages_survives_its_file() -> None:
    plan = plan_of(*STAGED[:-1], "hosts.gpus_per_host=3")
    assert from_json(to_json(plan)) == plan
    assert len(plan.topology.stages) == 6
