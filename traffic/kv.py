"""How many bytes of KV a token leaves behind, for models known by name and for any other by its dimensions.

The table's rows have their source. Another model is given by its dimensions or by the `config.json` that
lies beside its weights. Pure: the caller reads files. `testbed.scenario` reads a model by its name from
here; docs/workloads.md is generated from the table.

A layer keeps a key and a value of `head_dim` elements for each KV head and token (grouped-query attention).
With multi-head latent attention it keeps one latent vector instead, which also holds the part of the key
that carries the position. Layers with a sliding window are counted in full, as their blocks are moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

DTYPES: Mapping[str, int] = MappingProxyType({"bf16": 2, "fp16": 2, "fp8": 1})
"""Bytes of one element of the cache."""

_KEY_AND_VALUE = 2


@dataclass(frozen=True)
class Model:
    """What its KV cache depends on; `source` says where the dimensions come from.

    `layers` counts those that keep a cache. `kv_heads` and `head_dim` are 0 where `latent_dim`, the elements
    of a token's latent vector in one layer, is not; and the other way round. `element_bytes` is the size of
    an element where no dtype is asked for.
    """

    name: str
    layers: int
    kv_heads: int
    head_dim: int
    latent_dim: int
    element_bytes: int
    source: str

    @property
    def latent(self) -> bool:
        """Whether the model has multi-head latent attention."""
        return self.latent_dim > 0

    @property
    def elements_per_token(self) -> int:
        """Elements of the cache for one token, over all layers."""
        return self.layers * (self.latent_dim or _KEY_AND_VALUE * self.kv_heads * self.head_dim)


def bytes_per_token(model: Model, dtype: str | None = None) -> int:
    """Return the bytes of KV of one token; `dtype` None: the model's own. KeyError for an unknown dtype."""
    return model.elements_per_token * (model.element_bytes if dtype is None else DTYPES[dtype])


def shards(model: Model, tensor_parallel: int) -> int:
    """Return into how many different parts that many ranks cut the cache of a token.

    KV heads are cut first and then copied, so there are min(ranks, heads) parts. A latent vector is not
    cut: every rank needs all of it (vLLM, SGLang). ValueError where the heads cannot be dealt evenly.
    """
    if tensor_parallel < 1:
        raise ValueError(f"{tensor_parallel} ranks are none")
    if model.latent:
        return 1
    if model.kv_heads % tensor_parallel and tensor_parallel % model.kv_heads:
        raise ValueError(f"{tensor_parallel} ranks cannot share {model.kv_heads} KV heads evenly")
    return min(tensor_parallel, model.kv_heads)


def shard_bytes_per_token(model: Model, dtype: str | None, tensor_parallel: int) -> int:
    """Return the bytes of KV of one token that one of so many ranks holds; KeyError, ValueError as above."""
    return bytes_per_token(model, dtype) // shards(model, tensor_parallel)


def moved_bytes_per_token(model: Model, dtype: str | None, decode_ranks: int) -> int:
    """Return the bytes of KV of one token that the decode side needs, all its ranks together.

    That is the KV itself as long as each rank has a part of its own: copies of KV heads and of a latent
    vector are moved as well. KeyError, ValueError as above.
    """
    return decode_ranks * shard_bytes_per_token(model, dtype, decode_ranks)


# ---- the table ------------------------------------------------------------------------

_KVBENCH = "ai-dynamo/nixl, benchmark/kvbench/examples/"


def _hub(repository: str) -> str:
    return f"https://huggingface.co/{repository}, config.json"


def _grouped(name: str, layers: int, kv_heads: int, head_dim: int, source: str) -> Model:
    return Model(name, layers, kv_heads, head_dim, 0, DTYPES["bf16"], source)


def _latent(name: str, layers: int, latent_dim: int, source: str) -> Model:
    return Model(name, layers, 0, 0, latent_dim, DTYPES["bf16"], source)


def _named(models: Iterable[Model]) -> Mapping[str, Model]:
    return MappingProxyType({model.name: model for model in models})


