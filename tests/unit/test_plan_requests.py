"""From a scenario to requests and transfers: sizes, totals against an independent count, files, errors."""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.analysis.workload import summarise_workload
from testbed.errors import InputError
from testbed.plan.build import build_plan
from testbed.plan.codec import from_json, to_json
from testbed.plan.model import Plan, Skipped, Workload
from testbed.plan.requests import kv_bytes_of, model_of, requests_of, scaled
from testbed.report.settings import setting_tables
from testbed.scenario import load_scenario
from testbed.scenario.dump import scenario_yaml
from testbed.terminal import plan_text
from traffic.kv import Model
from traffic.request import Request

DATA = Path(__file__).resolve().parents[1] / "data" / "traces"
S = 10**9
PER_TOKEN = 327_680  # llama-3.1-70b, the model of incast

NO_CACHE = "workload.decode.prefix_cache=0b"
TRACE = f"workload.requests={{kind: trace, path: {DATA}/mooncake.jsonl}}"


def plan_of(*overrides: str, seed: int = 1) -> Plan:
    scenario = load_scenario("incast", ("hosts.decode.count=2", NO_CACHE, *overrides))
    return build_plan(scenario, seed=seed, backend="uml", clock="virtual")


def requests(*overrides: str, seed: int = 1) -> list[Request]:
    return list(requests_of(load_scenario("incast", overrides), seed)[0])


