"""All of `testbed run` works for a user without root.

Run as root, the commands are those of the user `nobody`, in folders of that user; run by anybody else,
they are that person's own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testbed.lab.kernels import cache_dir
from tests.support.command import SMALL, Machine, Run, command, run, write_scenario

pytestmark = pytest.mark.ovs

ROOT = Path(__file__).parents[2]
REAL_SCENARIO = ROOT / "tests/data/scenarios/good/small-incast.yaml"
NOBODY = 65534
LIMIT_S = 150


@dataclass(frozen=True)
class User:
    """Somebody without root, with a home that they alone can write to."""

    uid: int
    gid: int
    home: Path

    def call(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Run the command as this user, in their home."""
        return self.do(command(*words))

    def do(self, words: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program as this user, in their home."""
        as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            as_user = {"user": self.uid, "group": self.gid, "extra_groups": []}
        kernels = self.home / "kernels"
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.home), "KV_KERNEL_CACHE": str(kernels)}
        return subprocess.run(
            words,
            cwd=self.home,
            env=environment | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            **as_user,
        )


@pytest.fixture(scope="module")
def user() -> Iterator[User]:
    # Not below pytest's own folder: that one only its owner may enter.
    home = Path(tempfile.mkdtemp(prefix="testbed-user-", dir="/tmp"))
    try:
        shutil.copytree(cache_dir(), home / "kernels", ignore=shutil.ignore_patterns(".build-*", ".lock"))
        root = os.geteuid() == 0
        somebody = User(NOBODY if root else os.geteuid(), NOBODY if root else os.getegid(), home)
        for path in [home, *home.rglob("*")]:
            os.chown(path, somebody.uid, somebody.gid)
        seen = somebody.do([sys.executable, "-c", f"open({str(ROOT / 'testbed/cli.py')!r})"])
        assert seen.returncode == 0, f"user {somebody.uid} cannot read the checkout {ROOT}: {seen.stderr}"
        yield somebody
    finally:
        shutil.rmtree(home)


def another_checkout(folder: Path) -> Path:
    """Copy the project to where the user may read it, without what has been compiled beside the sources."""
    for name in ("testbed", "traffic", "controller", "topologies", "scripts"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_a_run_in_virtual_time_and_what_it_leaves(user: User, tmp_path: Path) -> None:
    before, scenario = Machine(), write_scenario(user.home, SMALL)
    checkout = another_checkout(user.home / "a checkout elsewhere")
    words = command("run", scenario, "--out", "virtual")
    done = user.do(words, PYTHONPATH=str(checkout), PYTHONDONTWRITEBYTECODE="1")
    assert done.returncode == 0, done.stderr
    assert list(checkout.rglob("*.pyc")) == []
    out = user.home / "virtual"
    before.assert_clean(out)
    assert {path.stat().st_uid for path in [out, *out.rglob("*")]} == {user.uid}
    # Who runs it, from where, is no part of the result.
    own = run(tmp_path / "record", scenario)
    for name in ("summary.json", "transfers.csv", "raw/samples-fabric.bin"):
        assert (out / name).read_bytes() == (own.out / name).read_bytes()


def test_a_run_on_the_real_clock(user: User) -> None:
    few = ("--set", "workload.requests.kv_bytes=256kib", "--set", "dilation=1000")
    done = user.call("run", REAL_SCENARIO, *few, "--clock", "real", "--out", "real")
    assert done.returncode in (0, 1, 4), done.stderr  # a busy machine may make it invalid
    summary = Run(done, user.home / "real").summary
    assert (summary["backend"], summary["clock"]) == ("uml", "real")
    assert (summary["transfers"]["completed"], summary["fidelity"]["checks"][0]["ok"]) == (4, True)


def test_records_go_to_the_folder_the_user_is_in(user: User) -> None:
    done = user.call("run", write_scenario(user.home, SMALL), "--json")
    assert done.returncode == 0, done.stderr
    (record,) = (user.home / "runs").iterdir()
    assert json.loads(done.stdout) == json.loads((record / "summary.json").read_text())


def test_a_folder_that_may_not_be_written_is_named(user: User) -> None:
    done = user.call("run", write_scenario(user.home, SMALL), "--out", "/usr/record")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "testbed: /usr/record: cannot be written: Permission denied; give another --out\n"


def test_the_native_backend_says_that_it_needs_root(user: User) -> None:
    done = user.call("run", REAL_SCENARIO, "--backend", "native", "--out", "native")
    assert (done.returncode, done.stdout) == (3, "")
    # What else this machine lacks comes after it, in the same line.
    assert done.stderr.startswith(
        "testbed: the native backend cannot run here: no root: run as root (sudo), or use the backend uml"
    )
    assert done.stderr.count("\n") == 1
    assert not (user.home / "native").exists()


def test_doctor_tells_the_user_which_backends_they_can_use(user: User) -> None:
    done = user.call("doctor", "--json")
    assert done.returncode == 0, done.stderr
    backends = json.loads(done.stdout)["backends"]
    assert backends == {"uml/virtual": True, "uml/real": True, "native": False}