MODELS: Mapping[str, Model] = _named(
    (
        _grouped("llama-3.1-8b", 32, 8, 128, f"{_KVBENCH}model_llama_3_1_8b.yaml"),
        _grouped("llama-3.1-70b", 80, 8, 128, f"{_KVBENCH}model_llama_3_1_70b.yaml"),
        _grouped("llama-3.1-405b", 126, 8, 128, _hub("meta-llama/Llama-3.1-405B")),
        _grouped("qwen2.5-7b", 28, 4, 128, _hub("Qwen/Qwen2.5-7B")),
        _grouped("qwen2.5-14b", 48, 8, 128, _hub("Qwen/Qwen2.5-14B")),
        _grouped("qwen2.5-32b", 64, 8, 128, _hub("Qwen/Qwen2.5-32B")),
        _grouped("qwen2.5-72b", 80, 8, 128, _hub("Qwen/Qwen2.5-72B")),
        _grouped("qwen3-8b", 36, 8, 128, f"{_KVBENCH}model_qwen3_8b.yaml"),
        _grouped("qwen3-32b", 64, 8, 128, f"{_KVBENCH}model_qwen3_32b.yaml"),
        _grouped("qwen3-235b-a22b", 94, 4, 128, _hub("Qwen/Qwen3-235B-A22B")),
        _grouped("mixtral-8x7b", 32, 8, 128, _hub("mistralai/Mixtral-8x7B-v0.1")),
        _grouped("mixtral-8x22b", 56, 8, 128, _hub("mistralai/Mixtral-8x22B-v0.1")),
        _grouped("gpt-oss-120b", 36, 8, 64, f"{_KVBENCH}model_gpt_oss_120b.yaml"),
        _latent("deepseek-v3", 61, 512 + 64, _hub("deepseek-ai/DeepSeek-V3")),
        _latent("deepseek-r1", 61, 512 + 64, f"{_KVBENCH}model_deepseek_r1.yaml"),
    )
)
"""All known models by name."""


# ---- config.json ----------------------------------------------------------------------

_NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where models for pictures and sound keep what belongs to the language model."""

_LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
_HEADS = ("num_attention_heads", "n_head")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "multi_query_group_num")
_WIDTH = ("hidden_size", "n_embd", "d_model")
_TYPES = {"bfloat16": 2, "float16": 2, "float32": 4, "float8_e4m3fn": 1, "float8_e5m2": 1}
_NO_CACHE = ("linear_attention", "mamba", "mamba2")
_HYBRIDS = ("attn_layer_period", "full_attention_interval", "hybrid_override_pattern", "layers_block_type")
_LARGEST = 2**20


def model_from_config(config: Mapping[str, Any], name: str, source: str) -> Model:
    """Return the model that a Hugging Face `config.json` describes; ValueError says what is amiss.

    With `kv_lora_rank` it has latent attention. Without `num_key_value_heads` every head has its own key and
    value; without `head_dim` the heads share the hidden size. Layers that `layer_types` gives no cache are
    not counted.
    """
    config = _language(config)
    layers, element_bytes = _layers(config), _element_bytes(config)
    rank = _whole(config, ("kv_lora_rank",))
    if rank is not None:
        latent_dim = rank + _needed(config, ("qk_rope_head_dim",))
        return Model(name, layers, 0, 0, latent_dim, element_bytes, source)
    return Model(name, layers, _kv_heads(config), _head_dim(config), 0, element_bytes, source)


def _language(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the innermost part that describes the language model, with what surrounds it as default."""
    for key in _NESTED:
        inner = config.get(key)
        if isinstance(inner, Mapping):
            outer = {name: value for name, value in config.items() if name != key}
            return _language({**outer, **inner})
    return config


def _layers(config: Mapping[str, Any]) -> int:
    types = config.get("layer_types")
    if isinstance(types, list) and types:
        cached = sum(kind not in _NO_CACHE for kind in types)
        if not cached:
            raise ValueError("layer_types names no layer with attention: there is no KV")
        return cached
    hybrid = next((key for key in _HYBRIDS if config.get(key) is not None), None)
    if hybrid is not None:
        raise ValueError(f"{hybrid}: only some layers keep KV, and which is not known; give the dimensions")
    return _needed(config, _LAYERS)


def _kv_heads(config: Mapping[str, Any]) -> int:
    given = _whole(config, _KV_HEADS)
    if given is not None:
        return given
    return 1 if config.get("multi_query") is True else _needed(config, _HEADS)


def _head_dim(config: Mapping[str, Any]) -> int:
    given = _whole(config, ("head_dim", "kv_channels"))
    if given is not None:
        return given
    width, heads = _needed(config, _WIDTH), _needed(config, _HEADS)
    if width % heads:
        raise ValueError(f"head_dim is missing, and {heads} heads do not divide the hidden size of {width}")
    return width // heads


def _element_bytes(config: Mapping[str, Any]) -> int:
    given = config.get("torch_dtype") or config.get("dtype")
    # What the weights are quantised to says nothing of the cache, so bf16 is as good as unknown.
    return _TYPES.get(str(given), DTYPES["bf16"])


def _needed(config: Mapping[str, Any], keys: tuple[str, ...]) -> int:
    found = _whole(config, keys)
    if found is None:
        raise ValueError(f"{keys[0]} is missing")
    return found


def _whole(config: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    """Return the first of `keys` that is there and not null; ValueError if it is no count."""
    for key in keys:
        value = config.get(key)
        if value is None:
            continue
        if type(value) is not int or not 0 < value <= _LARGEST:
            raise ValueError(f"{key} is no whole number from 1 to {_LARGEST} (found {value!r})"[:200])
        return value
    return None
