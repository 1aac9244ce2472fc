"""Traces that are tables (CSV): Azure's, BurstGPT's and Splitwise's. They differ in columns and clock."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from functools import lru_cache

from traffic.traces.files import columns, shown, time_ns, whole
from traffic.traces.rows import Format, Reading, Rows, TraceError, Unusable, request_row

NS_PER_S = 1_000_000_000
EMPTY = ("", "nan", "NaN", "null", "None")
"""What programs that write tables put where they know nothing."""


def _rows(path: str, names: tuple[str, ...], clock: Callable[[int, str], int]) -> Rows:
    """Yield the rows of a table by its columns of time, prompt, answer and, where it has one, batch size."""
    for line, (time, prompt, output, *batch) in columns(path, names):
        if time in EMPTY or prompt in EMPTY or output in EMPTY:
            yield Unusable(line, None, "an empty field")
            continue
        at_ns = clock(line, time)
        prompt_tokens, output_tokens = (
            whole(path, line, names[1], prompt),
            whole(path, line, names[2], output),
        )
        if batch and whole(path, line, names[3], batch[0]) != 1:
            yield Unusable(line, at_ns, "a batch that is not 1")
        else:
            yield request_row(line, at_ns, prompt_tokens, output_tokens)


def _seconds(path: str, names: tuple[str, ...], reading: Reading) -> Callable[[int, str], int]:
    """Return the clock of a table whose times are seconds, or what `reading` has them be."""
    unit_ns = reading.unit_ns or NS_PER_S
    return lambda line, text: time_ns(path, line, names[0], text, unit_ns)


# ---- Azure ----------------------------------------------------------------------------

_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(?: ?(?:(Z)|([-+])([0-9]{2}):?([0-9]{2})))?"
)


def read_azure(path: str, reading: Reading) -> Rows:
    """Yield the rows of one of Azure's tables, of 2023 or later: dates with any fraction and offset."""
    yield from _rows(path, _AZURE, lambda line, text: date_ns(path, line, text))


def date_ns(path: str, line: int, text: str) -> int:
    """Return a date with a time of day in nanoseconds; without an offset it counts as UTC; TraceError."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise TraceError(path, line, f"TIMESTAMP is no date with a time (found {shown(text)})")
    day, hour, minute, second = match[1], int(match[2]), int(match[3]), int(match[4])
    days = _days(day)
    if days is None or hour > 23 or minute > 59 or second > 59:
        raise TraceError(path, line, f"TIMESTAMP is a date that does not exist (found {shown(text)})")
    seconds = ((days * 24 + hour) * 60 + minute) * 60 + second
    if match[7]:
        offset_s = (int(match[8]) * 60 + int(match[9])) * 60
        seconds -= offset_s if match[7] == "+" else -offset_s
    return seconds * NS_PER_S + int((match[5] or "").ljust(9, "0"))


@lru_cache(maxsize=64)
def _days(text: str) -> int | None:
    try:
        return date.fromisoformat(text).toordinal()
    except ValueError:
        return None


AZURE = Format(
    name="azure",
    meaning="Azure's LLM inference traces of 2023 and later, CSV",
    source="Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md and AzureLLMInferenceDataset2024.md",
    unit="dates",
    tick_ns=0,
    sign=_AZURE,
    fields=(
        ("TIMESTAMP", "arrival: a date and a time of day, up to 9 decimals, an offset, `Z` or neither (UTC)"),
        ("ContextTokens", "tokens of the prompt"),
        ("GeneratedTokens", "tokens of the answer"),
    ),
    read=read_azure,
)

# ---- BurstGPT -------------------------------------------------------------------------

_BURSTGPT = ("Timestamp", "Request tokens", "Response tokens")


def read_burstgpt(path: str, reading: Reading) -> Rows:
    """Yield the rows of a BurstGPT table; one without an answer is a failed request."""
    yield from _rows(path, _BURSTGPT, _seconds(path, _BURSTGPT, reading))


BURSTGPT = Format(
    name="burstgpt",
    meaning="BurstGPT, CSV",
    source="HPMLL/BurstGPT",
    unit="seconds",
    tick_ns=NS_PER_S,
    sign=_BURSTGPT,
    fields=(
        ("Timestamp", "arrival, in seconds"),
        ("Request tokens", "tokens of the prompt"),
        ("Response tokens", "tokens of the answer; 0 is a failed request"),
        ("Model, Total tokens, Log Type and others", "nothing"),
    ),
    read=read_burstgpt,
)

# ---- Splitwise ------------------------------------------------------------------------

_SPLITWISE = ("arrival_timestamp", "prompt_size", "token_size", "batch_size")


def read_splitwise(path: str, reading: Reading) -> Rows:
    """Yield the rows of a trace of splitwise-sim; a row for a batch of several is no single request."""
    yield from _rows(path, _SPLITWISE, _seconds(path, _SPLITWISE, reading))


SPLITWISE = Format(
    name="splitwise",
    meaning="splitwise-sim, CSV",
    source="Mutinifni/splitwise-sim, generate_trace.py",
    unit="seconds",
    tick_ns=0,
    sign=_SPLITWISE,
    fields=(
        ("arrival_timestamp", "arrival, in seconds"),
        ("prompt_size", "tokens of the prompt"),
        ("token_size", "tokens of the answer"),
        ("batch_size", "1; a row with another number is not used"),
        ("request_id, request_type, application_id", "nothing"),
    ),
    read=read_splitwise,
)
