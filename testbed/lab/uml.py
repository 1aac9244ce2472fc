"""The `uml` backend: boots a User-Mode Linux kernel on the machine's own files. Runs outside the lab.

The guest's root is the machine's root, read-only; the record's directory is its only writable folder.
Nothing of the run may stand on the kernel's command line, because the kernel mixes that into its
random pool: the guest finds its job as the working directory of the process it runs in.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path

from testbed.errors import LabError, MachineError
from testbed.lab.guest_memory import Memory, memory_dir, naming_shortage
from testbed.lab.job import JOB_DIR, Job, prepare, result, watch
from testbed.lab.kernels import DISTRIBUTION_MODULES, MODULES, PROJECT, Kernel
from testbed.lab.processors import goes_first, processor_of_its_own
from testbed.signals import how_ended

RECORD_INSIDE = "/mnt"
TERMINAL_INSIDE = "/dev/tty1"
SHIM_LINK = "uml_shim.so"
HIDDEN = ("/proc", "/sys", "/dev", "/run", "/mnt")
"""Folders the guest covers with its own; the project must not live below one of them."""

EPOCH_S = 1_700_000_000
"""What the guest's calendar says at boot in virtual time; any constant does."""

# With -n and -i mount neither asks for the machine's own /run/mount nor for helpers: what is there or not
# would decide what a guest's first programs do.
_MOUNT = "mount -n -i"
_MOUNTS = f"""{_MOUNT} -t proc proc /proc
echo 1 >/proc/sys/vm/panic_on_oom
{_MOUNT} -t sysfs sysfs /sys
mountpoint -q /dev || {_MOUNT} -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts
{_MOUNT} -t devpts devpts /dev/pts
{_MOUNT} -t tmpfs tmpfs /run"""

LIBRARIES = Path("/etc/ld.so.cache")
LIBRARIES_ROOM = 1 << 20
"""The machine's list of libraries is mapped in front of them into every program: its length decides where
they lie, and with it in what order a program goes through what it keeps by address. A guest in virtual time
is shown it with so many bytes, which is more than a list has, or a multiple."""

_PANICS = {
    "sleep forever": "nothing in the lab will ever happen again (every program waits for another)",
    "time goes backwards": "the guest's virtual clock went backwards",
    "Bus error - the host": "no room for the guest's memory in {memory}: free some there, or set TMPDIR",
    "out of memory on the host side": "the machine gave the guest no more memory (a limit of it)",
    "Out of memory": "the guest ran out of memory",
    "Kernel panic": "the guest kernel panicked",
}


