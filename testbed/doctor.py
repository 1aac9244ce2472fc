"""`testbed doctor`: what this machine has of what the lab needs, and the remedy for what it lacks.

Not a guarantee that a run works: only booting the lab shows that, and the command passes its boot
test in as `boot_check`. Not a repair either: nothing is changed, every remedy is a line to type.
Called by the command line; imports the standard library, the error tree and what the lab itself asks of a
machine only, so that it still answers where the rest cannot be imported.
"""

from __future__ import annotations

import json as json_module
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import zip_longest

from testbed.errors import TestbedError
from testbed.lab import kernels
from testbed.lab.preflight import (
    NATIVE,
    NOT_TRIED,
    PROGRAMS,
    SETUP,
    Check,
    checked,
    native_checks,
    program_check,
)
from testbed.machine import Machine

UML_VIRTUAL = "uml/virtual"
UML_REAL = "uml/real"
BACKENDS = (UML_VIRTUAL, UML_REAL, NATIVE)
UML = (UML_VIRTUAL, UML_REAL)

SYSTEM_PYTHON = "/usr/bin/python3"

# The guest's memory is a sparse file that grows with what the guest touches; below this a run of a
# shipped scenario may end in a bus error.
GUEST_MEMORY_ROOM_BYTES = 1 << 30

# A process that lets itself be traced, as every process of the guest is; its status is the errno.
PTRACE_PROBE = (
    "import ctypes, sys; libc = ctypes.CDLL(None, use_errno=True); "
    "sys.exit(ctypes.get_errno() if libc.ptrace(0, 0, 0, 0) else 0)"
)


def checks(machine: Machine | None = None, boot_check: Callable[[], None] | None = None) -> list[Check]:
    """Look for everything, in a fixed order but for missing modules, which come last of the modules.

    Raises nothing: what cannot be found out is not ok.
    """
    machine = machine or Machine()
    found = [*_environment(machine), *_programs(machine), *_guest(machine), *native_checks(machine)]
    if boot_check is not None:
        found.append(_boot(boot_check, found))
    return found


def usable_backends(found: list[Check]) -> tuple[str, ...]:
    """The backends for which no check failed, in the order of `BACKENDS`."""
    missing = {name for check in found if not check.ok for name in check.needed_for}
    return tuple(name for name in BACKENDS if name not in missing)


def run_doctor(
    json: bool, boot_check: Callable[[], None] | None = None, machine: Machine | None = None
) -> int:
    """Print every check to standard output; 0 when at least one backend can run, else 3.

    `boot_check` boots the lab for real and raises TestbedError or OSError when that fails. It is
    tried only when nothing else keeps the guest from booting.
    """
    found = checks(machine, boot_check)
    usable = usable_backends(found)
    if json:
        backends = {name: name in usable for name in BACKENDS}
        answer = {"checks": [asdict(check) for check in found], "backends": backends}
        print(json_module.dumps(answer, indent=2))
    else:
        print("\n".join(_table(found, usable)))
    return 0 if usable else 3


def _table(found: list[Check], usable: tuple[str, ...]) -> Iterator[str]:
    width = max(len(check.name) for check in found)
    for check, following in zip_longest(found, found[1:]):
        yield f"{'ok' if check.ok else 'MISSING':8}{check.name:{width}}  {check.found}"
        if not check.ok and not (following and _same_remedy(check, following)):
            yield f"{'':8}{'':{width}}  to have {', '.join(check.needed_for)}: {check.remedy}"
    yield ""
    for name in BACKENDS:
        lacking = [check.name for check in found if not check.ok and name in check.needed_for]
        yield f"backend {name:12} " + ("can run" if name in usable else "cannot run: " + ", ".join(lacking))


def _same_remedy(check: Check, other: Check) -> bool:
    return (check.remedy, check.needed_for) == (other.remedy, other.needed_for)


