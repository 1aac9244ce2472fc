"""The `native` backend: the same lab in namespaces of its own on the machine's kernel. Needs root.

Network, mount and process namespaces are new, so the machine's interfaces, its Open vSwitch and its
processes are never touched, and all of the lab ends with its first process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from testbed.errors import MachineError
from testbed.lab.job import Job, prepare, result, watch
from testbed.lab.kernels import MODULES
from testbed.signals import how_ended

# Without -n, mount would note them in the machine's own /run/mount.
_MOUNTS = """mount -n --make-rprivate /
mount -n -t sysfs sysfs /sys
mount -n -t tmpfs tmpfs /run"""

TOOLS = ("unshare", "modprobe", "ovs-vswitchd", "tc", "ip")
"""Programs that the backend cannot do without."""

TERMINAL_INSIDE = "/proc/self/fd/0"
"""The job's terminal is the first process's standard input."""

POLL_S = 0.2
"""How often the running lab is looked at: rarely, for it is measured on the same processors."""


def run_native(job: Job) -> None:
    """Run the job on this kernel and wait for it. Raises as `uml.run_uml` does."""
    problems = missing()
    if problems:
        raise MachineError(f"the native backend cannot run here: {problems[0]}")
    _load_modules()
    record = job.record.resolve()
    prepare(job, record_inside=str(record), mounts=_MOUNTS, own_kernel=False)
    command = [
        "setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--pid", "--fork",
        "--kill-child", "--mount-proc", "sh", str(job.folder.resolve() / "init.sh"),
    ]  # fmt: skip
    log = job.record / "logs/native.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if job.terminal is None else job.terminal,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        watch(job, process, poll_s=POLL_S)
    result(job, f"its first process {how_ended(process.returncode)}; see logs/native.log")


def missing() -> list[str]:
    """Return why the native backend cannot run here, one sentence each; empty when it can."""
    if os.geteuid():
        return ["it needs root: use sudo, or --backend uml"]
    problems = [f"no {tool}: run scripts/setup.sh" for tool in TOOLS if shutil.which(tool) is None]
    if not problems:
        absent = _missing_modules()
        if absent:
            problems.append(f"the kernel has no {', '.join(absent)}: {_OTHER_KERNEL}")
    return problems


_OTHER_KERNEL = "boot a kernel with these modules, or use --backend uml or scripts/vm.sh"


def _missing_modules() -> list[str]:
    return [name for name in MODULES if not _present(name) and not _loadable(name)]


def _loadable(module: str) -> bool:
    done = subprocess.run(["modprobe", "-n", "-q", module], capture_output=True, check=False)
    return not done.returncode


def _present(module: str) -> bool:
    return Path("/sys/module", module).exists()


def _load_modules() -> None:
    absent = [name for name in MODULES if not _present(name)]
    if not absent:
        return
    done = subprocess.run(["modprobe", "-a", *absent], capture_output=True, text=True, check=False)
    if done.returncode:
        raise MachineError(f"modprobe: {done.stderr.strip().splitlines()[0]}")
