"""Binary files of int64 rows, written in large pieces.

When all is killed, `FLUSH_ROWS` rows of a file are lost at most, and the samples of one system call.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

FLUSH_ROWS = 256
_FLUSH_VALUES = 1 << 16
_FLUSH_BYTES = 1 << 20

Place = tuple[int, str]
"""Where a counter stands among bytes, a multiple of four, and its format: of four bytes or of eight."""


class RowFile:
    """A binary file of int64 rows, written in large pieces."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb")
        self._values = array("q")
        self.rows = 0

    def add(self, row: tuple[int, ...]) -> None:
        """Append one row."""
        self._values.extend(row)
        self.rows += 1
        if self.rows % FLUSH_ROWS == 0 or len(self._values) >= _FLUSH_VALUES:
            self.flush()

    def flush(self) -> None:
        """Write out what is kept."""
        self._values.tofile(self._file)
        self._file.flush()
        del self._values[:]

    def close(self) -> None:
        """Write out and close."""
        self.flush()
        self._file.close()


class SampleFiles:
    """Several files of samples, each of some links. A row is the moment and, link by link, their counters.

    Counters come as the kernel writes them, `size` bytes for each sample; they become numbers of 64 bits at
    their places in the rows when a piece is written, column by column: made into numbers of Python, each
    sample by itself, they would cost more than their reading. `files` has, for each file, the place of each
    of its columns: None for one that is always zero.

    All memory is taken at the start: what grows and shrinks is given back to the kernel and asked for again.
    """

    def __init__(self, files: Sequence[tuple[Path, Sequence[Place | None]]], size: int) -> None:
        self._most = max(1, min(FLUSH_ROWS, _FLUSH_BYTES // max(size, 1)))
        self._size = size
        self._kept = 0
        self._times = memoryview(array("q", bytes(8 * self._most)))
        self._counters = memoryview(bytearray(self._most * size))
        self._files = [_Columns(path, columns, self._most) for path, columns in files]
        self.rows = 0

    def add(self, times_ns: Sequence[int], counters: bytes) -> None:
        """Append samples: their moments, and the counters of one after those of the other."""
        count, first = len(times_ns), 0
        while first < count:
            last = min(count, first + self._most - self._kept)
            end = self._kept + last - first
            self._times[self._kept : end] = array("q", times_ns[first:last])
            piece = counters if last - first == count else counters[first * self._size : last * self._size]
            self._counters[self._kept * self._size : end * self._size] = piece
            self._kept, first = end, last
            if end == self._most:
                self.flush()
        self.rows += count

    def flush(self) -> None:
        """Write out what is kept."""
        for file in self._files:
            file.write(self._times[: self._kept], self._counters[: self._kept * self._size], self._size)
        self._kept = 0

    def close(self) -> None:
        """Write out and close."""
        self.flush()
        for file in self._files:
            file.close()


class _Columns:
    """A file of rows, written out of counters that stand elsewhere. On a little-endian machine."""

    def __init__(self, path: Path, columns: Sequence[Place | None], most: int) -> None:
        self._file = path.open("wb")
        self._width = len(columns) + 1
        self._rows = memoryview(array("q", bytes(8 * self._width * most)))
        self._halves = self._rows.cast("B").cast("I")
        self._moves = [
            (2 * number + half, place[0] // 4 + half)
            for number, place in enumerate(columns, start=1)
            if place is not None
            for half in range(struct.calcsize("=" + place[1]) // 4)
        ]

    def write(self, times: memoryview, counters: memoryview, size: int) -> None:
        end = len(times) * self._width
        self._rows[: end : self._width] = times
        words = counters.cast("I")
        for to, start in self._moves:
            self._halves[to : 2 * end : 2 * self._width] = words[start :: size // 4]
        self._file.write(self._rows[:end])
        self._file.flush()

    def close(self) -> None:
        self._file.close()
