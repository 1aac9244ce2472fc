"""Binary files of int64 rows, written in large pieces.

When all is killed, `FLUSH_ROWS` rows of a file are lost at most, and the samples of one system call.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

FLUSH_ROWS = 256
_FLUSH_VALUES = 1 << 16


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

    Counters come as they are read, those of all links together and in the kernel's order; they are put in the
    order of the files when a piece is written, column by column, which for each sample by itself costs more
    than the reading. `files` has, for each file, the position of each of its columns among the counters: None
    for one that is always zero. `width` is how many counters a sample has.

    All memory is taken at the start: what grows and shrinks is given back to the kernel and asked for again.
    """

    def __init__(self, files: Sequence[tuple[Path, Sequence[int | None]]], width: int) -> None:
        self._most = max(1, min(FLUSH_ROWS, _FLUSH_VALUES // max(width, 1)))
        self._width = width
        self._kept = 0
        self._times = array("q", bytes(8 * self._most))
        self._counters = array("q", bytes(8 * self._most * width))
        self._files: list[tuple[BinaryIO, Sequence[int | None], array[int]]] = [
            (path.open("wb"), columns, array("q", bytes(8 * self._most * (len(columns) + 1))))
            for path, columns in files
        ]
        self.rows = 0

    def add(self, times_ns: Sequence[int], counters: Sequence[int]) -> None:
        """Append samples: their moments, and the counters of one after those of the other."""
        for start in range(0, len(times_ns), self._most):
            times = times_ns[start : start + self._most]
            self._add(times, counters[start * self._width : (start + len(times)) * self._width])

    def _add(self, times_ns: Sequence[int], counters: Sequence[int]) -> None:
        end = self._kept + len(times_ns)
        if end > self._most:
            self.flush()
            end = len(times_ns)
        self._times[self._kept : end] = array("q", times_ns)
        self._counters[self._kept * self._width : end * self._width] = array("q", counters)
        self._kept = end
        self.rows += len(times_ns)
        if end == self._most:
            self.flush()

    def flush(self) -> None:
        """Write out what is kept."""
        kept, width = self._kept, self._width
        for file, columns, rows in self._files:
            step = len(columns) + 1
            end = kept * step
            rows[0:end:step] = self._times[:kept]
            for number, column in enumerate(columns, start=1):
                if column is not None:
                    rows[number:end:step] = self._counters[column : kept * width : width]
            file.write(memoryview(rows)[:end])
            file.flush()
        self._kept = 0

    def close(self) -> None:
        """Write out and close."""
        self.flush()
        for file, _, _ in self._files:
            file.close()
