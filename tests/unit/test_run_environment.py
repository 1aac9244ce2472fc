"""What a record says it was made with: the kernel's configuration wherever there is one, and the commit."""

from __future__ import annotations

import gzip
import hashlib
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import pytest

from testbed.lab.kernels import Kernel
from testbed.run import environment as module
from testbed.run.environment import environment, git_state
from tests.support.lab import small_plan

CONFIG = b"CONFIG_OPENVSWITCH=y\n"
DIGEST = hashlib.sha256(CONFIG).hexdigest()
NOBODY = 65534


def kernel_of(kernel: Kernel | None) -> dict[str, Any]:
    found: dict[str, Any] = environment(small_plan(), "name: small\n", kernel, {}, ())["kernel"]
    return found


def test_a_built_kernel_has_its_configuration_beside_it(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(CONFIG)
    found = kernel_of(Kernel(tmp_path / "linux", "6.12-kv", True, None, "0123"))
    assert (found["version"], found["key"], found["config_sha256"]) == ("6.12-kv", "0123", DIGEST)


@pytest.mark.parametrize(("status", "digest"), [(0, DIGEST), (1, None)])
def test_the_distributions_guest_kernel_prints_its_configuration(
    tmp_path: Path, status: int, digest: str | None
) -> None:
    program = tmp_path / "linux.uml"
    program.write_text(f'#!/bin/sh\n[ "$1" = --showconfig ] && printf "{CONFIG.decode()}"\nexit {status}\n')
    program.chmod(0o755)
    assert kernel_of(Kernel(program, "6.1", False, None, "6.1"))["config_sha256"] == digest
    assert kernel_of(Kernel(tmp_path / "none", "6.1", False, None, "6.1"))["config_sha256"] is None


def test_the_machines_own_kernel_says_it_in_one_of_two_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, installed = tmp_path / "config.gz", tmp_path / f"config-{platform.release()}"
    monkeypatch.setattr(module, "RUNNING_CONFIG", running)
    monkeypatch.setattr(module, "INSTALLED_CONFIG", str(tmp_path / "config-{release}"))
    assert kernel_of(None)["config_sha256"] is None
    installed.write_bytes(CONFIG + b"#\n")
    assert kernel_of(None)["config_sha256"] == hashlib.sha256(CONFIG + b"#\n").hexdigest()
    running.write_bytes(gzip.compress(CONFIG))
    assert kernel_of(None) == {
        "version": platform.release(), "key": None, "config_sha256": DIGEST, "shim_sha256": None,
    }  # fmt: skip


def test_the_commit_is_told_to_another_user_than_the_checkouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    (tmp_path / "file").write_text("one\n")
    for words in (["init", "-q"], ["add", "file"], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], check=True, timeout=60)
    monkeypatch.setattr(module, "PROJECT", tmp_path)
    own = git_state()
    assert own is not None
    assert (len(own["commit"]), own["dirty"]) == (40, False)
    if os.geteuid() == 0:
        os.chown(tmp_path, NOBODY, NOBODY)
        os.chown(tmp_path / ".git", NOBODY, NOBODY)
    (tmp_path / "file").write_text("two\n")
    assert git_state() == own | {"dirty": True}
