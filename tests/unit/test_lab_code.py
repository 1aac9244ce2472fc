"""The lab's modules, compiled for each run: the same bytes whoever runs it, whatever the checkout has."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.lab import code
from testbed.lab.kernels import PROJECT


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_every_module_is_there_compiled_and_no_source(tmp_path: Path) -> None:
    code.put_code(tmp_path)
    found = digests(tmp_path)
    assert {"testbed/__init__.pyc", "testbed/run/inside.pyc", "traffic/roce/packets.pyc"} <= found.keys()
    assert {Path(name).suffix for name in found} == {".pyc"}
    sources = [path for name in code.FOLDERS for path in (PROJECT / name).rglob("*.py")]
    assert len(found) == len(sources) + len(list((PROJECT / "testbed").glob("*.py")))


def test_what_else_the_process_holds_and_its_hash_seed_do_not_move_a_byte(tmp_path: Path) -> None:
    code.put_code(tmp_path / "here")
    other = (
        f"import pathlib, testbed.lab.code as code; code.put_code(pathlib.Path({str(tmp_path)!r}, 'other'))"
    )
    environment = {"PYTHONPATH": str(PROJECT), "PYTHONHASHSEED": "7", "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTHONOPTIMIZE"] = "2"
    subprocess.run([sys.executable, "-S", "-c", other], env=environment, check=True, timeout=60)
    assert digests(tmp_path / "here") == digests(tmp_path / "other")


def test_compiled_files_beside_the_sources_are_neither_read_nor_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / "checkout"
    for name in ("testbed", *code.FOLDERS):
        (checkout / name / "__pycache__").mkdir(parents=True)
    source = checkout / "testbed/lab/part.py"
    source.write_text("WORD = 'new'\n")
    stale = checkout / "testbed/lab/__pycache__" / f"part.{sys.implementation.cache_tag}.pyc"
    stale.write_bytes(b"stale")
    monkeypatch.setattr(code, "PROJECT", checkout)
    code.put_code(tmp_path / "job")
    assert (stale.read_bytes(), list(stale.parent.iterdir())) == (b"stale", [stale])
    words = "import testbed.lab.part as part; print(part.WORD)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", words],
        env={"PYTHONPATH": str(tmp_path / "job")}, cwd="/", capture_output=True, text=True, timeout=20,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("new\n", "")


def test_a_traceback_names_the_source(tmp_path: Path) -> None:
    source = tmp_path / "broken.py"
    source.write_text("def fail():\n    raise ValueError\n")
    (tmp_path / "job").mkdir()
    (tmp_path / "job/broken.pyc").write_bytes(code.compiled(source))
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import broken; broken.fail()"],
        env={"PYTHONPATH": str(tmp_path / "job")}, cwd="/", capture_output=True, text=True, timeout=20,
    )  # fmt: skip
    assert f'File "{source}", line 2, in fail' in done.stderr
