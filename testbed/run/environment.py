"""What a run was made with: all that a second person needs to make it again, and all that may differ.

Written into every record as `environment.json`; nothing of it is in `summary.json`. Called by `launch`, and
by the commands that say on which machine something was measured.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from testbed.errors import MachineError
from testbed.lab.kernels import PROJECT, SHIM_SOURCE, Kernel, find_kernel
from testbed.plan.model import Plan

LIBRARIES = ("kv-testbed", "os-ken", "numpy", "pydantic", "jinja2", "pyyaml")
PROGRAMS = ("openvswitch-switch", "iproute2", "mininet", "iperf3", "user-mode-linux")
"""Debian packages whose programs or kernel take part in a run."""


def environment(
    plan: Plan, kernel: Kernel | None, seconds: Mapping[str, float], command: Sequence[str]
) -> dict[str, Any]:
    """Return what made a record. `seconds` are those of its phases, `command` the words that were typed."""
    return {
        "command": list(command),
        "scenario": plan.scenario,
        "seed": plan.seed,
        "backend": plan.backend,
        "clock": plan.clock,
        "framework": plan.framework,
        "kernel": _kernel(kernel),
        "packages": {name: installed(name) for name in LIBRARIES} | debian_packages(PROGRAMS),
        "git": git_state(),
        "machine": {
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "processors": os.cpu_count(),
            "python": platform.python_version(),
        },
        "seconds": dict(seconds),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def made_with() -> dict[str, str]:
    """Return what a page says of the machine that made its figures: a text for each name."""
    try:
        kernel = _kernel(find_kernel("virtual"))
        lab = f"{kernel['version']}, key {kernel['key']}, configuration {str(kernel['config_sha256'])[:16]}"
    except MachineError:
        lab = "none"
    git = git_state()
    commit = "unknown" if git is None else git["commit"] + (" with changes" if git["dirty"] else "")
    packages = {name: installed(name) for name in LIBRARIES[1:3]} | debian_packages(PROGRAMS)
    return {
        "lab kernel": lab,
        "packages": ", ".join(f"{name} {text}" for name, text in packages.items() if text),
        "testbed": f"commit {commit}",
        "machine": f"{platform.system()} {platform.release()}, {os.cpu_count()} processors, "
        f"Python {platform.python_version()}",
    }


def _kernel(kernel: Kernel | None) -> dict[str, Any]:
    """The lab's kernel with hashes of its configuration and of the library it is started with."""
    if kernel is None:
        return {"version": platform.release(), "key": None, "config_sha256": None, "shim_sha256": None}
    return {
        "version": kernel.version,
        "key": kernel.key,
        "config_sha256": _digest(kernel.path.with_name("config")) if kernel.virtual else None,
        "shim_sha256": _digest(SHIM_SOURCE),
    }


def _digest(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def installed(package: str) -> str | None:
    """Return the version of a Python package, None when it is not there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def debian_packages(names: Sequence[str]) -> dict[str, str]:
    """Return the versions of those of the distribution's packages that are there; nothing without dpkg."""
    if shutil.which("dpkg-query") is None:
        return {}
    command = ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    pairs = [line.partition(" ") for line in done.stdout.splitlines()]
    return {name: text for name, _, text in pairs if text}


def git_state() -> dict[str, Any] | None:
    """Return the commit of the testbed's own code and whether files differ from it; None without git."""
    if shutil.which("git") is None:
        return None
    commit = _git("rev-parse", "HEAD")
    if not commit:
        return None
    return {"commit": commit, "dirty": bool(_git("status", "--porcelain", "--untracked-files=no"))}


def _git(*words: str) -> str:
    command = ["git", "-C", str(PROJECT), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
