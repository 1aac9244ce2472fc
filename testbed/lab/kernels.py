"""Finding a User-Mode Linux kernel to boot, and the library it is started with. Runs outside the lab.

Two kinds: the one built by `scripts/build-kernel.sh`, which has virtual time, and the
distribution's, which has real time only. Neither is built or changed here.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.errors import MachineError

PROJECT = Path(__file__).resolve().parents[2]
FRAGMENT = PROJECT / "scripts/kernel/uml.config"
SHIM_SOURCE = PROJECT / "scripts/kernel/uml_shim.c"
SHIM_REMEDY = "scripts/build-kernel.sh --shim"
RECIPE = 7
"""The `recipe` of scripts/build-kernel.sh that this version of the testbed was written for."""

DISTRIBUTION_MODULES = Path("/usr/lib/uml/modules")
MODULES = {
    "openvswitch": "CONFIG_OPENVSWITCH",
    "veth": "CONFIG_VETH",
    "ifb": "CONFIG_IFB",
    "sch_htb": "CONFIG_NET_SCH_HTB",
    "sch_red": "CONFIG_NET_SCH_RED",
    "sch_netem": "CONFIG_NET_SCH_NETEM",
    "sch_ingress": "CONFIG_NET_SCH_INGRESS",
    "sch_fq": "CONFIG_NET_SCH_FQ",
    "cls_u32": "CONFIG_NET_CLS_U32",
    "cls_matchall": "CONFIG_NET_CLS_MATCHALL",
    "act_mirred": "CONFIG_NET_ACT_MIRRED",
    "tcp_dctcp": "CONFIG_TCP_CONG_DCTCP",
    "tcp_bbr": "CONFIG_TCP_CONG_BBR",
    "tcp_diag": "CONFIG_INET_TCP_DIAG",
    "sch_tbf": "CONFIG_NET_SCH_TBF",
    "sch_plug": "CONFIG_NET_SCH_PLUG",
}
"""What a kernel with modules has to load for a lab, and the option of a kernel that has it built in."""


@dataclass(frozen=True)
class Kernel:
    """A kernel that can be booted: `virtual` tells whether it has virtual time."""

    path: Path
    version: str
    virtual: bool
    shim: Path | None
    key: str


def cache_dir() -> Path:
    """Return the folder in which built kernels are kept."""
    chosen = os.environ.get("KV_KERNEL_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kv-testbed" / "kernel"


def shim() -> Path | None:
    """Return the library lab kernels are started with, None when it has not been built."""
    path = cache_dir() / f"shim-{_digest(SHIM_SOURCE)[:16]}.so"
    return path if path.exists() else None


def built_kernel() -> Kernel:
    """Return the newest built kernel that fits this version of the testbed.

    Raises MachineError with the command to type when it, or the library it needs, is missing.
    """
    folder = newest_kernel()
    if folder is None:
        raise MachineError(
            f"no kernel with virtual time in {cache_dir()}: run scripts/build-kernel.sh "
            "(once, some minutes), or use --clock real with the distribution's user-mode-linux"
        )
    library = shim()
    if library is None:
        raise MachineError(f"no library for the lab kernel in {cache_dir()}: run {SHIM_REMEDY}")
    facts = _facts(folder)
    return Kernel(folder / "linux", facts["version"], True, library, facts["key"])


def newest_kernel() -> Path | None:
    """Return the folder of the newest built kernel that fits, None when there is none."""
    folders = [path.parent for path in cache_dir().glob("*/kernel.json") if _fits(path.parent)]
    return max(folders, key=lambda folder: (folder / "kernel.json").stat().st_mtime, default=None)


def _fits(folder: Path) -> bool:
    facts = _facts(folder)
    same = facts.get("recipe") == RECIPE and facts.get("fragment_sha256") == _digest(FRAGMENT)
    return same and (folder / "linux").exists()


def _facts(folder: Path) -> dict[str, Any]:
    """Return what a kernel's build wrote of it; nothing where that cannot be read."""
    try:
        facts = json.loads((folder / "kernel.json").read_text())
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def distribution_kernel() -> Kernel:
    """Return the distribution's kernel; MachineError with the package's name when there is none."""
    path = shutil.which("linux.uml")
    version = _version(path) if path else ""
    if path is None or not (DISTRIBUTION_MODULES / version).is_dir():
        raise MachineError("no User-Mode Linux kernel: install the package user-mode-linux (apt install)")
    return Kernel(Path(path), version, False, shim(), version)


def _version(kernel: str) -> str:
    """Return what the kernel calls itself, which is also the name of its modules' folder."""
    done = subprocess.run([kernel, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def find_kernel(clock: str) -> Kernel:
    """Return the kernel for a clock, `virtual` or `real`; MachineError when it is missing."""
    return built_kernel() if clock == "virtual" else distribution_kernel()
