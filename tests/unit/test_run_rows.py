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


def counters(*samples: tuple[int, int, int]) -> bytes:
    """Samples of a counter of four bytes, one of eight and one of four, which are not read."""
    return b"".join(struct.pack("=IQII", *sample, 2**32 - 1) for sample in samples)


SIZE = len(counters((0, 0, 0)))


def test_each_file_has_its_columns_in_its_own_order(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    files = SampleFiles([(first, [(12, "I"), (4, "Q"), None]), (second, [(0, "I")])], SIZE)
    files.add([-20, 0], counters((1, 2**63, 3), (2**32 - 1, 5, 6)))
    files.add([20], counters((7, 2**32, 9)))
    files.add([], b"")
    files.close()
    assert files.rows == 3
    assert values(first) == [-20, 3, -(2**63), 0, 0, 6, 5, 0, 20, 9, 2**32, 0]
    assert values(second) == [-20, 1, 0, 2**32 - 1, 20, 7]


@pytest.mark.parametrize(("size", "kept"), [(8, FLUSH_ROWS), (1 << 14, 64), (1 << 21, 1)])
def test_no_more_samples_are_kept_than_may_be_lost(tmp_path: Path, size: int, kept: int) -> None:
    path = tmp_path / "rows"
    files = SampleFiles([(path, [(size - 4, "I")])], size)
    sample = bytes(size - 4) + struct.pack("=I", 5)
    for number in range(kept - 1):
        files.add([number], sample)
    assert path.stat().st_size == 0
    files.add([kept - 1], sample)
    assert path.stat().st_size == 16 * kept
    files.add([kept], sample)
    files.close()
    assert values(path) == [each for number in range(kept + 1) for each in (number, 5)]


@given(st.lists(st.integers(0, 3 * 64), max_size=20))
def test_whatever_comes_at_once_stands_in_the_file_once(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[int]
) -> None:
    path = tmp_path_factory.mktemp("rows") / "rows"
    size, taken = 1 << 14, 0
    files = SampleFiles([(path, [(size - 8, "Q"), None])], size)
    for piece in pieces:
        times = range(taken, taken + piece)
        files.add(times, b"".join(bytes(size - 8) + struct.pack("=Q", 3 * time) for time in times))
        assert path.stat().st_size > 24 * (files.rows - 64)
        taken += piece
    files.close()
    assert values(path) == [each for time in range(taken) for each in (time, 3 * time, 0)]
