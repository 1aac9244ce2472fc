"""The lines and columns of trace files, one at a time: gzip or plain, with or without a byte-order mark.

No file is held in memory, however long it is. What is damaged is a TraceError with its line.
"""

from __future__ import annotations

import csv
import gzip
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import BinaryIO, cast

from traffic.plain_file import open_plain
from traffic.traces.rows import TraceError

LINE_BYTES_MAX = 4 << 20
"""A longer line is no row: the longest of Mooncake's is below 2 KiB, and memory is to stay bounded."""

PACKED_MAX = 100
"""A file unpacks to at most so many times its size: text comes to 20, more is made to fill a machine."""

_BOMB = f"comes after more than {PACKED_MAX} times the packed size; no text packs so well, pack it anew"
PACKED_LEAST = 1 << 16
BLANK_MAX = 10_000

_GZIP = b"\x1f\x8b"
_MARK = b"\xef\xbb\xbf"
_WHOLE = re.compile(r"([0-9]{1,15})(?:\.0*)?")
_DECIMAL = re.compile(r"[0-9]{1,15}(?:\.[0-9]{0,30})?(?:[eE][-+]?[0-9]{1,2})?")
SHOWN_MAX = 40


def lines(path: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of every line, the end of the line taken off."""
    number = 0
    try:
        with open_plain(path) as file, _unpacked(file) as stream:
            room, blank = max(os.fstat(file.fileno()).st_size, PACKED_LEAST) * PACKED_MAX, 0
            while raw := stream.readline(LINE_BYTES_MAX + 1):
                number += 1
                room -= len(raw)
                blank = blank + 1 if raw.isspace() else 0
                if len(raw) > LINE_BYTES_MAX:
                    raise TraceError(path, number, f"is longer than {LINE_BYTES_MAX >> 20} MiB; no row is")
                if room < 0:
                    raise TraceError(path, number, _BOMB)
                if blank > BLANK_MAX:
                    raise TraceError(path, number, f"is blank, as are the {BLANK_MAX} lines above it")
                yield number, _text(path, number, raw.removeprefix(_MARK) if number == 1 else raw)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        wrong = f"is damaged: {str(error).strip().splitlines()[0]}; fetch the file again"
        raise TraceError(path, number + 1, wrong) from None
    except OSError as error:
        raise TraceError(path, 0, f"cannot be read: {error.strerror or error}") from None


@contextmanager
def _unpacked(file: BinaryIO) -> Iterator[BinaryIO]:
    packed = file.read(2) == _GZIP
    file.seek(0)
    if packed:
        with gzip.GzipFile(fileobj=file) as stream:
            yield cast(BinaryIO, stream)
    else:
        yield file


def _text(path: str, number: int, raw: bytes) -> str:
    try:
        return raw.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise TraceError(path, number, "is not UTF-8 text") from None


def first_line(path: str) -> str:
    """Return the first line that is not blank, empty where there is none."""
    return next((text for _, text in lines(path) if text.strip()), "")


def header_names(line: str) -> tuple[str, ...]:
    """Return the names in a line of column names, none where it is no line of CSV."""
    try:
        return tuple(name.strip() for name in next(csv.reader([line]), []))
    except csv.Error:
        return ()


def columns(path: str, names: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield for each row its line and the texts of the columns called `names`, in that order.

    Other columns are passed over, and so are blank lines. TraceError for a column that is not there and for
    a row that has more or fewer fields than the header.
    """
    reader = csv.reader((text for _, text in lines(path)), strict=True)
    try:
        header = next((row for row in reader if row), None)
        if header is None:
            raise TraceError(path, 0, "is empty")
        places = [_place(path, reader.line_num, header, name) for name in names]
        for row in reader:
            if len(row) == len(header):
                yield reader.line_num, [row[place].strip() for place in places]
            elif any(map(str.strip, row)):
                wrong = f"has {len(row)} fields, and the header {len(header)}"
                raise TraceError(path, reader.line_num, wrong)
    except csv.Error as error:
        raise TraceError(path, reader.line_num, f"is no row of CSV: {error}") from None


def _place(path: str, line: int, header: Sequence[str], name: str) -> int:
    found = [column.strip() for column in header]
    if name not in found:
        raise TraceError(path, line, f"has no column {name!r} (found {shown(', '.join(found))})")
    return found.index(name)


def whole(path: str, line: int, name: str, text: str) -> int:
    """Return a count of at least 0, which may be written as `7.0`; TraceError."""
    match = _WHOLE.fullmatch(text)
    if match is None:
        raise TraceError(path, line, f"{name} is no whole number of 0 or more (found {shown(text)})")
    return int(match[1])


def time_ns(path: str, line: int, name: str, text: str, unit_ns: int) -> int:
    """Return a time of at least 0 written as a decimal number of units, in whole nanoseconds; TraceError."""
    if _DECIMAL.fullmatch(text) is None:
        raise TraceError(path, line, f"{name} is no number of 0 or more (found {shown(text)})")
    return int(Decimal(text) * unit_ns)


def shown(text: str) -> str:
    """Return `text` short and printable, for a message."""
    flat = text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
    flat = flat if len(flat) <= SHOWN_MAX else flat[: SHOWN_MAX - 3] + "..."
    return flat or "nothing"
