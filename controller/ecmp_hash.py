"""Which bucket of a SELECT group Open vSwitch 3.1 chooses for a flow with `selection_method=hash`.

A reimplementation of published algorithms, for predicting a transfer's spine in a plan; the tests
compare it with a running switch. The selection is `pick_hash_fields_select_group` and
`group_best_live_bucket` in ofproto-dpif-xlate.c; the hash is MurmurHash3 (Austin Appleby, public
domain) as lib/hash.h uses it. It holds for little-endian builds without the SSE4.2 or ARM CRC32
variants, which is how distributions compile Open vSwitch for x86-64 and arm64: what counts is the
compiler's flags, not the processor. Every bucket is taken to be live, with weight 1.

Pure, standard library only. `testbed.plan` calls it, and whoever wants to know a path beforehand.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

from controller.wire import HASH_FIELDS

_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF
_SEED_STEP = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio, odd: every leaf's seed differs (the step of SplitMix64, Steele et al. 2014)."""
_PROTOCOL_OF_PREFIX = {"tcp": socket.IPPROTO_TCP, "udp": socket.IPPROTO_UDP}


def choose_bucket(
    fields: Mapping[str, int | str], hash_fields: Sequence[str], seed: int, bucket_ids: Sequence[int]
) -> int:
    """Return the id in `bucket_ids` to which an IPv4 flow with these header `fields` goes.

    `fields` maps names of `HASH_FIELDS` to numbers, or to text for addresses; `bucket_ids` is in the
    group's order. Ports of a protocol the flow does not have are left out of the hash, as the switch
    does. Raises ValueError for a hash field that is unknown or has no value, and for no buckets.
    """
    if not bucket_ids:
        raise ValueError("a group without buckets forwards nothing")
    basis = flow_basis(fields, hash_fields, seed)
    best, best_score = bucket_ids[0], 0
    for bucket_id in bucket_ids:
        score = _hash_two_words(bucket_id, basis) & 0xFFFF
        if score >= best_score:  # equal scores: the later bucket, as the switch does
            best, best_score = bucket_id, score
    return best


def leaf_seed(hash_seed: int, leaf_index: int) -> int:
    """Return the 64-bit seed of one leaf's hash, other than that of every other leaf.

    `leaf_index` counts from 1. With one seed for all, what hashes together at a leaf would do so at all.
    """
    return (hash_seed + leaf_index * _SEED_STEP) & _MASK64


def flow_basis(fields: Mapping[str, int | str], hash_fields: Sequence[str], seed: int) -> int:
    """Return the 32-bit hash of a flow's `hash_fields`, started from the 64-bit `seed`."""
    unknown = [name for name in hash_fields if name not in HASH_FIELDS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no hash field, expected some of {', '.join(HASH_FIELDS)}")
    basis = _hash_uint64(seed)
    for name in HASH_FIELDS:
        if name in hash_fields and _present(name, fields):
            basis = _hash_bytes(_value(name, fields), basis)
    return basis


def _present(name: str, fields: Mapping[str, int | str]) -> bool:
    protocol = _PROTOCOL_OF_PREFIX.get(name.partition("_")[0])
    if protocol is None:
        return True
    if "ip_proto" not in fields:
        raise ValueError(f"the flow needs ip_proto to know whether it has {name}")
    return fields["ip_proto"] == protocol


def _value(name: str, fields: Mapping[str, int | str]) -> bytes:
    if name not in fields:
        raise ValueError(f"the flow has no value for the hash field {name}")
    value, length = fields[name], HASH_FIELDS[name][1]
    if isinstance(value, int):
        return value.to_bytes(length, "big")
    return socket.inet_aton(value) if name.startswith("ipv4") else bytes.fromhex(value.replace(":", ""))


def _rotate(x: int, bits: int) -> int:
    return ((x << bits) | (x >> (32 - bits))) & _MASK32


def _add(state: int, data: int) -> int:
    data = (data * 0xCC9E2D51) & _MASK32
    state ^= (_rotate(data, 15) * 0x1B873593) & _MASK32
    return (_rotate(state, 13) * 5 + 0xE6546B64) & _MASK32


def _finish(state: int, length: int) -> int:
    state ^= length
    state = ((state ^ (state >> 16)) * 0x85EBCA6B) & _MASK32
    state = ((state ^ (state >> 13)) * 0xC2B2AE35) & _MASK32
    return state ^ (state >> 16)


def _hash_uint64(value: int) -> int:
    return _finish(_add(_add(0, value & _MASK32), value >> 32), 8)


def _hash_two_words(first: int, second: int) -> int:
    return _finish(_add(_add(first, 0), second), 8)


def _hash_bytes(data: bytes, basis: int) -> int:
    state = basis
    for start in range(0, len(data), 4):
        # A short last word is filled with zeros at its high end.
        state = _add(state, int.from_bytes(data[start : start + 4], "little"))
    return _finish(state, len(data))
