"""What a connector means in bytes and bits per second for a model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from traffic.connectors import BY_LAYER, CONNECTORS, PULL, PUSH, handover
from traffic.kv import MODELS, bytes_per_token, shard_bytes_per_token

LLAMA_70B = MODELS["llama-3.1-70b"]
TOKEN_BYTES = bytes_per_token(LLAMA_70B)


def test_vllm_reads_16_tokens_of_a_layer_at_a_time() -> None:
    alone = handover(CONNECTORS["vllm-nixl"], token_bytes=TOKEN_BYTES, layers=80, flows=1)
    assert alone.descriptor_bytes == 65_536  # K and V of 16 tokens: 2 x 8 heads x 128 x 2 B
    assert alone.pull


def test_eight_ranks_cut_a_descriptor_to_8_kib_which_limits_each_stream() -> None:
    token_bytes = shard_bytes_per_token(LLAMA_70B, "bf16", 8)
    cut = handover(CONNECTORS["vllm-nixl"], token_bytes=token_bytes, layers=80, flows=8)
    assert (cut.streams, cut.descriptor_bytes) == (8, 8192)
    assert cut.pace_bps == 8192 * 8 * 10**9 // 2000  # one descriptor in 2 us


def test_a_chunk_of_256_tokens_is_80_mib_of_a_70b_model() -> None:
    hand = handover(CONNECTORS["lmcache"], token_bytes=TOKEN_BYTES, layers=80, flows=1)
    assert (hand.descriptor_bytes, hand.store, hand.starts) == (80 << 20, True, PUSH)


def test_layers_leave_one_by_one_only_where_the_connector_overlaps() -> None:
    splitwise = handover(CONNECTORS["splitwise"], token_bytes=TOKEN_BYTES, layers=80, flows=1)
    assert [splitwise.steps(tokens) for tokens in (0, 1, 5000)] == [80, 80, 80]
    vllm = handover(CONNECTORS["vllm-nixl"], token_bytes=TOKEN_BYTES, layers=80, flows=1)
    assert vllm.steps(5000) == 1


def test_chunks_of_tokens_leave_as_many_times_as_the_prompt_has_chunks() -> None:
    overlapped = replace(CONNECTORS["lmcache"], overlap=True)
    hand = handover(overlapped, token_bytes=TOKEN_BYTES, layers=80, flows=1)
    assert [hand.steps(tokens) for tokens in (0, 256, 257)] == [1, 1, 2]


def test_descriptors_in_flight_are_a_window() -> None:
    few = replace(CONNECTORS["vllm-nixl"], in_flight=64)
    assert handover(few, token_bytes=TOKEN_BYTES, layers=80, flows=1).window_bytes == 64 * 65_536
    assert handover(CONNECTORS["distserve"], token_bytes=0, layers=0, flows=1).window_bytes == 0


@pytest.mark.parametrize("name", ["splitwise", "lmcache", "vllm-nixl", "nixl"])
def test_what_counts_in_tokens_or_layers_needs_a_model(name: str) -> None:
    with pytest.raises(ValueError, match="^needs a model: its unit is tokens or layers$"):
        handover(CONNECTORS[name], token_bytes=0, layers=0, flows=1)


@pytest.mark.parametrize("name", ["mooncake", "distserve"])
def test_what_counts_in_bytes_needs_none(name: str) -> None:
    assert handover(CONNECTORS[name], token_bytes=0, layers=0, flows=2).streams == 2


def test_every_preset_says_what_it_stands_for_and_where_that_is_from() -> None:
    assert {row.starts for row in CONNECTORS.values()} == {PUSH, PULL}
    assert [name for name, row in CONNECTORS.items() if row.overlap] == ["splitwise"]
    assert [name for name, row in CONNECTORS.items() if row.order == BY_LAYER] == ["splitwise", "vllm-nixl"]
    assert all(row.meaning and row.source and row.name == name for name, row in CONNECTORS.items())
