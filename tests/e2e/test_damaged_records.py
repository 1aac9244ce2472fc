"""A record that was damaged afterwards: whatever file, whatever damage, each command says what is wrong.

One small run makes the record; every file of it is removed, emptied, cut and has bits flipped. What is made
from a record (the summary, tables, the page) is made again by `report` and no damage to it.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import cli
from testbed.record import layout
from testbed.repeat import again
from tests.support.command import run, write_scenario

REMADE = (*layout.DERIVED, layout.ENVIRONMENT)
"""Files that no checksum is held against."""

FLIPS = 2
LIMIT_S = 10


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record with departures and a capture in it."""
    folder = tmp_path_factory.mktemp("whole")
    sets = ["workload.requests.kv_bytes=256kib", "measure.departures=[leaf2-d1]"]
    run(folder / "record", write_scenario(folder), "--capture", "leaf2-d1", "--snaplen", "64", sets=sets)
    return folder / "record"


def damages(content: bytes, chance: random.Random) -> Iterator[tuple[str, bytes | None]]:
    """Yield what may become of a file, with a name for it; None where it is gone."""
    size = len(content)
    yield "removed", None
    if not size:
        return
    for at in sorted({0, size // 3, size - 1}):
        yield f"cut at {at}", content[:at]
    for _ in range(FLIPS):
        at, bit = chance.randrange(size), chance.randrange(8)
        flipped = bytearray(content)
        flipped[at] ^= 1 << bit
        yield f"bit {bit} of byte {at} flipped", bytes(flipped)


def damaged(whole: Path, folder: Path, name: Path, content: bytes | None) -> Path:
    """Return a copy of the record in which file `name` has that content."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    return folder


def files(record: Path) -> list[Path]:
    return sorted(
        path.relative_to(record) for path in record.rglob("*") if path.is_file() and path.name != ".lock"
    )


def said(capture: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str]:
    """Run a command here; return its exit code and what it said on standard error."""
    code = cli.main([str(word) for word in words])
    return code, capture.readouterr().err


def test_no_damage_is_a_traceback_and_none_goes_unsaid(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def same_again(_plan: object, _scenario: str, out: Path, *_: object, **__: object) -> None:
        shutil.copytree(whole, out)

    monkeypatch.setattr(again, "run_plan", same_again)
    chance, seen = random.Random(1), 0
    for name in files(whole):
        content = (whole / name).read_bytes()
        for what, left in damages(content, chance):
            seen += 1
            record = damaged(whole, tmp_path / "record", name, left)
            context = f"{name} {what}"
            for words, codes in (
                (("compare", whole, record), (0, 2, 4)),
                (("rerun", record), (0, 2, 4)),
                (("report", record), (0, 2, 4)),
            ):
                code, errors = said(capsys, *words)
                assert code in codes, context
                assert len(errors.splitlines()) == (code != 0), f"{context}: {errors}"
                if words[0] == "report" and code == 0:
                    # Nothing that counts was lost: a manifest without its last line break is still one.
                    assert str(name) in REMADE or str(name) == layout.MANIFEST, context
                if words[0] == "report" and code == 4:
                    assert json.loads((record / layout.SUMMARY).read_text())["fidelity"]["valid"] is False
                    assert (record / layout.REPORT).read_text().endswith("</html>\n")
    assert seen > 100


def test_what_is_damaged_is_named_and_the_rest_is_shown(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = damaged(whole, tmp_path / "record", Path(layout.OUTCOMES), None)
    code = cli.main(["report", str(record)])
    shown, errors = capsys.readouterr()
    assert code == 4
    assert errors == f"testbed: {record}: the record is damaged: raw/outcomes.json is missing\n"
    assert "leaf2-d1" in shown
    code, errors = said(capsys, "rerun", record)
    reason = "raw/outcomes.json is missing; what it says is not repeated"
    assert (code, errors) == (2, f"testbed: {record}: the record is damaged: {reason}\n")


def test_without_its_manifest_the_rest_is_shown(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = damaged(whole, tmp_path / "record", Path(layout.MANIFEST), None)
    code, errors = said(capsys, "report", record)
    assert (code, errors) == (4, f"testbed: {record}: the record is damaged: manifest.json is missing\n")
    assert json.loads((record / layout.SUMMARY).read_text())["transfers"]["completed"] == 2