def run_uml(job: Job, kernel: Kernel, memory: Memory) -> None:
    """Boot the guest, let it run the job and wait for it.

    Raises LabError (or what the lab reported) when it failed or was short of memory, DeadlineError when it
    took too long.
    """
    _check_places()
    mounts = "\n".join([*_show_libraries(kernel), _MOUNTS]) + _load_modules(kernel)
    prepare(job, record_inside=RECORD_INSIDE, mounts=mounts, own_kernel=True)
    link_shim(job.folder, kernel)
    if kernel.virtual:
        _put_libraries(job.folder)
    console = job.record / "logs/guest-kernel.log"
    with console.open("wb") as output:
        process = subprocess.Popen(
            command(kernel, memory.mebibytes, terminal=job.terminal is not None),
            cwd=job.record,
            env=_environment(job, kernel, memory.folder),
            stdin=subprocess.DEVNULL if job.terminal is None else job.terminal,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        said = partial(console.read_text, errors="replace")
        with naming_shortage(memory, said):
            with processor_of_its_own(process.pid):
                if not kernel.virtual:
                    goes_first(process.pid)
                watch(job, process)
            result(job, explain(said(), process.returncode))


def link_shim(folder: Path, kernel: Kernel) -> None:
    """Link the library a kernel is started with into a job's folder, where `command` expects it."""
    if kernel.shim is not None:
        (folder / SHIM_LINK).symlink_to(kernel.shim.resolve())


def _put_libraries(folder: Path) -> None:
    """Put the machine's list of libraries into a job's folder, in the length it always has there."""
    listed = LIBRARIES.read_bytes()
    (folder / LIBRARIES.name).write_bytes(listed)
    os.truncate(folder / LIBRARIES.name, -(-len(listed) // LIBRARIES_ROOM) * LIBRARIES_ROOM)


def _show_libraries(kernel: Kernel) -> list[str]:
    return [f"{_MOUNT} --bind {RECORD_INSIDE}/{JOB_DIR}/{LIBRARIES.name} {LIBRARIES}"] * kernel.virtual


def command(kernel: Kernel, memory_mb: int, *, terminal: bool = False) -> list[str]:
    """Return the guest's command line: the same for every run of a kernel and memory size.

    With `terminal` the process's standard input is the guest's `TERMINAL_INSIDE`.
    """
    mount = f"{_MOUNT} -t hostfs none {RECORD_INSIDE} -o /proc/self/cwd"
    first = f"{mount} && exec sh {RECORD_INSIDE}/{JOB_DIR}/init.sh"
    # By a link in the job's folder: LD_PRELOAD takes no path with a space or a colon.
    shim = ["env", f"LD_PRELOAD={JOB_DIR}/{SHIM_LINK}"] if kernel.shim else []
    # Programs lie at the same addresses in every run, whatever random numbers were drawn before.
    time_travel = (
        ["time-travel=inf-cpu", f"time-travel-start={EPOCH_S}", "norandmaps"] if kernel.virtual else []
    )
    return [
        "setpriv", "--pdeathsig", "KILL", "setarch", "-R", *shim, str(kernel.path),
        f"mem={memory_mb}M", "rootfstype=hostfs", "rootflags=/", "ro",
        "con=null", "con0=null,fd:1", "ssl=null", f"uml_dir={JOB_DIR}/", "umid=uml",
        *(["con1=fd:0"] if terminal else []),
        *time_travel,
        "init=/bin/sh", "--", "-c", f'"{first}"',
    ]  # fmt: skip


def _environment(job: Job, kernel: Kernel, memory_folder: Path) -> dict[str, str]:
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "TMPDIR": str(memory_folder)}
    if kernel.virtual:
        environment["KV_TESTBED_SEED"] = str(job.seed)
    return environment


def _check_places() -> None:
    for name in HIDDEN:
        if PROJECT.is_relative_to(name):
            raise MachineError(
                f"the project lies in {PROJECT}, which the lab cannot see; move it out of {name}"
            )
    for tool in ("setpriv", "setarch"):
        if shutil.which(tool) is None:
            raise MachineError(f"no {tool}: install the package util-linux")


def _load_modules(kernel: Kernel) -> str:
    if kernel.virtual:
        return ""
    return (
        f"\nmkdir -p /run/kernel/lib\nln -s {DISTRIBUTION_MODULES} /run/kernel/lib/modules\n"
        f"modprobe -d /run/kernel -a {' '.join(MODULES)}"
    )


def explain(console: str, status: int | None) -> str:
    """Return in a few words why a guest ended, from its console's text."""
    for pattern, meaning in _PANICS.items():
        if pattern in console:
            detail = re.search(r"Kernel panic - not syncing: (.*)", console)
            why = meaning.format(memory=memory_dir()) + (f": {detail.group(1)}" if detail else "")
            return f"{why}; see logs/guest-kernel.log"
    return f"the guest kernel {how_ended(status)}; see logs/guest-kernel.log"


def check_boot(kernel: Kernel, folder: Path) -> None:
    """Boot the kernel with nothing to do, to see that this machine can; LabError when it cannot."""
    (folder / JOB_DIR).mkdir()
    link_shim(folder / JOB_DIR, kernel)
    (folder / JOB_DIR / "init.sh").write_text(
        f"{_MOUNTS}\necho alive >{RECORD_INSIDE}/alive\n"
        "python3 -c 'import ctypes; ctypes.CDLL(None).reboot(0x4321fedc)'\n"
    )
    job = Job(folder, "os-ken", 1, 60.0, lambda step, seconds: None)
    done = subprocess.run(
        command(kernel, 256), cwd=folder, env=_environment(job, kernel, memory_dir()),
        stdin=subprocess.DEVNULL, capture_output=True, timeout=60, start_new_session=True, check=False,
    )  # fmt: skip
    if not (folder / "alive").exists():
        raise LabError(explain((done.stdout + done.stderr).decode(errors="replace"), done.returncode))
