"""The serving system in a plan: jobs, previews, isolated times, prefill profiles, releases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from testbed.errors import InputError
from testbed.plan.build import build_plan, wire_bytes
from testbed.plan.dilation import dilated
from testbed.plan.model import Plan
from testbed.plan.profile import at_rate, read_profile
from testbed.plan.releases import alone, alone_ns
from testbed.plan.served import landings, receivers, transfer_of_port
from testbed.scenario import load_scenario
from traffic.alone import exposed_ns, store_ns, stream_bps
from traffic.connectors import CONNECTORS, handover

SCENARIO = """\
name: served
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 8}
hosts: {prefill: {count: 2}, decode: {count: 2}}
workload:
  model: llama-3.1-8b
  connector: distserve
  prefill: {tokens_per_second: 100000}
  requests: {count: 4, kv_bytes: 64mib}
"""
KV_TOKENS = 512
"""64 MiB at 131,072 B a token."""


def planned(folder: Path, *sets: str, text: str = SCENARIO, clock: str = "virtual") -> Plan:
    (folder / "served.yaml").write_text(text)
    scenario = load_scenario(str(folder / "served.yaml"), sets)
    return build_plan(scenario, seed=1, backend="uml", clock=clock)


def test_a_request_in_bytes_is_prefilled_as_the_tokens_it_is_worth(tmp_path: Path) -> None:
    serving = planned(tmp_path).serving
    assert serving is not None
    assert {(job.prompt_tokens, job.prefill_ns) for job in serving.jobs} == {(KV_TOKENS, 5_120_000)}


def test_the_preview_queues_prefills_and_then_moves_them(tmp_path: Path) -> None:
    transfers = planned(tmp_path).transfers
    assert [(t.src, t.dst) for t in transfers] == [("p1", "d1"), ("p2", "d2"), ("p1", "d1"), ("p2", "d2")]
    assert [t.start_ns for t in transfers] == [5_120_000, 5_120_000, 10_240_000, 10_240_000]
    assert [t.src_port for t in transfers] == [20_000, 20_001, 20_002, 20_003]
    assert {t.request for t in transfers} == {0, 1, 2, 3}


def test_a_burst_of_bytes_by_itself_passes_through_no_serving_system(tmp_path: Path) -> None:
    plain = SCENARIO.replace("  connector: distserve\n  prefill: {tokens_per_second: 100000}\n", "")
    assert planned(tmp_path, text=plain).serving is None
    assert planned(tmp_path, "workload.decode.step=1ms", text=plain).serving is not None


def test_times_and_bytes_scale_each_by_its_factor(tmp_path: Path) -> None:
    sets = ["workload.scale.bytes=0.5", "workload.scale.time=0.25", "workload.slo.ttft=40ms"]
    serving = planned(tmp_path, *sets).serving
    assert serving is not None
    assert {(job.bytes, job.prefill_ns) for job in serving.jobs} == {(32 << 20, 1_280_000)}
    assert serving.slo_ttft_ns == 10_000_000


def test_nothing_scales_to_zero(tmp_path: Path) -> None:
    serving = planned(tmp_path, "workload.scale.bytes=0.000000001").serving
    assert serving is not None
    assert {job.bytes for job in serving.jobs} == {1}


def test_a_dilated_serving_system_is_slower_in_everything_but_bytes(tmp_path: Path) -> None:
    sets = [
        "dilation=10",
        "workload.connector=vllm-nixl",
        "workload.connector.unit_tokens=1",
        "workload.decode.step=1ms",
    ]
    plan = planned(tmp_path, *sets, clock="real")
    slow = dilated(plan).serving
    assert plan.serving is not None
    assert slow is not None
    assert plan.serving.handover.pace_bps > 0
    assert slow.handover.pace_bps == round(plan.serving.handover.pace_bps / 10)
    assert (slow.step_ns, slow.lead_ns) == (10_000_000, 20_000_000)
    assert slow.jobs[0] == replace(plan.serving.jobs[0], prefill_ns=51_200_000)


def test_posting_slower_than_the_nic_paces_a_stream_and_faster_does_not(tmp_path: Path) -> None:
    paces = []
    for tokens in (16, 1):
        plan = planned(tmp_path, "workload.connector=vllm-nixl", f"workload.connector.unit_tokens={tokens}")
        assert plan.serving is not None
        paces.append((plan.serving.handover.descriptor_bytes, plan.serving.handover.pace_bps))
    assert paces == [(65_536, 0), (4_096, 16_384_000_000)]


def test_a_host_never_drops_what_it_sends_itself(tmp_path: Path) -> None:
    plan = planned(tmp_path, "fabric.queue.limit=1mb")
    limits = {queue.link: queue.limit_bytes for queue in plan.queues}
    assert (limits["p1-leaf1"], limits["leaf1-p1"]) == (1_000_000_000, 1_000_000)


def test_a_word_stands_for_a_preset_wherever_it_is_written(tmp_path: Path) -> None:
    for sets in (["workload.connector=nixl"], ["workload.connector.preset=nixl"]):
        serving = planned(tmp_path, *sets, "workload.connector.in_flight=2").serving
        assert serving is not None
        assert (serving.scheme, serving.handover.window_bytes) == ("nixl", 2 * 256 * 131_072)


def test_more_transfers_than_there_are_ports(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"workload\.requests: are 80000 transfers, each .*; at most 40000: .*$"
    ):
        planned(tmp_path, "workload.requests.count=40000", "workload.connector.streams=2")


@pytest.mark.parametrize("block_tokens", [16, 512])
def test_a_prefix_cache_holds_its_bytes_in_blocks_of_the_trace(block_tokens: int, tmp_path: Path) -> None:
    (tmp_path / "trace").write_text(
        '{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [1]}\n'
    )
    requests = f"kind: trace, format: mooncake, path: {tmp_path}/trace, block_tokens: {block_tokens}"
    sets = ("workload.decode.prefix_cache=64mib", f"workload.requests={{{requests}}}")
    serving = planned(tmp_path, *sets).serving
    assert serving is not None
    assert serving.cache_blocks == KV_TOKENS // block_tokens


# ---- prefill profiles -----------------------------------------------------------------


def test_a_profile_is_straight_between_its_rows_and_beyond_them() -> None:
    profile = read_profile(["tokens,ms\n", "100,10\n", "200,30\n", "400,40\n"], "file")
    tokens = (0, 50, 100, 150, 200, 300, 400, 600)
    assert [profile.prefill_ns(n) / 1e6 for n in tokens] == [0, 0, 10, 20, 30, 35, 40, 50]


def test_no_tokens_take_no_time() -> None:
    assert read_profile(["tokens,ms\n", "100,10\n", "200,12\n"], "file").prefill_ns(0) == 0


def test_tokens_per_second() -> None:
    assert [at_rate(4000).prefill_ns(tokens) for tokens in (0, 1, 8000)] == [0, 250_000, 2_000_000_000]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["tokens,us"], "file:1: is no head of a prefill profile (found 'tokens,us'); write tokens,ms"),
        ([], "file:1: is no head of a prefill profile (found ''); write tokens,ms"),
        (["tokens,ms", "1,x"], "file:2: is not two numbers (found '1,x')"),
        (["tokens,ms", "1,2,3"], "file:2: is not two numbers (found '1,2,3')"),
        (["tokens,ms", "1,nan"], "file:2: is out of range (found '1,nan'); both are 0 to 1e9"),
        (["tokens,ms", "1,-2"], "file:2: is out of range (found '1,-2'); both are 0 to 1e9"),
        (["tokens,ms", "5,1", "5,2"], "file:3: tokens do not rise (found 5 after 5)"),
        (["tokens,ms", "5,1"], "file: has 1 rows; a line needs two"),
    ],
)
def test_what_is_no_profile(lines: list[str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_profile(lines, "file")
    assert str(caught.value) == message


# ---- alone ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("transfer", "prefill", "exposed"), [(80.0, 1000, 10.0), (80.0, 40, 45.0), (80.0, 0, 80.0), (8.0, 8, 1.0)]
)
def test_what_a_layered_transfer_exposes(transfer: float, prefill: int, exposed: float) -> None:
    assert exposed_ns(transfer, prefill, 8) == exposed
    assert exposed_ns(transfer, prefill, 1) == transfer


def test_two_hops_take_one_chunk_longer_than_one() -> None:
    assert store_ns(100.0, 1000, 250) == 125.0
    assert store_ns(100.0, 1000, 1000) == 200.0
    assert store_ns(100.0, 1000, 0) == 100.0


def test_a_stream_is_as_fast_as_its_path_its_descriptors_and_its_window() -> None:
    hand = handover(CONNECTORS["vllm-nixl"], token_bytes=1024, layers=1, flows=1)
    assert stream_bps(hand, 100e9, 0) == 16_384 * 8e9 / 2000
    assert stream_bps(replace(hand, pace_bps=0), 100e9, 0) == 100e9
    assert stream_bps(replace(hand, window_bytes=16_384), 100e9, 10_000) == 16_384 * 8e9 / 10_000


def test_bytes_that_may_leave_later_arrive_later() -> None:
    # Four quarters, each 25 ns on the wire, released every 40 ns: the last waits for its release.
    quarters = ((0, 25), (40, 50), (80, 75), (120, 100))
    assert alone_ns(quarters, 100, 100.0) == 145.0
    assert alone(quarters, 100, 100.0) == (
        [0.0, 0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1.0],
        [0.0, 25.0, 40.0, 65.0, 80.0, 105.0, 120.0, 145.0],
    )


def test_bytes_released_faster_than_the_wire_follow_each_other() -> None:
    assert alone_ns(((0, 25), (10, 50), (20, 100)), 100, 100.0) == 100.0
    assert alone((), 100, 100.0) == ([0.0, 1.0], [0.0, 100.0])


def test_wire_bytes_are_those_of_each_stream(tmp_path: Path) -> None:
    plan = planned(tmp_path, "workload.connector.streams=3")
    sizes = [transfer.bytes for transfer in plan.transfers[:3]]
    assert sorted(sizes, reverse=True) == sizes
    assert sum(sizes) == 64 << 20
    assert max(sizes) - min(sizes) <= 1
    assert [t.wire_bytes for t in plan.transfers[:3]] == [wire_bytes(size, 4200) for size in sizes]


def test_a_transfer_alone_takes_as_long_as_its_descriptors_to_post(tmp_path: Path) -> None:
    # 256 KiB a descriptor and 100 us to post one: 2.6 GB/s, where the network has 12.5.
    sets = ("workload.connector.unit=256kib", "workload.connector.descriptor_cost=100us")
    posted, plain = planned(tmp_path, *sets), planned(tmp_path)
    for slow, fast in zip(posted.transfers, plain.transfers, strict=True):
        assert fast.ideal_ns < 6_000_000 < slow.ideal_ns
        assert slow.ideal_ns == pytest.approx(64 * 4 * 100_000, abs=10_000)
    assert posted.ideal_last_end_ns > plain.ideal_last_end_ns + 8_000_000


def test_where_transfers_of_the_serving_engine_may_end(tmp_path: Path) -> None:
    gpus = ("hosts.gpus_per_host=2", "hosts.nics_per_host=2", "hosts.affinity=[2, 1]")
    plan = planned(tmp_path, *gpus)
    assert receivers(plan) == ("d1", "d2")
    assert landings(plan, "d1", 1) == [(5001, 2)]
    assert landings(plan, "d1", 2) == [(5000, 1)]
    assert landings(plan, "p1", 1) == []
    spread = planned(tmp_path, *gpus, "workload.connector=mooncake")
    assert landings(spread, "d2", 1) == [(5000, 1), (5001, 2)]  # each slice takes the NIC that is free
    assert [transfer_of_port(port) for port in (19_999, 20_000, 20_007)] == [None, 0, 7]
