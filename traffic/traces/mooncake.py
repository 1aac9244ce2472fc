"""Mooncake's traces: one JSON object in each line, times in milliseconds, hashes of the prompt's blocks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from traffic.traces.files import lines, shown
from traffic.traces.rows import NO_OUTPUT, NO_PROMPT, Format, Reading, Row, Rows, TraceError, Unusable

UNIT_NS = 1_000_000
TICK_NS = 3_000_000_000
"""The conversation trace's arrivals stand on steps of 3 s, 10 to 28 requests on one."""

SIGN = ("timestamp", "input_length", "output_length")


def read(path: str, reading: Reading) -> Rows:
    """Yield the rows of a file; TraceError for a line that is none."""
    for number, text in lines(path):
        if text.strip():
            yield _row(path, number, _object(path, number, text), reading)


def is_sign(line: str) -> bool:
    """Whether a file's first line is a row of this format."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and all(key in data for key in SIGN)


def _object(path: str, number: int, text: str) -> Mapping[str, Any]:
    try:
        data = json.loads(text, parse_float=Decimal)
    except json.JSONDecodeError as error:
        raise TraceError(path, number, f"is no JSON object: {error.msg}, column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise TraceError(path, number, f"is no JSON object: {error}") from None
    if not isinstance(data, dict):
        raise TraceError(path, number, f"is no JSON object (found {shown(text)})")
    missing = next((key for key in SIGN if key not in data), None)
    if missing is not None:
        raise TraceError(path, number, f"has no {missing!r}; a row has {', '.join(SIGN)}")
    return data


def _row(path: str, number: int, data: Mapping[str, Any], reading: Reading) -> Row | Unusable:
    at_ns = _time(path, number, data["timestamp"], reading.unit_ns or UNIT_NS)
    prompt_tokens = _count(path, number, "input_length", data["input_length"])
    output_tokens = _count(path, number, "output_length", data["output_length"])
    blocks = _blocks(path, number, data.get("hash_ids"), prompt_tokens, reading.block_tokens)
    if prompt_tokens == 0:
        return Unusable(number, at_ns, NO_PROMPT)
    if output_tokens == 0:
        return Unusable(number, at_ns, NO_OUTPUT)
    return Row(number, at_ns, prompt_tokens, output_tokens, blocks, reading.block_tokens)


def _time(path: str, number: int, value: object, unit_ns: int) -> int:
    if type(value) not in (int, Decimal) or not 0 <= value < 10**15:  # type: ignore[operator]
        raise TraceError(path, number, f"timestamp is no number of 0 or more (found {shown(str(value))})")
    return int(value * unit_ns)  # type: ignore[operator]


def _count(path: str, number: int, name: str, value: object) -> int:
    if type(value) is not int or not 0 <= value < 10**15:
        wrong = f"{name} is no whole number of 0 or more (found {shown(str(value))})"
        raise TraceError(path, number, wrong)
    return value


def _blocks(path: str, number: int, value: object, tokens: int, block_tokens: int) -> tuple[int, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or any(type(item) is not int for item in value):
        raise TraceError(path, number, f"hash_ids is no list of whole numbers (found {shown(str(value))})")
    expected = -(-tokens // block_tokens)
    if len(value) != expected:
        wrong = f"has {len(value)} hash_ids, and {tokens} tokens are {expected} blocks of {block_tokens}"
        raise TraceError(path, number, f"{wrong}; block_tokens says how many tokens a block has")
    return tuple(value)


FORMAT = Format(
    name="mooncake",
    meaning="Mooncake (FAST '25), JSON lines",
    source="kvcache-ai/Mooncake, FAST25-release/traces",
    unit="milliseconds",
    tick_ns=TICK_NS,
    sign=SIGN,
    fields=(
        ("timestamp", "arrival, in milliseconds"),
        ("input_length", "tokens of the prompt"),
        ("output_length", "tokens of the answer"),
        (
            "hash_ids",
            "hashes of the prompt's blocks of `block_tokens` tokens, which stand for all tokens up to "
            "their end; may be left out",
        ),
    ),
    read=read,
)
