"""`scripts/vm.sh`: Debian's own kernel with its modules in a virtual machine, and the native backend in it.

Where KVM does not boot, QEMU emulates the processor: a minute of its time in all. Its clock counts
instructions while it computes, but a machine that is busy with something else still delays its timers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import OF_TIME, failed_checks

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/vm.sh"
SCENARIO = ROOT / "tests/data/scenarios/good/small-incast.yaml"
DILATION = 2000
LIMIT_S = 570
BUSY_LOAD = 3.0
"""Processes for each processor from which on emulating one more cannot be expected to end in time."""

CACHE = Path(os.environ.get("KV_VM_CACHE") or Path.home() / ".cache/kv-testbed/vm")


def vm(folder: Path, *words: str, limit_s: int = 60, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SCRIPT), *words], cwd=folder, env={**os.environ, **settings}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=limit_s,
    )  # fmt: skip


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The record of a small incast in the virtual machine, and what the command said."""
    if shutil.which("qemu-system-x86_64") is None or not list(CACHE.glob("*/complete")):
        pytest.skip("announced: no QEMU or no kernel for it here: scripts/setup.sh vm")
    folder = tmp_path_factory.mktemp("vm")
    words = ("run", str(SCENARIO), "--set", f"dilation={DILATION}", "--out", "record")
    done = vm(folder, *words, limit_s=LIMIT_S + 10, KV_VM_TIMEOUT_S=str(LIMIT_S))
    if done.returncode == 3 and os.getloadavg()[0] > BUSY_LOAD * (os.cpu_count() or 1):
        pytest.skip(f"announced: too busy a machine to emulate another one within {LIMIT_S} s")
    assert (folder / "record/summary.json").exists(), done.stderr
    return {
        "folder": folder,
        "done": done,
        "summary": json.loads((folder / "record/summary.json").read_text()),
        "facts": json.loads((folder / "record/raw/facts.json").read_text()),
        "outcomes": json.loads((folder / "record/raw/outcomes.json").read_text()),
    }


@pytest.mark.slow
@pytest.mark.ovs
@pytest.mark.timeout(600)
def test_the_kernel_is_debians_own_and_the_backend_native(ran: dict[str, Any]) -> None:
    summary = ran["summary"]
    assert (summary["backend"], summary["clock"], summary["dilation"]) == ("native", "real", DILATION)
    kernel = ran["facts"]["versions"]["kernel"]
    assert (CACHE / kernel / "complete").exists()
    assert kernel != os.uname().release


@pytest.mark.slow
@pytest.mark.ovs
def test_the_whole_incast_ran_over_dctcp_and_red(ran: dict[str, Any]) -> None:
    summary = ran["summary"]
    assert (summary["transfers"]["completed"], summary["verdict"]["segment"]) == (4, "dest-leaf")
    assert summary["links"]["leaf2-d1"]["ce_marks"] > 0
    used = [(outcome["congestion_control"], outcome["ecn"]) for outcome in ran["outcomes"]]
    assert used == [({"sender": "dctcp", "receiver": "dctcp"}, True)] * 4
    assert [item for item in ran["facts"]["readback"] if not item["ok"]] == []


@pytest.mark.slow
@pytest.mark.ovs
def test_its_status_comes_out_and_it_is_valid_or_says_why_not(ran: dict[str, Any]) -> None:
    fidelity = ran["summary"]["fidelity"]
    assert ran["done"].returncode == (0 if fidelity["valid"] else 4), ran["done"].stderr
    # The only excuse: a machine busy with something else.
    assert failed_checks(ran["summary"]) <= OF_TIME


# ---- without a machine ----------------------------------------------------------------


def test_without_a_kernel_it_says_what_to_run(tmp_path: Path) -> None:
    done = vm(tmp_path, "doctor", KV_VM_CACHE=str(tmp_path / "none"))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"vm: no kernel in {tmp_path}/none: run scripts/setup.sh vm\n"


def test_in_the_root_folder_it_is_refused() -> None:
    done = vm(Path("/"), "doctor")
    assert done.returncode == 3
    assert done.stderr == "vm: call it in a folder of yours: all of the one it is called in can be written\n"


@pytest.mark.parametrize("words", [(), ("--help",)])
def test_it_explains_itself(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = vm(tmp_path, *words)
    assert done.returncode == 2
    assert done.stderr.startswith("Runs `testbed` in a virtual machine: QEMU with Debian's own kernel")
    assert "set -euo" not in done.stderr


# ---- Vagrant --------------------------------------------------------------------------


def test_the_vagrantfile_is_valid(tmp_path: Path) -> None:
    if shutil.which("vagrant") is None:
        pytest.skip("announced: no vagrant here (in Debian 12: apt install vagrant)")
    done = subprocess.run(
        # Whether VirtualBox or libvirt is there is not the question.
        ["vagrant", "validate", "--ignore-provider"], cwd=ROOT, capture_output=True, text=True, timeout=60,
        env={**os.environ, "VAGRANT_HOME": str(tmp_path), "VAGRANT_DOTFILE_PATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.endswith("Vagrantfile validated successfully.\n")
