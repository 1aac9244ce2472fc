"""KV per token: every row of the table, the shards of tensor parallelism, and models from a config.json."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from testbed.scenario.workload_page import page
from traffic.kv import (
    MODELS,
    Model,
    bytes_per_token,
    model_from_config,
    moved_bytes_per_token,
    shard_bytes_per_token,
    shards,
)
from traffic.placement import PLACEMENTS
from traffic.traces import FORMATS

ROOT = Path(__file__).resolve().parents[2]

PER_TOKEN = {
    "llama-3.1-8b": 131_072,
    "llama-3.1-70b": 327_680,
    "llama-3.1-405b": 516_096,
    "qwen2.5-7b": 57_344,
    "qwen2.5-14b": 196_608,
    "qwen2.5-32b": 262_144,
    "qwen2.5-72b": 327_680,
    "qwen3-8b": 147_456,
    "qwen3-32b": 262_144,
    "qwen3-235b-a22b": 192_512,
    "mixtral-8x7b": 131_072,
    "mixtral-8x22b": 229_376,
    "gpt-oss-120b": 73_728,
    "deepseek-v3": 70_272,
    "deepseek-r1": 70_272,
}
"""Bytes in bf16, as published or computed elsewhere (kvbench, Mooncake, vLLM)."""


def test_every_model_has_its_published_size() -> None:
    assert {name: bytes_per_token(model) for name, model in MODELS.items()} == PER_TOKEN


def test_sizes_that_others_published() -> None:
    """Mooncake: 70B, 128k tokens, 40 GB; Qwen3-8B, 32k, 4.50 GB. vllm-ascend: DeepSeek-V3, 4k, 274.5 MB."""
    assert 131_072 * bytes_per_token(MODELS["llama-3.1-70b"]) == 40 * 2**30
    assert 32_768 * bytes_per_token(MODELS["qwen3-8b"]) == 4.5 * 2**30
    assert 4_096 * bytes_per_token(MODELS["deepseek-v3"]) == 274.5 * 2**20


@pytest.mark.parametrize("name", MODELS)
def test_fp8_halves_and_fp16_does_not(name: str) -> None:
    assert bytes_per_token(MODELS[name], "fp8") * 2 == PER_TOKEN[name]
    assert bytes_per_token(MODELS[name], "fp16") == bytes_per_token(MODELS[name], "bf16") == PER_TOKEN[name]


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(KeyError, match="^'int4'$"):
        bytes_per_token(MODELS["qwen3-8b"], "int4")


@pytest.mark.parametrize(
    ("name", "ranks", "expected"),
    [
        ("llama-3.1-8b", 1, 131_072),
        ("llama-3.1-8b", 4, 32_768),
        ("llama-3.1-8b", 8, 16_384),
        ("llama-3.1-8b", 16, 16_384),  # 8 heads: the second eight ranks hold copies
        ("qwen3-235b-a22b", 8, 48_128),  # 4 heads
        ("deepseek-v3", 1, 70_272),
        ("deepseek-v3", 8, 70_272),  # every rank holds the whole latent vector
    ],
)
def test_what_one_rank_holds(name: str, ranks: int, expected: int) -> None:
    assert shard_bytes_per_token(MODELS[name], "bf16", ranks) == expected
    assert shard_bytes_per_token(MODELS[name], "fp8", ranks) == expected // 2
    assert shards(MODELS[name], ranks) * expected == PER_TOKEN[name]


@pytest.mark.parametrize(
    ("ranks", "message"),
    [(3, "3 ranks cannot share 8 KV heads evenly"), (12, "12 ranks cannot share 8 KV heads evenly")],
)
def test_ranks_that_do_not_fit_the_heads_are_refused(ranks: int, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        shards(MODELS["llama-3.1-8b"], ranks)


@pytest.mark.parametrize(
    ("name", "ranks", "copies"),
    [("llama-3.1-8b", 8, 1), ("llama-3.1-8b", 16, 2), ("deepseek-v3", 1, 1), ("deepseek-v3", 8, 8)],
)
def test_copies_are_moved_as_well(name: str, ranks: int, copies: int) -> None:
    assert moved_bytes_per_token(MODELS[name], None, ranks) == copies * PER_TOKEN[name]


def test_no_rank_is_refused() -> None:
    with pytest.raises(ValueError, match="^0 ranks are none$"):
        shards(MODELS["deepseek-v3"], 0)


@pytest.mark.parametrize("name", MODELS)
def test_a_row_names_its_source(name: str) -> None:
    hub = r"https://huggingface\.co/[\w.-]+/[\w.-]+, config\.json"
    assert re.fullmatch(rf"{hub}|ai-dynamo/nixl, [\w./-]+\.yaml", MODELS[name].source)
    assert re.fullmatch(r"[a-z0-9.-]+", name)


# ---- config.json ----------------------------------------------------------------------

GROUPED = {
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "torch_dtype": "bfloat16",
}


def read(**changes: Any) -> Model:
    config = {**GROUPED, **changes}
    return model_from_config({key: value for key, value in config.items() if value != ""}, "own", "a file")


def test_a_plain_config() -> None:
    assert read() == Model("own", 32, 8, 128, 0, 2, "a file")


def test_a_head_dim_of_its_own_goes_before_the_hidden_size() -> None:
    assert read(head_dim=64).head_dim == 64
    assert read(head_dim=None).head_dim == 128


def test_without_key_value_heads_every_head_has_its_own() -> None:
    assert read(num_key_value_heads="").kv_heads == 32
    assert read(num_key_value_heads=None).kv_heads == 32
    assert read(num_key_value_heads="", multi_query=True).kv_heads == 1


def test_latent_attention() -> None:
    model = read(kv_lora_rank=512, qk_rope_head_dim=64, num_hidden_layers=61)
    assert bytes_per_token(model) == PER_TOKEN["deepseek-v3"]
    assert (model.latent, model.kv_heads, model.head_dim) == (True, 0, 0)


def test_the_language_model_inside_a_larger_one() -> None:
    config = {"torch_dtype": "float32", "num_hidden_layers": 5, "text_config": GROUPED, "vision_config": {}}
    assert model_from_config(config, "own", "a file") == read()
    outer = {"torch_dtype": "float32", "thinker_config": {"text_config": {**GROUPED, "torch_dtype": None}}}
    assert model_from_config(outer, "own", "a file") == read(torch_dtype=None)


@pytest.mark.parametrize(
    ("torch_dtype", "expected"), [("float32", 4), ("float16", 2), ("float8_e4m3fn", 1), ("int4", 2), ("", 2)]
)
def test_the_size_of_an_element(torch_dtype: str, expected: int) -> None:
    assert read(torch_dtype=torch_dtype).element_bytes == expected


def test_layers_without_a_cache_are_not_counted() -> None:
    types = ["linear_attention"] * 3 + ["full_attention"] + ["mamba"] + ["sliding_attention"]
    assert read(layer_types=types).layers == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": ""}, "num_hidden_layers is missing"),
        ({"num_hidden_layers": "", "n_layer": 0}, "n_layer is no whole number from 1 to 1048576 (found 0)"),
        ({"hidden_size": ""}, "hidden_size is missing"),
        ({"num_attention_heads": ""}, "num_attention_heads is missing"),
        ({"hidden_size": 4097}, "head_dim is missing, and 32 heads do not divide the hidden size of 4097"),
        ({"head_dim": 1.5}, "head_dim is no whole number from 1 to 1048576 (found 1.5)"),
        ({"head_dim": True}, "head_dim is no whole number from 1 to 1048576 (found True)"),
        ({"kv_lora_rank": 512}, "qk_rope_head_dim is missing"),
        ({"layer_types": ["mamba"]}, "layer_types names no layer with attention: there is no KV"),
        (
            {"attn_layer_period": 8},
            "attn_layer_period: only some layers keep KV, and which is not known; give the dimensions",
        ),
    ],
)
def test_a_config_that_does_not_tell(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read(**changes)


def test_the_page_of_workloads_is_up_to_date() -> None:
    assert (ROOT / "docs" / "workloads.md").read_text() == page()


def test_the_page_has_a_row_for_each_model_format_field_and_policy() -> None:
    text = page()
    for name, size in PER_TOKEN.items():
        assert re.search(rf"^\| `{name}` \|.* \| {size:,} \|", text, re.MULTILINE)
    for item in FORMATS.values():
        assert f"\n### `{item.name}`: " in text
        assert set(item.sign) <= set(re.findall(r"\*\*([^*]+)\*\*", text)) | {"traffic_patterns"}
    for policy in PLACEMENTS:
        assert f"\n| `{policy}` |" in text
