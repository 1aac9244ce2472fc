"""Requests through prefill, hand-over and decoding in the lab, against arithmetic.

On an idle network a hand-over takes what its bytes take at the rate, whoever begins it. The tolerance of 2 %
holds what the arithmetic leaves out: a whole packet at each hop, the first round trips, and the shaper, which
counts a packet's time in whole nanoseconds. Bytes are those of llama-3.1-8b: 131,072 B a token in 32 layers.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from testbed.analysis.requests import PARTS
from testbed.record import layout
from tests.support.command import MIB, ONE_LEAF, Run, run, small, wire_bytes

SHARE = 0.02
RATE_BPS = 10_000_000_000
TOKEN_BYTES = 131_072
LAYERS = 32
DELAY_NS = 2_000
EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.yaml"))
TRACE = Path(__file__).parents[1] / "data" / "traces" / "mooncake.jsonl"
SLOW = [*ONE_LEAF, "fabric.host_link.rate=10gbit", "workload.model=llama-3.1-8b"]


def transfer_ns(payload_bytes: int, rate_bps: float = RATE_BPS) -> float:
    return wire_bytes(payload_bytes, 4200) * 8e9 / rate_bps


def request_rows(done: Run) -> list[dict[str, str]]:
    with (done.out / layout.REQUESTS_TABLE).open(newline="") as file:
        return list(csv.DictReader(file))


def in_ns(row: dict[str, str], *names: str) -> int:
    return sum(round(float(row[f"{name}_ms"]) * 1e6) for name in names)


def assert_the_parts_add_up(rows: list[dict[str, str]]) -> None:
    assert rows
    assert [in_ns(row, *PARTS) for row in rows] == [in_ns(row, "ttft") for row in rows]


@pytest.mark.parametrize("tokens_per_second", [6_400, 25_600], ids=["prefill-bound", "network-bound"])
def test_layers_hide_behind_prefill_as_far_as_arithmetic_allows(
    tmp_path: Path, tokens_per_second: int
) -> None:
    size = 16 * MIB
    serving = ["workload.connector=splitwise", f"workload.prefill.tokens_per_second={tokens_per_second}"]
    requests = ["workload.requests.count=1", "workload.requests.kv_bytes=16mib", "hosts.prefill.count=1"]
    done = small(tmp_path, *SLOW, *serving, *requests)
    transfer, prefill = transfer_ns(size), size / TOKEN_BYTES / tokens_per_second * 1e9
    exposed = max(transfer / LAYERS, transfer - prefill * (LAYERS - 1) / LAYERS)
    (row,) = request_rows(done)
    assert in_ns(row, "prefill") == round(prefill)
    assert in_ns(row, "transfer", "landing") == pytest.approx(exposed + DELAY_NS, rel=SHARE)
    assert done.summary["verdict"]["segment"] is None
    assert done.summary["fidelity"]["reasons"] == []
    assert_the_parts_add_up([row])


def test_descriptors_that_cost_more_than_the_wire_set_the_pace(tmp_path: Path) -> None:
    # 8 KiB in 16 us: 0.5 GB/s, what vLLM's small blocks were seen to reach on a network of 50.
    connector = "workload.connector={preset: vllm-nixl, unit: 8kib, descriptor_cost: 16us, per_layer: false}"
    clients = "{kind: closed-loop, count: 4, clients: 2, think: 3ms, kv_bytes: 4mib, output_tokens: 2}"
    sets = [*SLOW, connector, f"workload.requests={clients}", "workload.decode.step=1ms"]
    done = small(tmp_path, *sets)
    rows = request_rows(done)
    paced = 4 * MIB / 8192 * 16_000 + 2 * DELAY_NS
    assert [in_ns(row, "transfer") for row in rows] == pytest.approx([paced] * 4, rel=SHARE)
    assert done.summary["verdict"]["segment"] is None
    assert done.summary["requests"]["slowdown"]["p99"] == pytest.approx(1, abs=SHARE)
    # A client's next request comes 3 ms after the last step of its answer, two steps of a batch.
    for earlier, later in ((rows[0], rows[2]), (rows[1], rows[3])):
        ended = in_ns(earlier, "arrival", "transfer", "admission") + 2_000_000
        assert in_ns(later, "arrival") == ended + 3_000_000
    assert {row["decode_host"] for row in rows} == {"d1"}
    assert_the_parts_add_up(rows)


TRACED = """\
name: traced
fabric: {leaves: 4, spines: 2, hosts_per_leaf: 4}
hosts:
  prefill: {count: 6, layout: spread}
  decode: {count: 4, layout: spread, leaves: [1, 2, 3, 4]}
  store: {count: 2}
workload:
  model: llama-3.1-8b
  connector: lmcache
  placement: cache-aware
  prefill: {tokens_per_second: 50000, policy: shortest-queue}
  decode: {step: 20ms, slots: 1}
  slo: {ttft: 200ms}
  requests: {kind: trace, format: mooncake, path: %s}
  scale: {bytes: 0.01, time: 0.005}
measure: {interval: 100us}
"""


def test_a_trace_by_way_of_stores_moves_no_block_twice(tmp_path: Path) -> None:
    (tmp_path / "traced.yaml").write_text(TRACED % TRACE)
    done = run(tmp_path / "record", tmp_path / "traced.yaml")
    rows, requests = request_rows(done), done.summary["requests"]
    assert done.summary["fidelity"]["reasons"] == []
    assert_the_parts_add_up(rows)
    # Row 3 of the trace is the beginning of row 1, which is there by then: nothing is moved for it.
    assert (rows[2]["decode_host"], rows[2]["bytes"], rows[2]["cached_blocks"]) == (
        rows[0]["decode_host"],
        "0",
        "2",
    )
    assert in_ns(rows[2], "transfer", "landing") == 0
    moved = [row for row in rows if row["bytes"] != "0"]
    assert requests["not_moved"] == len(rows) - len(moved) > 0
    # Each byte crosses the network twice, to a store and on to the decode host.
    ends = {(row["src"][0], row["dst"][0]) for row in done.rows}
    assert ends == {("p", "s"), ("s", "d")}
    assert (
        done.summary["transfers"]["bytes"]
        == 2 * requests["bytes"]
        == 2 * sum(int(row["bytes"]) for row in rows)
    )
    assert requests["scale"] == {"bytes": 0.01, "time": 0.005}
    assert requests["slo"]["ttft_ms"] == 1.0
    assert 0 < requests["exposed_share"] < 1


def test_placement_gains_nothing_where_prefill_decides(tmp_path: Path) -> None:
    p99 = {}
    for policy in ("round-robin", "network-aware"):
        done = run(tmp_path / policy, "placement-no-gain", sets=[f"workload.placement={policy}", "expect=[]"])
        assert done.summary["requests"]["placement"] == policy
        p99[policy] = done.summary["ttft_ms"]["p99"]
    assert p99["network-aware"] == pytest.approx(p99["round-robin"], rel=SHARE)


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_as_it_stands(path: Path, tmp_path: Path) -> None:
    done = run(tmp_path / "record", path)
    assert done.summary["fidelity"]["reasons"] == []
    assert done.summary["requests"]["completed"] == done.summary["requests"]["count"] > 0
    assert_the_parts_add_up(request_rows(done))
