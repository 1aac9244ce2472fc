"""Reading the record's files: JSON objects and rows of int64, each with a sentence for what is wrong with it.

Not the writing, and no meaning of any number: the reader gives that. Called by `testbed.record.reader`, and
by what reads a summary without opening its record.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from testbed import strict_json
from testbed.record import layout
from traffic.plain_file import open_plain

Int64Array = NDArray[np.int64]

_HASH_BLOCK = 1 << 20

TEXT_BYTES_MAX = 256 << 20
"""No text of a record is so long: what is, would fill the memory."""

_BLOCK_ROWS = 1 << 13
"""Rows read at once: with thirty links ten megabytes."""


class Damage(Exception):
    """A file of the record cannot be used; the message names it and says why."""


def open_inside(folder: Path, name: str) -> BinaryIO:
    """Open file `name` of the record in `folder`; Damage when there is none or it leads out of the record."""
    try:
        real = os.path.realpath(folder / name)
        if os.path.commonpath([real, os.path.realpath(folder)]) != os.path.realpath(folder):
            raise Damage(f"{name} leads out of the record")
        return open_plain(real)
    except FileNotFoundError:
        raise Damage(f"{name} is missing") from None
    except OSError as error:
        raise Damage(f"{name} cannot be read: {error.strerror}") from None
    except ValueError:
        raise Damage(f"{name!r} is no name of a file") from None


def read_text(folder: Path, name: str) -> str:
    """Return the text of file `name` in `folder`; Damage when there is none or it is no UTF-8."""
    try:
        with open_inside(folder, name) as file:
            # Asked first: to read at most so much takes so much memory, however short the file.
            if os.fstat(file.fileno()).st_size > TEXT_BYTES_MAX:
                raise Damage(f"{name} is larger than {TEXT_BYTES_MAX >> 20} MiB")
            return file.read().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise Damage(f"{name} cannot be read: {error}") from None


def read_json(folder: Path, name: str) -> Any:
    """Return what the JSON file `name` in `folder` holds; Damage when it is missing or no JSON."""
    try:
        return strict_json.loads(read_text(folder, name))
    except ValueError as error:
        raise Damage(f"{name} is not JSON: {error}") from None


def read_mapping(folder: Path, name: str) -> dict[str, Any]:
    """Return the JSON object in file `name`; Damage when it is missing, no JSON or no object."""
    value = read_json(folder, name)
    if not isinstance(value, dict):
        raise Damage(f"{name} holds a {type(value).__name__}, not an object")
    return value


def open_rows(folder: Path, name: str, columns: int) -> tuple[Int64Array, int]:
    """Map file `name` as rows of `columns` int64 and return them with the number of bytes left over.

    The rows are read from the file as they are touched, so that a long run does not fill the memory. A row
    cut short at the end is left out and counted in the second value. Damage when there is no such file.
    """
    with open_inside(folder, name) as file:
        size = os.fstat(file.fileno()).st_size
        rows, left_over = divmod(size, columns * layout.INT64)
        if rows == 0:
            return np.empty((0, columns), np.int64), left_over
        return np.memmap(file, "<i8", "r", shape=(rows, columns)), left_over


def columns(rows: Int64Array, first: int, count: int) -> Int64Array:
    """Return some columns of rows, each as an array of its own that lies in one piece.

    Rows that are mapped from a file are let go as they are read: what has been touched of a long file would
    else stay in memory.
    """
    found = np.empty((count, len(rows)), np.int64)
    mapped = getattr(rows, "_mmap", None)
    for start in range(0, len(rows), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        found[:, block] = rows[block, first : first + count].T
        if mapped is not None:
            mapped.madvise(mmap.MADV_DONTNEED)
    return found


def differences(folder: Path, files: Any) -> Iterator[str]:
    """Yield a sentence for each file that is not as the manifest's `files` has it (size, SHA-256)."""
    if not isinstance(files, Mapping):
        files = {}
    for name, entry in sorted(files.items()):
        if name in layout.DERIVED or name == layout.ENVIRONMENT:
            continue  # both may be written again after the manifest
        try:
            with open_inside(folder, name) as file:
                problem = _difference(file, entry)
        except Damage as damage:
            yield str(damage)
            continue
        if problem:
            yield f"{name} {problem}"


def _difference(file: BinaryIO, entry: Any) -> str | None:
    if not isinstance(entry, Mapping):
        return "has no size and sum in the manifest"
    size = os.fstat(file.fileno()).st_size
    if size != entry.get("bytes"):
        return f"has {size} bytes, the manifest says {entry.get('bytes')}"
    if _sha256(file) != entry.get("sha256"):
        return "was changed after the run: its SHA-256 is not the manifest's"
    return None


def _sha256(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while block := file.read(_HASH_BLOCK):
        digest.update(block)
    return digest.hexdigest()
