"""The `native` backend: the same lab in namespaces of its own on the machine's kernel. Needs root.

Network, mount and process namespaces are new, so the machine's interfaces, its Open vSwitch and its
processes are never touched, and all of the lab ends with its first process.
"""

from __future__ import annotations

import subprocess

from testbed.errors import MachineError
from testbed.lab.job import Job, prepare, result, watch
from testbed.lab.kernels import MODULES
from testbed.machine import LOADABLE, Machine
from testbed.signals import how_ended

# Without -n, mount would note them in the machine's own /run/mount.
_MOUNTS = """mount -n --make-rprivate /
mount -n -t sysfs sysfs /sys
mount -n -t tmpfs tmpfs /run"""

TERMINAL_INSIDE = "/proc/self/fd/0"
"""The job's terminal is the first process's standard input."""

POLL_S = 0.2
"""How often the running lab is looked at: rarely, for it is measured on the same processors."""


def run_native(job: Job) -> None:
    """Run the job on this kernel, which lacks nothing (`preflight`), and wait for it.

    Raises as `uml.run_uml` does.
    """
    _load_modules(Machine())
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


def _load_modules(machine: Machine) -> None:
    absent = [name for name, option in MODULES.items() if machine.kernel_module(name, option) == LOADABLE]
    if not absent:
        return
    done = subprocess.run(["modprobe", "-a", *absent], capture_output=True, text=True, check=False)
    if done.returncode:
        raise MachineError(f"modprobe: {done.stderr.strip().splitlines()[0]}")