def _environment(machine: Machine) -> Iterator[Check]:
    version = ".".join(map(str, machine.python_version))
    recent = machine.python_version >= (3, 11)
    yield checked("python", recent, version, "install Python 3.11 or newer", BACKENDS)
    status, output = machine.run([SYSTEM_PYTHON, "-c", "import mininet.net as m; print(m.__file__)"])
    remedy = f"install the package mininet, which {SYSTEM_PYTHON} imports ({SETUP})"
    yield checked("mininet", status == 0, output if status == 0 else "not importable", remedy, BACKENDS)
    yield _framework(machine, "os-ken", sys.executable, "os_ken.base.app_manager", BACKENDS)
    ryu = str(kernels.PROJECT / ".venv-ryu/bin/python")
    # Not deeper than this: Ryu's own modules import only with what the controller adds to eventlet.
    yield _framework(machine, "ryu", ryu, "eventlet, ryu", ("controller framework ryu",))


def _framework(machine: Machine, name: str, python: str, module: str, needed_for: tuple[str, ...]) -> Check:
    status, _ = machine.run([python, "-c", f"import {module}"])
    found = f"importable by {python}" if status == 0 else f"not importable by {python}"
    return checked(name, status == 0, found, f"{SETUP} python", needed_for)


def _programs(machine: Machine) -> Iterator[Check]:
    for program, package in PROGRAMS.items():
        yield program_check(machine, program, package, BACKENDS)
    yield program_check(machine, "iperf3", "iperf3", ("background flows",))
    yield program_check(machine, "tshark", "tshark", ("tests",))


def _guest(machine: Machine) -> Iterator[Check]:
    yield from _lab_kernel()
    yield _distribution_uml(machine)
    yield _guest_memory(machine)
    status, _ = machine.run([sys.executable, "-c", PTRACE_PROBE])
    denied = f"refused ({os.strerror(status)})" if status > 0 else "could not be tried"
    remedy = "allow ptrace (a container: --cap-add SYS_PTRACE; Yama: sysctl kernel.yama.ptrace_scope=1)"
    yield checked("ptrace", status == 0, "permitted" if status == 0 else denied, remedy, UML)


def _lab_kernel() -> Iterator[Check]:
    """Ask the lab itself, so that the doctor cannot find what the lab would not."""
    path = kernels.shim()
    found = str(path) if path else f"not built in {kernels.cache_dir()}"
    yield checked("kernel shim", path is not None, found, f"run {kernels.SHIM_REMEDY}", (UML_VIRTUAL,))
    kernel = kernels.newest_kernel()
    found = str(kernel) if kernel else f"not built in {kernels.cache_dir()}"
    remedy = f"{SETUP} kernel (about 6 minutes on two cores)"
    yield checked("lab kernel", kernel is not None, found, remedy, (UML_VIRTUAL,))


def _distribution_uml(machine: Machine) -> Check:
    path = machine.which("linux.uml")
    modules = machine.entries("/usr/lib/uml/modules")
    if path is None:
        found = "no linux.uml"
    elif not modules:
        found = f"{path}, but no modules under /usr/lib/uml/modules"
    else:
        found = f"{path}, modules of {', '.join(modules)}"
    remedy = f"install the package user-mode-linux ({SETUP})"
    return checked("distribution UML", path is not None and bool(modules), found, remedy, (UML_REAL,))


def _guest_memory(machine: Machine) -> Check:
    remedy = f"point TMPDIR at a folder on an exec mount with {GUEST_MEMORY_ROOM_BYTES >> 20} MiB free"
    folder = machine.guest_memory_folder(GUEST_MEMORY_ROOM_BYTES)
    if folder is None:
        return checked("guest memory", False, "no folder that is writable and mounted exec", remedy, UML)
    room_bytes = machine.free_bytes(folder)
    found = f"{folder}: {room_bytes >> 20} MiB free"
    return checked("guest memory", room_bytes >= GUEST_MEMORY_ROOM_BYTES, found, remedy, UML)


def _boot(boot_check: Callable[[], None], found: list[Check]) -> Check:
    if not set(UML) & set(usable_backends(found)):
        return checked("boot", False, NOT_TRIED, "remedy what is missing above", UML)
    try:
        boot_check()
    except (TestbedError, OSError) as error:
        return checked("boot", False, str(error), "run again with --debug; ask with that output", UML)
    return checked("boot", True, "the lab booted", "", UML)
