"""What every trace format gives: rows, rows that cannot be used, and the error of a broken file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from traffic.request import BLOCK_TOKENS

PATH_SHOWN_MAX = 300
"""A path of more characters, which no file has, is cut in a message."""


class TraceError(Exception):
    """A file that is no trace of its format, or is damaged: `line` 0 where none is to blame."""

    def __init__(self, path: str, line: int, wrong: str) -> None:
        shown = path if len(path) <= PATH_SHOWN_MAX else f"{path[: PATH_SHOWN_MAX - 3]}..."
        super().__init__(f"{shown}:{line}: {wrong}" if line else f"{shown}: {wrong}")
        self.path, self.line, self.wrong = path, line, wrong


@dataclass(frozen=True, slots=True)
class Row:
    """A request as it stands in a trace: `at_ns` counts from wherever the trace's clock began.

    `ranks` are the sending and the receiving GPU where the trace says so, and `kv_bytes` what moves between
    them; then there are no tokens.
    """

    line: int
    at_ns: int
    prompt_tokens: int
    output_tokens: int
    prefix_blocks: tuple[int, ...] = ()
    block_tokens: int = BLOCK_TOKENS
    kv_bytes: int | None = None
    ranks: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Unusable:
    """A row that is right as a row but is no request to replay; `reason` is one of a few.

    `at_ns` is its time where that is known.
    """

    line: int
    at_ns: int | None
    reason: str


NO_PROMPT = "no prompt tokens"
NO_OUTPUT = "no output tokens (a failed request)"

Rows = Iterator[Row | Unusable]


@dataclass(frozen=True)
class Reading:
    """How a file is to be read: `unit_ns` of a number in its time column, None: as the format has it.

    `load_yaml` returns the value of a YAML text, ValueError for another; this package reads none itself.
    """

    unit_ns: int | None = None
    block_tokens: int = BLOCK_TOKENS
    load_yaml: Callable[[str], Any] | None = None


@dataclass(frozen=True)
class Format:
    """One format of traces.

    `sign` is what it is recognised by, the fields of a row or of a header; `fields` say what each becomes.
    `tick_ns` is the step of its clock: requests of the whole step have the same time; 0: its clock is finer
    than its gaps. `read` yields the rows of a file by its path, TraceError.
    """

    name: str
    meaning: str
    source: str
    unit: str
    tick_ns: int
    sign: tuple[str, ...]
    fields: tuple[tuple[str, str], ...]
    read: Callable[[str, Reading], Rows]


def request_row(line: int, at_ns: int, prompt_tokens: int, output_tokens: int) -> Row | Unusable:
    """Return a row without prefixes, or why it is none: a request without an answer has failed."""
    if prompt_tokens == 0:
        return Unusable(line, at_ns, NO_PROMPT)
    if output_tokens == 0:
        return Unusable(line, at_ns, NO_OUTPUT)
    return Row(line, at_ns, prompt_tokens, output_tokens)
