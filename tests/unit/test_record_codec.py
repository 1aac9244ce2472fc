"""Columns of a long file are read piece by piece, and what was read does not stay in memory."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from testbed.record.codec import TEXT_BYTES_MAX, Damage, columns, open_rows, read_text
from testbed.record.reader import Record
from tests.support.synthetic import incast, write_record

WIDE = 64


@pytest.fixture
def table(tmp_path: Path) -> np.ndarray:
    values = np.arange(100_000 * WIDE, dtype="<i8").reshape(-1, WIDE)
    values.tofile(tmp_path / "rows.bin")
    return values


def mapped_mb() -> float:
    """Memory of this process that stands for files."""
    found = re.search(r"^RssFile:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1000


def test_columns_are_those_of_the_rows_whether_mapped_or_not(table: np.ndarray, tmp_path: Path) -> None:
    mapped, left_over = open_rows(tmp_path, "rows.bin", WIDE)
    assert left_over == 0
    for rows in (mapped, table):
        found = columns(rows, 3, 2)
        assert found.shape == (2, 100_000)
        assert np.array_equal(found, table[:, 3:5].T)
        assert found.flags.c_contiguous
    assert columns(table[:0], 0, 1).shape == (1, 0)


def test_a_long_file_does_not_stay_in_memory(table: np.ndarray, tmp_path: Path) -> None:
    rows, _ = open_rows(tmp_path, "rows.bin", WIDE)
    before = mapped_mb()
    columns(rows, 0, 1)
    assert mapped_mb() - before < 10  # of 51 MB, every page of which was read


def test_a_short_text_takes_little_memory(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}\n")
    tracemalloc.start()
    try:
        assert read_text(tmp_path, "manifest.json") == "{}\n"
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1 << 20


def test_a_text_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "manifest.json").open("wb") as file:
        file.truncate(TEXT_BYTES_MAX + 1)  # a hole: it takes no room
    with pytest.raises(Damage, match=r"^manifest\.json is larger than \d+ MiB$"):
        read_text(tmp_path, "manifest.json")


def test_links_of_a_group_share_their_times_and_nobody_changes_them(tmp_path: Path) -> None:
    record = Record.open(write_record(tmp_path, incast(senders=2, size=1 << 20)))
    first, second = (record.series(name).time_ns for name in ("leaf3-d1", "leaf1-spine1"))
    assert first is second
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 0