def refusal(*overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        plan_of(*overrides)
    return str(caught.value)


# ---- a trace --------------------------------------------------------------------------


def test_a_request_becomes_a_transfer_of_its_kv_when_it_arrives() -> None:
    plan = plan_of(TRACE)
    found = [(item.src, item.dst, item.start_ns, item.bytes) for item in plan.transfers]
    assert found == [
        ("p1", "d1", 0, 1500 * PER_TOKEN),
        ("p2", "d2", 0, 700 * PER_TOKEN),
        ("p3", "d1", 3 * S, 1024 * PER_TOKEN),
        ("p4", "d2", 3 * S, 1 * PER_TOKEN),
        ("p5", "d1", 6 * S, 512 * PER_TOKEN),
        ("p6", "d2", 12 * S, 3000 * PER_TOKEN),
        ("p7", "d1", 12 * S, 3000 * PER_TOKEN),
    ]


def test_the_plan_tells_what_its_transfers_stand_for() -> None:
    plan = plan_of(TRACE, "workload.scale.bytes=1/1000")
    assert plan.workload == Workload(
        source="mooncake trace mooncake.jsonl",
        requests=7,
        prompt_tokens=9737,
        output_tokens=103,
        kv_bytes=9737 * PER_TOKEN,
        scale=0.001,
        first_ns=0,
        last_ns=12 * S,
        skipped=(Skipped("no output tokens (a failed request)", 1), Skipped("no prompt tokens", 1)),
    )
    assert from_json(to_json(plan)) == plan
    assert plan.transfers[3].bytes == 328  # 327.68, rounded
    text = plan_text(plan).replace("\N{NO-BREAK SPACE}", " ")
    for line in (
        "  requests    7 of mooncake trace mooncake.jsonl",
        "  arrivals    0 ns to 12 s",
        "  tokens      9,737 of prompts, 103 of answers",
        "  KV          3.19 GB in full",
        "  scaled      every transfer has 0.001 of its bytes, and at least one",
        "  not used    1 rows: no prompt tokens",
    ):
        assert line in text.splitlines()


def long_trace(path: Path) -> list[dict[str, Any]]:
    """A made-up trace of the conversation trace's size and shape: packed, 3 s ticks, shared beginnings."""
    rows = [
        {
            "timestamp": number // 10 * 3000,
            "input_length": (tokens := 1 + number * 7919 % 60_000),
            "output_length": number % 900,
            "hash_ids": list(range(-(-tokens // 512))),
        }
        for number in range(12_031)
    ]
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return rows


def test_totals_of_twelve_thousand_requests_equal_an_independent_count(tmp_path: Path) -> None:
    rows = [row for row in long_trace(tmp_path / "trace.jsonl.gz") if row["output_length"]]
    path = f"kind: trace, path: {tmp_path}/trace.jsonl.gz"
    stream, tally = requests_of(load_scenario("incast", (f"workload.requests={{{path}}}",)), 1)
    assert sum(1 for _ in stream) == tally.requests == len(rows)
    assert tally.prompt_tokens == sum(row["input_length"] for row in rows)
    assert tally.output_tokens == sum(row["output_length"] for row in rows)
    assert tally.kv_bytes == sum(2 * 80 * 8 * 128 * 2 * row["input_length"] for row in rows)
    assert tally.last_ns == max(row["timestamp"] for row in rows) * 10**6
    assert dict(tally.skipped) == {"no output tokens (a failed request)": 12_031 - len(rows)}
    # What of them is planned moves as much.
    plan = plan_of(f"workload.requests={{{path}, limit: 1000}}")
    assert plan.workload is not None
    assert sum(item.bytes for item in plan.transfers) == plan.workload.kv_bytes
    assert plan.workload.prompt_tokens == sum(row["input_length"] for row in rows[:1000])


def test_arrivals_are_told_as_they_are_scaled() -> None:
    plan = plan_of(TRACE, "workload.scale={bytes: 1/1000, time: 1/1000}")
    assert plan.workload is not None
    assert (plan.workload.first_ns, plan.workload.last_ns) == (0, 12_000_000)
    assert max(item.start_ns for item in plan.transfers) == 12_000_000


def test_totals_of_a_table_equal_an_independent_count() -> None:
    with (DATA / "azure-2023.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    plan = plan_of(f"workload.requests={{kind: trace, path: {DATA}/azure-2023.csv}}")
    assert plan.workload is not None
    assert plan.workload.requests == len(rows)
    assert plan.workload.prompt_tokens == sum(int(row["ContextTokens"]) for row in rows)
    assert plan.workload.output_tokens == sum(int(row["GeneratedTokens"]) for row in rows)


def test_window_speedup_limit_and_tick_reach_the_replay() -> None:
    base = f"kind: trace, path: {DATA}/mooncake.jsonl"
    assert [item.arrival_ns for item in requests(f"workload.requests={{{base}, window: 3s}}")] == [0, 0]
    later = requests(f"workload.requests={{{base}, window: {{from: 3s, to: 7s}}, speedup: 2}}")
    assert [item.arrival_ns for item in later] == [0, 0, 1_500_000_000]
    assert len(requests(f"workload.requests={{{base}, limit: 4}}")) == 4
    spread = [item.arrival_ns for item in requests(f"workload.requests={{{base}, tick: spread}}")]
    assert spread == sorted(spread)
    assert len(set(spread)) == 7
    assert spread[4] >= 6 * S
    again = [item.arrival_ns for item in requests(f"workload.requests={{{base}, tick: spread}}", seed=2)]
    assert again != spread


def test_blocks_and_units_that_are_declared_reach_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text('{"timestamp": 2.5, "input_length": 40, "output_length": 1, "hash_ids": [7, 8, 9]}\n' * 2)
    keys = f"kind: trace, path: {path}, block_tokens: 16, time_unit: s, format: mooncake"
    first = requests(f"workload.requests={{{keys}}}")[0]
    assert (first.prefix_blocks, first.block_tokens, first.tokens_after(2)) == ((7, 8, 9), 16, 8)


def test_matrices_become_transfers_between_their_ranks() -> None:
    hosts = ("hosts.prefill.count=1", "hosts.decode.count=1", "hosts.gpus_per_host=2")
    keys = (f"workload.requests={{kind: trace, path: {DATA}/nixl}}", "workload.model=null")
    scenario = load_scenario("incast", (*hosts, *keys))
    plan = build_plan(scenario, seed=1, backend="uml", clock="virtual")
    ends = [(item.src, item.src_gpu, item.dst, item.dst_gpu, item.bytes) for item in plan.transfers]
    first = [("p1", 1, "d1", 1, 2**20), ("p1", 2, "d1", 2, 1536)]
    assert ends == [*first, ("p1", 1, "d1", 2, 7), ("p1", 2, "d1", 1, 100), *first]
    assert [item.start_ns for item in plan.transfers] == [0, 0, 1_250_000_000, 1_250_000_000] + [
        3_250_000_000
    ] * 2
    assert plan.workload is not None
    assert plan.workload.skipped == (
        Skipped("a pattern of storage only", 1),
        Skipped("not from a prefill to a decode GPU", 2),
    )


def test_matrices_of_other_sizes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DATA)
    scenario = load_scenario("incast", ("workload.requests.kind=trace", "workload.requests.path=nixl"))
    with pytest.raises(InputError) as caught:
        build_plan(scenario, seed=1, backend="uml", clock="virtual")
    assert str(caught.value) == (
        "--set workload.requests.path=nixl: workload.requests.path: has matrices of 4 ranks (found nixl); "
        "the scenario's hosts have 8 prefill and 1 decode GPUs"
    )


def test_matrices_pass_through_no_serving_system() -> None:
    hosts = ("hosts.prefill.count=2", f"workload.requests={{kind: trace, path: {DATA}/nixl}}")
    with pytest.raises(InputError) as caught:
        plan_of(*hosts, "workload.decode.slots=3")
    assert str(caught.value).endswith(
        ": workload.decode: is not for matrices, whose transfers pass through no serving system; leave it out"
    )
    scenario = load_scenario("incast", (*hosts, "hosts.decode.count=2", "workload.placement=random"))
    with pytest.raises(InputError, match="workload.placement: is not for matrices"):
        build_plan(scenario, seed=1, backend="uml", clock="virtual")


# ---- generated ------------------------------------------------------------------------


def test_a_burst_draws_the_starts_it_always_drew() -> None:
    starts = [item.arrival_ns for item in requests("workload.requests.window=1ms")]
    assert starts == [
        *(134364, 255069, 449491, 495435),
        *(651592, 763774, 788723, 847433),
    ]


def test_tokens_and_a_model_make_the_size() -> None:
    keys = "kind: poisson, interval: 5ms, count: 3, prompt_tokens: 4096, output_tokens: {cdf: %s}"
    plan = plan_of(f"workload.requests={{{keys % (DATA / 'lengths.txt')}}}", "workload.dtype=fp8")
    assert [item.bytes for item in plan.transfers] == [4096 * PER_TOKEN // 2] * 3
    assert plan.workload is not None
    assert plan.workload.source == "poisson"
    assert plan.workload.prompt_tokens == 3 * 4096
    assert 300 <= plan.workload.output_tokens <= 3000


def test_lengths_do_not_change_the_arrivals() -> None:
    keys = "kind: gamma, interval: 1ms, cv: 2, count: 50, prompt_tokens:"
    fixed = requests(f"workload.requests={{{keys} 10}}")
    drawn = requests(f"workload.requests={{{keys} {{lognormal: {{median: 10}}}}}}")
    assert [item.arrival_ns for item in fixed] == [item.arrival_ns for item in drawn]
    assert len({item.prompt_tokens for item in drawn}) > 5
    assert drawn == requests(f"workload.requests={{{keys} {{lognormal: {{median: 10}}}}}}")
    assert drawn != requests(f"workload.requests={{{keys} {{lognormal: {{median: 10}}}}}}", seed=2)


def test_the_requests_of_a_closed_loop_wait_for_one_another() -> None:
    loop = "workload.requests={kind: closed-loop, clients: 2, think: 1ms, count: 5, prompt_tokens: 7}"
    assert [(item.id, item.arrival_ns, item.prompt_tokens) for item in requests(loop)] == [
        *((0, 0, 7), (1, 0, 7)),
        *((2, 1_000_000, 7), (3, 1_000_000, 7), (4, 1_000_000, 7)),
    ]


@pytest.mark.parametrize(
    ("kv_bytes", "factor", "expected"),
    [(1000, 1 / 1000, 1), (1499, 1 / 1000, 1), (1, 1e-9, 1), (0, 0.5, 0), (10**12, 1 / 3, 333_333_333_333)],
)
def test_scaling_leaves_at_least_a_byte_of_what_there_is(kv_bytes: int, factor: float, expected: int) -> None:
    assert scaled(kv_bytes, factor) == expected


def test_written_transfers_that_are_scaled_say_so() -> None:
    written = "workload.transfers=[{from: p1, to: d1, bytes: 3mb}]"
    scenario = load_scenario("incast", ("workload.requests=null", written, "workload.scale.bytes=1/2"))
    plan = build_plan(scenario, seed=1, backend="uml", clock="virtual")
    assert plan.workload == Workload("transfers", 1, 0, 0, 3_000_000, 0.5, 0, 0, ())


def test_what_needs_no_words_has_none() -> None:
    plan = build_plan(load_scenario("incast"), seed=1, backend="uml", clock="virtual")
    assert plan.workload is None
    assert '"workload"' not in to_json(plan)


# ---- models ---------------------------------------------------------------------------


def model(*overrides: str) -> Model | None:
    return model_of(load_scenario("incast", overrides))


def test_a_model_by_its_dimensions() -> None:
    assert model("workload.model={layers: 3, kv_heads: 4, head_dim: 5}") == Model(
        "own", 3, 4, 5, 0, 2, "the scenario"
    )
    assert model("workload.model={layers: 3, latent_dim: 7}") == Model("own", 3, 0, 0, 7, 2, "the scenario")


CONFIG_AT = ("workload", "model", "config")
CONFIG = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, "torch_dtype": "float32"}


def test_a_model_from_a_file_beside_the_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "scenarios" / "tiny"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    file = tmp_path / "scenarios" / "own.yaml"
    file.write_text("extends: incast\nname: own\nworkload: {model: {config: tiny/config.json}}\n")
    for start in (tmp_path, tmp_path / "scenarios", Path("/")):
        monkeypatch.chdir(start)
        found = model_of(load_scenario(str(file)))
        assert found is not None
        assert replace(found, source="") == Model("tiny", 2, 4, 16, 0, 4, "")
    # A scenario elsewhere that extends it still means the file beside the first one.
    other = tmp_path / "other.yaml"
    other.write_text("extends: scenarios/own.yaml\nname: other\n")
    monkeypatch.chdir(tmp_path)
    assert model_of(load_scenario("other.yaml")) is not None
    # And so does what a record keeps of it.
    (tmp_path / "kept.yaml").write_text(scenario_yaml(load_scenario("other.yaml")))
    monkeypatch.chdir("/")
    assert load_scenario(str(tmp_path / "kept.yaml")).file(CONFIG_AT) == folder / "config.json"


def test_a_path_on_the_command_line_starts_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)
    assert model("workload.model={config: config.json}") is not None
    set_model = "--set workload.model={config: none.json}"
    assert refusal(
        "workload.model={config: none.json}",
        "workload.requests.kv_bytes=null",
        "workload.requests.prompt_tokens=1",
    ) == (f"{set_model}: workload.model.config: cannot be read: No such file or directory (found none.json)")


def test_a_config_that_is_not_understood(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for text, wrong in (
        ("[]", "is no JSON object"),
        ('{"num_hidden_layers": 3}', "num_attention_heads is missing"),
        ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    ):
        path.write_text(text)
        with pytest.raises(InputError) as caught:
            model(f"workload.model={{config: {path}}}")
        assert str(caught.value) == f"{path}: is no config.json of a model that is understood: {wrong}"


def test_kv_that_is_given_goes_before_kv_that_is_computed() -> None:
    kv_bytes = kv_bytes_of(load_scenario("incast"))
    assert kv_bytes(Request(0, 0, 10, 1, 77)) == 77
    assert kv_bytes(Request(0, 0, 10, 1, None)) == 10 * PER_TOKEN


def test_ranks_that_do_not_fit_the_model() -> None:
    at = "--set workload.tensor_parallel.decode=3: workload.tensor_parallel.decode"
    assert refusal("workload.tensor_parallel.decode=3") == (
        f"{at}: does not fit the model: 3 ranks cannot share 8 KV heads evenly (found 3); "
        "a divisor or a multiple of the number of KV heads"
    )
    both = ("workload.model=deepseek-v3", "workload.tensor_parallel={prefill: 2, decode: 3}")
    assert refusal(*both) == (
        f"--set {both[1]}: workload.tensor_parallel.decode: fits prefill no whole number of times (found 3); "
        "a divisor or a multiple"
    )


# ---- errors of a trace ----------------------------------------------------------------


def test_errors_of_a_file_name_the_file_and_its_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 1, "input_length": 4, "output_length": 1}\n{"timestamp": 0}\n')
    assert refusal(f"workload.requests={{kind: trace, path: {path}}}") == (
        f"{path}:2: has no 'input_length'; a row has timestamp, input_length, output_length"
    )


def test_a_part_without_requests_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DATA)
    path = "mooncake.jsonl"
    window = "window: {from: 6500ms, to: 7s}"
    assert refusal(f"workload.requests={{kind: trace, path: {path}, {window}}}").endswith(
        f": workload.requests.path: has no request to replay (found {path}); another window or file"
    )
    failed = tmp_path / "failed.csv"
    failed.write_text("Timestamp,Request tokens,Response tokens\n1,5,0\n2,7,0\n3,0,0\n")
    assert refusal(f"workload.requests={{kind: trace, path: {failed}}}").endswith(
        "; another window or file; 2 rows with no output tokens (a failed request)"
        "; 1 rows with no prompt tokens"
    )


def test_a_clock_without_steps_cannot_be_spread() -> None:
    found = refusal(f"workload.requests={{kind: trace, path: {DATA}/azure-2023.csv, tick: spread}}")
    assert found.endswith(
        "workload.requests.tick: has nothing to spread: the clock of azure has no steps (found spread); as-is"
    )


def test_a_trace_whose_format_shows_needs_a_model_all_the_same() -> None:
    requests_key = f"workload.requests={{kind: trace, path: {DATA}/azure-2023.csv}}"
    assert refusal("workload.model=null", requests_key).endswith(
        "workload.model: is missing; it tells how large the KV of a prompt is"
    )


# ---- what is told of it ---------------------------------------------------------------


def test_the_summary_and_the_page_say_what_was_left_out_and_scaled() -> None:
    plan = plan_of(TRACE, "workload.scale.bytes=1/4")
    assert summarise_workload(plan) == {
        "workload": {
            "source": "mooncake trace mooncake.jsonl",
            "requests": 7,
            "prompt_tokens": 9737,
            "output_tokens": 103,
            "kv_bytes": 9737 * PER_TOKEN,
            "scale": 0.25,
            "skipped": {"no output tokens (a failed request)": 1, "no prompt tokens": 1},
        }
    }
    rows = next(table.rows for table in setting_tables(plan) if table.heading == "Workload")
    assert rows[0] == ("requests", "7 of mooncake trace mooncake.jsonl")
    assert ("scaled", "every transfer has 0.25 of its bytes, and at least one") in rows
    assert ("not used", "1 rows: no prompt tokens") in rows


def test_what_was_given_as_it_is_says_nothing() -> None:
    plan = build_plan(load_scenario("incast"), seed=1, backend="uml", clock="virtual")
    assert summarise_workload(plan) == {}
