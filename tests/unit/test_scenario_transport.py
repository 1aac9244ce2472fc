"""A scenario's RoCE keys, and what becomes of them in the plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import InputError
from testbed.lab.stages import landing_lines, stages_of
from testbed.plan.build import build_plan
from testbed.plan.codec import from_json, to_json
from testbed.plan.dilation import dilated
from testbed.plan.model import Plan
from testbed.run.roce import lanes_of, settings_of
from testbed.scenario import load_scenario
from traffic.roce.dcqcn import SETS, Parameters
from traffic.roce.geometry import wire_bytes


def plan(*overrides: str, clock: str = "virtual", base: str = "incast") -> Plan:
    scenario = load_scenario(base, ["transport.kind=roce", *overrides])
    return build_plan(scenario, seed=1, backend="uml", clock=clock)


def test_the_defaults_are_in_the_plan_and_survive_its_file() -> None:
    made = plan()
    own = made.transport.roce
    assert own is not None
    assert (own.mtu, own.operation, own.recovery, own.message_bytes) == (4096, "write", "go-back-n", 1 << 20)
    assert own.dcqcn == SETS["hpcc"].on(100_000_000_000)
    assert made.transport.congestion_control == "dcqcn hpcc"
    assert made.transport.tcp_congestion_control == "dctcp"
    assert from_json(to_json(made)) == made


def test_transfers_go_to_the_port_of_roce_and_count_its_headers() -> None:
    made = plan("workload.requests.kv_bytes=3mib")
    assert {transfer.dst_port for transfer in made.transfers} == {4791}
    wire = wire_bytes(3 << 20, 4096, 1 << 20, read=False)
    # 768 packets of 58 bytes of headers and ICRC, three RETH and one immediate.
    assert wire == (3 << 20) + 768 * (14 + 20 + 8 + 12 + 4) + 3 * 16 + 4
    assert {transfer.wire_bytes for transfer in made.transfers} == {wire}


def test_leaves_hash_the_ports_of_udp() -> None:
    assert plan().routing.hash_fields == ("ipv4_src", "ipv4_dst", "udp_src", "udp_dst")
    assert plan("routing.policy=polarised").routing.hash_fields == ("ipv4_dst", "udp_dst")
    assert plan("routing.hash_fields=[udp_src]").routing.hash_fields == ("udp_src",)


@pytest.mark.parametrize(("fabric", "payload"), [(9000, 4096), (4160, 4096), (4159, 2048), (1500, 1024)])
def test_auto_takes_the_largest_payload_that_fits(fabric: int, payload: int) -> None:
    own = plan(f"fabric.mtu={fabric}").transport.roce
    assert own is not None
    assert own.mtu == payload


def test_no_payload_fits_a_small_mtu() -> None:
    with pytest.raises(
        InputError,
        match=r"transport\.mtu: does not fit fabric\.mtu \(default auto\); fabric.mtu of 1088 or more",
    ):
        plan("fabric.mtu=1087")


def test_single_parameters_take_the_place_of_the_sets() -> None:
    own = plan("transport.dcqcn=paper", "transport.dcqcn_parameters.rate_timer=1ms").transport.roce
    assert own is not None
    assert own.dcqcn == Parameters(**{**vars(SETS["paper"].parameters), "rate_timer_ns": 1_000_000})


@pytest.mark.parametrize("word", ["off", "fixed"])
def test_off_has_no_parameters(word: str) -> None:
    own = plan(f"transport.dcqcn={word}").transport.roce
    assert own is not None
    assert own.dcqcn is None
    with pytest.raises(InputError, match=f"dcqcn_parameters: stands beside dcqcn {word}"):
        plan(f"transport.dcqcn={word}", "transport.dcqcn_parameters.g=0.5")


WRITTEN = """\
name: ports
extends: baseline
transport: {kind: roce}
workload:
  requests: null
  transfers:
    - {from: p1, to: d1, bytes: 1mib}
    - {from: p1, to: d1, bytes: 1mib, from_port: 20000}
    - {from: p1, to: d1, bytes: 1mib}
    - {from: p2, to: d1, bytes: 1mib, from_port: 59999}
expect: []
"""


def test_a_queue_pairs_port_may_be_given_and_the_others_take_what_is_free(tmp_path: Path) -> None:
    path = tmp_path / "ports.yaml"
    path.write_text(WRITTEN)
    made = build_plan(load_scenario(str(path)), seed=1, backend="uml", clock="virtual")
    assert [transfer.src_port for transfer in made.transfers] == [20_001, 20_000, 20_002, 59_999]


def test_a_slowed_lab_slows_timers_and_steps_and_keeps_bytes() -> None:
    made = plan("dilation=100", "transport.dcqcn=paper", clock="real")
    own, slow = made.transport.roce, dilated(made).transport.roce
    assert own is not None
    assert slow is not None
    assert own.dcqcn == SETS["paper"].parameters
    assert (slow.ack_timeout_ns, slow.tick_ns) == (400_000_000, 100_000)
    assert slow.dcqcn == Parameters(
        g=1 / 256, cnp_interval_ns=5_000_000, alpha_timer_ns=5_500_000, rate_timer_ns=5_500_000,
        byte_counter=10_000_000, additive_bps=400_000, hyper_bps=2_000_000, fast_recovery=5,
        min_rate_bps=400_000, cut_interval_ns=0,
    )  # fmt: skip


# ---- keys of the other kind ------------------------------------------------------------


def test_another_kind_takes_the_inherited_keys_away(tmp_path: Path) -> None:
    path = tmp_path / "roce.yaml"
    path.write_text("name: roce\nextends: incast\ntransport: {kind: roce, operation: read}\n")
    assert load_scenario(str(path)).transport.operation == "read"
    back = load_scenario(str(path), ["transport.kind=tcp"])
    assert (back.transport.kind, back.transport.congestion_control) == ("tcp", "dctcp")


def test_a_key_set_after_its_kind_is_refused() -> None:
    with pytest.raises(InputError, match="congestion_control: stands beside kind roce"):
        load_scenario("incast", ["transport.kind=roce", "transport.congestion_control=cubic"])


# ---- inside the lab --------------------------------------------------------------------


def test_the_traffic_program_gets_the_plans_settings() -> None:
    own = settings_of(plan("transport.operation=read", "transport.window=64kib"))
    assert (own.read, own.window_bytes, own.name) == (True, 65536, "dcqcn hpcc")


def test_a_source_shares_its_nic_and_its_rail_holds_packets_back_itself() -> None:
    made = plan("hosts.prefill.gpu_to_nic=40gbit", "hosts.gpus_per_host=2")
    assert made.topology.rail("p1", 1) is not None
    assert lanes_of(made, made.transfers[0]) == [("p1-leaf1", 100_000_000_000)]


def test_landings_are_told_apart_by_the_queue_pair() -> None:
    made = plan("hosts.decode.nic_to_gpu=40gbit", "hosts.gpus_per_host=2")
    lines = landing_lines(made.topology.nics["d1"], stages_of(made, "d1"), made)
    assert [line for line in lines if "u32" in line] == [
        f"filter add dev d1-landing parent 2: protocol ip prio 1 u32 match ip dport 4791 0xffff "
        f"match u8 0x{gpu:02x} 0xff at 33 classid 2:{gpu}"
        for gpu in (1, 2)
    ]
