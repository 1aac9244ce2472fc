"""Row files: what stands in them, and how much is kept."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.run.rows import FLUSH_ROWS, RowFile, SampleFiles


def test_rows_are_little_endian_int64(tmp_path: Path) -> None:
    rows = RowFile(tmp_path / "rows")
    rows.add((-20_000, 1, 2))
    rows.add((0, 2**62, 3))
    rows.close()
    assert rows.rows == 2
    assert (tmp_path / "rows").read_bytes() == struct.pack("<6q", -20_000, 1, 2, 0, 2**62, 3)


@pytest.mark.parametrize(("width", "kept"), [(1, 256), (3, 256), (1024, 64)])
def test_no_more_rows_are_kept_than_may_be_lost(tmp_path: Path, width: int, kept: int) -> None:
    rows = RowFile(tmp_path / "rows")
    for _ in range(kept - 1):
        rows.add((1,) * width)
    assert (tmp_path / "rows").stat().st_size == 0
    rows.add((1,) * width)
    assert (tmp_path / "rows").stat().st_size == 8 * width * kept
    rows.add((1,) * width)
    rows.close()
    assert (tmp_path / "rows").stat().st_size == 8 * width * (kept + 1)


# ---- samples --------------------------------------------------------------------------


def values(path: Path) -> list[int]:
    data = path.read_bytes()
    return list(struct.unpack(f"<{len(data) // 8}q", data))


def test_each_file_has_its_columns_in_its_own_order(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    files = SampleFiles([(first, [2, 0, None]), (second, [1])], width=3)
    files.add([-20, 0], [1, 2, 2**40, 4, 5, 6])
    files.add([20], range(7, 10))
    files.add([], [])
    files.close()
    assert files.rows == 3
    assert values(first) == [-20, 2**40, 1, 0, 0, 6, 4, 0, 20, 9, 7, 0]
    assert values(second) == [-20, 2, 0, 5, 20, 8]


@pytest.mark.parametrize(("width", "kept"), [(1, FLUSH_ROWS), (1024, 64), (1 << 20, 1)])
def test_no_more_samples_are_kept_than_may_be_lost(tmp_path: Path, width: int, kept: int) -> None:
    path = tmp_path / "rows"
    files = SampleFiles([(path, [width - 1])], width)
    for number in range(kept - 1):
        files.add([number], range(width))
    assert path.stat().st_size == 0
    files.add([kept - 1], range(width))
    assert path.stat().st_size == 16 * kept
    files.add([kept], range(width))
    files.close()
    assert values(path) == [each for number in range(kept + 1) for each in (number, width - 1)]


@given(st.lists(st.integers(0, 3 * 64), max_size=20))
def test_whatever_comes_at_once_stands_in_the_file_once(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[int]
) -> None:
    path = tmp_path_factory.mktemp("rows") / "rows"
    width, taken = 1024, 0
    files = SampleFiles([(path, [1023, None])], width)
    for piece in pieces:
        times = range(taken, taken + piece)
        files.add(times, [number for time in times for number in range(time, time + width)])
        assert path.stat().st_size >= 24 * (files.rows - 64)
        taken += piece
    files.close()
    assert values(path) == [each for time in range(taken) for each in (time, time + 1023, 0)]
