"""What can be asked about the machine without changing it: programs, files, memory, modules.

Not the lab and no judgement: `testbed.doctor` and `testbed.lab.preflight` decide what the answers mean.
All they know about a machine comes through here, so that a test can describe another one.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path

PROBE_TIMEOUT_S = 30.0
_GROUP = Path("/sys/fs/cgroup")

LOADABLE = "can be loaded"
"""How a kernel has a module that modprobe finds and nobody has loaded."""


class Machine:
    """This machine. Every method answers, none raises: what cannot be found out is absent."""

    @property
    def python_version(self) -> tuple[int, ...]:
        return tuple(sys.version_info[:3])

    @property
    def effective_uid(self) -> int:
        return os.geteuid()

    def which(self, program: str) -> str | None:
        """The program's path; the sbin folders count although a user's PATH may lack them."""
        path = os.environ.get("PATH", os.defpath)
        return shutil.which(program, path=f"{path}:/usr/local/sbin:/usr/sbin:/sbin")

    def run(self, command: list[str]) -> tuple[int, str]:
        """Exit status and last line of output of a short command; -1 when it cannot be run."""
        try:
            done = subprocess.run(
                command,
                check=False,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PROBE_TIMEOUT_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return -1, str(error)
        lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
        return done.returncode, lines[-1] if lines else ""

    def entries(self, folder: str) -> list[str]:
        """The names in a folder, sorted."""
        return sorted(path.name for path in Path(folder).glob("*"))

    def guest_memory_folders(self) -> list[str]:
        """Those that may hold a guest's memory file, writable and exec, the best first."""
        candidates = (os.environ.get("TMPDIR"), "/dev/shm", "/tmp")
        return [folder for folder in candidates if folder and _takes_executables(folder)]

    def guest_memory_folder(self, need_bytes: int) -> str | None:
        """Where the lab puts the guest's memory file: the first of these that is writable, exec and has the
        room; the first that is writable and exec where none has."""
        usable = self.guest_memory_folders()
        roomy = [folder for folder in usable if self.free_bytes(folder) >= need_bytes]
        return next(iter(roomy or usable), None)

    def available_memory_bytes(self) -> int | None:
        """Memory that programs can still have, in this container if there is one; None: not known."""
        known = [int(size.split()[0]) << 10 for size in _values("/proc/meminfo", "MemAvailable:")]
        limit, used = (_text(_GROUP / name).strip() for name in ("memory.max", "memory.current"))
        if limit.isdigit() and used.isdigit():
            # Files that were read count as used, and give way.
            files = sum(map(int, _values(_GROUP / "memory.stat", "inactive_file")))
            known.append(int(limit) - int(used) + files)
        return min(known, default=None)

    def most_maps(self) -> int | None:
        """Stretches of memory that a process may have; None: not known."""
        limit = _text(Path("/proc/sys/vm/max_map_count")).strip()
        return int(limit) if limit.isdigit() else None

    def free_bytes(self, folder: str) -> int:
        """Bytes free for this user on the folder's file system; 0 when there is no such folder."""
        try:
            status = os.statvfs(folder)
        except OSError:
            return 0
        return status.f_bavail * status.f_frsize

    def kernel_module(self, module: str, option: str) -> str | None:
        """How the running kernel has `module`: loaded, built in (also by its `option`), or to be loaded."""
        if Path("/sys/module", module).exists():
            return "loaded or built in"
        folder = Path("/lib/modules", os.uname().release)
        built_in = _text(folder / "modules.builtin").splitlines()
        if any(line.endswith(f"/{module}.ko") for line in built_in) or f"{option}=y" in _configuration():
            return "built in"
        if self.which("modprobe") and self.run(["modprobe", "-n", "-q", module])[0] == 0:
            return LOADABLE
        return None


def _takes_executables(folder: str) -> bool:
    return os.access(folder, os.W_OK) and not os.statvfs(folder).f_flag & os.ST_NOEXEC


def _values(path: Path | str, key: str) -> list[str]:
    """Return what stands behind `key` in a file of lines: nothing, or one text."""
    lines = _text(Path(path)).splitlines()
    return [line.removeprefix(key).strip() for line in lines if line.split()[:1] == [key]]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _configuration() -> list[str]:
    try:
        return gzip.decompress(Path("/proc/config.gz").read_bytes()).decode(errors="replace").splitlines()
    except OSError:
        return _text(Path("/boot", f"config-{os.uname().release}")).splitlines()
