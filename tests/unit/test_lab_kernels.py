"""Which kernel is booted: the newest that fits this checkout, or a message with the remedy."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from testbed.errors import MachineError
from testbed.lab import kernels
from testbed.lab.kernels import Kernel, built_kernel, cache_dir, distribution_kernel, find_kernel, shim

FRAGMENT = hashlib.sha256(kernels.FRAGMENT.read_bytes()).hexdigest()
SHIM = f"shim-{hashlib.sha256(kernels.SHIM_SOURCE.read_bytes()).hexdigest()[:16]}.so"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KV_KERNEL_CACHE", str(tmp_path))
    (tmp_path / SHIM).touch()
    return tmp_path


def build(cache: Path, key: str, moment: int, **changes: object) -> Path:
    facts = {"version": "6.12.1-kv", "key": key, "recipe": kernels.RECIPE, "fragment_sha256": FRAGMENT}
    folder = cache / key
    folder.mkdir()
    (folder / "linux").touch()
    (folder / "kernel.json").write_text(json.dumps(facts | changes))
    os.utime(folder / "kernel.json", (moment, moment))
    return folder


def test_the_newest_kernel_that_fits_is_taken(cache: Path) -> None:
    build(cache, "b", 100)
    newest = build(cache, "a", 200)
    build(cache, "c", 300, recipe=kernels.RECIPE - 1)
    build(cache, "d", 400, fragment_sha256="0" * 64)
    assert built_kernel() == Kernel(newest / "linux", "6.12.1-kv", True, cache / SHIM, "a")
    assert find_kernel("virtual") == built_kernel()


MISSING = (
    "no kernel with virtual time in {}: run scripts/build-kernel.sh (once, some minutes), "
    "or use --clock real with the distribution's user-mode-linux"
)


@pytest.mark.parametrize(
    "changes",
    [{"recipe": kernels.RECIPE + 1}, {"recipe": None}, {"fragment_sha256": "0" * 64}],
    ids=["another recipe", "no recipe", "another fragment"],
)
def test_a_kernel_of_another_version_is_not_taken(cache: Path, changes: dict[str, object]) -> None:
    build(cache, "a", 100, **changes)
    with pytest.raises(MachineError) as caught:
        built_kernel()
    assert str(caught.value) == MISSING.format(cache)


def test_an_empty_or_absent_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (cache, cache / "absent"):
        monkeypatch.setenv("KV_KERNEL_CACHE", str(folder))
        with pytest.raises(MachineError) as caught:
            find_kernel("virtual")
        assert str(caught.value) == MISSING.format(folder)


@pytest.mark.parametrize("text", ["", "{", "null", "[]"])
def test_a_damaged_description_is_no_kernel(cache: Path, text: str) -> None:
    (build(cache, "a", 100) / "kernel.json").write_text(text)
    assert kernels.newest_kernel() is None


def test_a_kernel_whose_file_is_gone_is_no_kernel(cache: Path) -> None:
    (build(cache, "a", 100) / "linux").unlink()
    assert kernels.newest_kernel() is None


def test_a_kernel_without_its_library_is_not_booted(cache: Path) -> None:
    build(cache, "a", 100)
    (cache / SHIM).unlink()
    assert shim() is None
    with pytest.raises(MachineError) as caught:
        built_kernel()
    assert (
        str(caught.value) == f"no library for the lab kernel in {cache}: run scripts/build-kernel.sh --shim"
    )


def test_the_library_of_another_source_is_not_taken(cache: Path) -> None:
    (cache / SHIM).rename(cache / "shim-0123456789abcdef.so")
    assert shim() is None


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"KV_KERNEL_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"KV_KERNEL_CACHE": "", "XDG_CACHE_HOME": "/b"}, "/b/kv-testbed/kernel"),
        ({"HOME": "/home/me"}, "/home/me/.cache/kv-testbed/kernel"),
    ],
)
def test_the_cache_is_where_the_script_puts_it(
    variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KV_KERNEL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_dir() == Path(folder)
    script = (kernels.PROJECT / "scripts/build-kernel.sh").read_text()
    line = next(line for line in script.splitlines() if line.startswith("cache="))
    done = subprocess.run(["bash", "-c", f"{line}; echo $cache"], capture_output=True, text=True, timeout=20)
    assert done.stdout.strip() == folder


def test_the_recipe_is_that_of_the_script() -> None:
    script = (kernels.PROJECT / "scripts/build-kernel.sh").read_text()
    assert re.findall(r"^recipe=(\d+)$", script, re.MULTILINE) == [str(kernels.RECIPE)]


def test_the_distributions_kernel_has_real_time_only(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = tmp_path / "modules"
    for version in ("6.1.176", "6.1.90"):
        (modules / version).mkdir(parents=True)
    monkeypatch.setattr(kernels, "DISTRIBUTION_MODULES", modules)
    program = _program(tmp_path, "echo 6.1.176")
    monkeypatch.setattr(kernels.shutil, "which", lambda name: program)
    kernel = Kernel(Path(program), "6.1.176", False, cache / SHIM, "6.1.176")
    assert distribution_kernel() == find_kernel("real") == kernel
    (cache / SHIM).unlink()
    assert distribution_kernel().shim is None


def _program(folder: Path, line: str) -> str:
    path = folder / "linux.uml"
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(("there", "modules"), [(False, "6.1.176"), (True, "6.1.90")])
def test_without_the_distributions_kernel_its_package_is_named(
    there: bool, modules: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / modules).mkdir()
    program = _program(tmp_path, "echo 6.1.176") if there else None
    monkeypatch.setattr(kernels, "DISTRIBUTION_MODULES", tmp_path)
    monkeypatch.setattr(kernels.shutil, "which", lambda name: program)
    with pytest.raises(MachineError) as caught:
        distribution_kernel()
    message = "no User-Mode Linux kernel: install the package user-mode-linux (apt install)"
    assert str(caught.value) == message
