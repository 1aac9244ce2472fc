"""Traces of requests, read one row at a time: the formats, and which of them a file has.

A format is declared, or recognised by its structure: the fields of a JSON object, the names of columns, the
list of patterns. It is never guessed from how large numbers are. Times, units and what cannot be used are
the format's; what is replayed of them is `traffic.traces.replay`'s.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

from traffic.traces import mooncake, nixl
from traffic.traces.files import first_line, header_names, lines, shown
from traffic.traces.rows import Format, TraceError
from traffic.traces.tables import AZURE, BURSTGPT, SPLITWISE

_TABLES = (AZURE, BURSTGPT, SPLITWISE)

FORMATS: Mapping[str, Format] = MappingProxyType(
    {item.name: item for item in (mooncake.FORMAT, *_TABLES, nixl.FORMAT)}
)
"""All formats by name."""

_HEAD_LINES = 1000
"""The list of patterns begins in these lines of a NIXL folder's metadata."""


def recognise(path: str) -> Format:
    """Return the format whose structure the file or folder has; TraceError when it is none of them."""
    if os.path.isdir(path):
        if os.path.isfile(nixl.metadata_path(path)):
            return nixl.FORMAT
        raise TraceError(path, 0, f"is a folder without {nixl.NAME}; of folders only NIXL's are read")
    line = first_line(path)
    if not line:
        raise TraceError(path, 0, "is empty")
    if mooncake.is_sign(line):
        return mooncake.FORMAT
    names = header_names(line)
    for table in _TABLES:
        if set(table.sign) <= set(names):
            return table
    if _has_patterns(path):
        return nixl.FORMAT
    known = "; ".join(f"{item.name}: {', '.join(item.sign)}" for item in FORMATS.values())
    raise TraceError(path, 1, f"has no format that is known (found {shown(line)}); the fields are {known}")


def _has_patterns(path: str) -> bool:
    for number, text in lines(path):
        if text.startswith(f"{nixl.PATTERNS}:"):
            return True
        if number == _HEAD_LINES:
            break
    return False
