"""What a run was made with: all that a second person needs to make it again, and all that may differ.

Written into every record as `environment.json`; nothing of it is in `summary.json`. Called by `launch`, and
by the commands that say on which machine something was measured.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import platform
import shutil
import subprocess
import time
import zlib
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

RUNNING_CONFIG = Path("/proc/config.gz")
INSTALLED_CONFIG = "/boot/config-{release}"
"""Where the machine's own kernel says how it was configured, or else its package."""


def environment(
    plan: Plan,
    scenario: str,
    kernel: Kernel | None,
    seconds: Mapping[str, float],
    command: Sequence[str],
) -> dict[str, Any]:
    """Return what made a record. `scenario` is the text with all that it extends and all settings in it,
    `seconds` are those of its phases, `command` the words that were typed."""
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
        "resolved_scenario": scenario,
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
        config = _machine_config()
        return {"version": platform.release(), "key": None, "config_sha256": config, "shim_sha256": None}
    return {
        "version": kernel.version,
        "key": kernel.key,
        "config_sha256": _guest_config(kernel),
        "shim_sha256": _digest(SHIM_SOURCE),
    }


def _guest_config(kernel: Kernel) -> str | None:
    """The hash of what a guest kernel was configured with: the build keeps it beside it, the distribution's
    prints it."""
    if kernel.virtual:
        return _digest(kernel.path.with_name("config"))
    try:
        done = subprocess.run([str(kernel.path), "--showconfig"], capture_output=True, check=False)
    except OSError:
        return None
    return hashlib.sha256(done.stdout).hexdigest() if done.returncode == 0 and done.stdout else None


def _machine_config() -> str | None:
    """The hash of what the machine's own kernel was configured with, None where it does not say."""
    try:
        return hashlib.sha256(gzip.decompress(RUNNING_CONFIG.read_bytes())).hexdigest()
    except (OSError, EOFError, zlib.error):
        return _digest(Path(INSTALLED_CONFIG.format(release=platform.release())))


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
    # Git looks into a folder of another user only when told that it may.
    command = ["git", "-c", f"safe.directory={PROJECT}", "-C", str(PROJECT), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
