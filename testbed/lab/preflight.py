"""What the native backend needs of the machine, and the remedy for what it lacks. Runs outside the lab.

One list for both who ask: `testbed doctor` prints it, and a run does not begin while something of it is
missing. Changes nothing; every remedy is a line to type.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from testbed.errors import MachineError
from testbed.lab.kernels import MODULES
from testbed.machine import Machine

NATIVE = "native"
SETUP = "run scripts/setup.sh"
NOT_TRIED = "not tried"

PROGRAMS = {
    "ovs-vswitchd": "openvswitch-switch",
    "ovsdb-server": "openvswitch-switch",
    "ovs-vsctl": "openvswitch-switch",
    "ovs-ofctl": "openvswitch-switch",
    "ip": "iproute2",
    "tc": "iproute2",
    "ethtool": "ethtool",
    "ping": "iputils-ping",
    "mnexec": "mininet",
}
"""Program -> Debian package: what every lab uses, whatever its backend."""

NATIVE_PROGRAMS = {"unshare": "util-linux", "setpriv": "util-linux"}
"""What starts the native lab."""

NEW_NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork")
AS_ROOT = "run as root (sudo), or use the backend uml or scripts/vm.sh"
OTHER_KERNEL = (
    "boot a kernel that has it, as Debian's linux-image-amd64 (a container has its machine's kernel), "
    "or use the backend uml or scripts/vm.sh"
)

DCTCP_PROBE = """
import socket, sys
try:
    probe = socket.socket()
    probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"dctcp")
except OSError as error:
    sys.exit(error.errno)
print(probe.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(bytes(1)).decode())
"""
"""A socket that is to use DCTCP: it prints what it got; its status is the errno."""


@dataclass(frozen=True)
class Check:
    """One thing looked for: what was `found`, and when not `ok` the one-line `remedy`.

    `needed_for` names the backends and features that cannot work without it.
    """

    name: str
    ok: bool
    found: str
    remedy: str
    needed_for: tuple[str, ...] = (NATIVE,)


def checked(name: str, ok: bool, found: str, remedy: str, needed_for: tuple[str, ...] = (NATIVE,)) -> Check:
    """Return the check; what is there needs no remedy."""
    return Check(name, ok, found, "" if ok else remedy, needed_for)


def program_check(machine: Machine, program: str, package: str, needed_for: tuple[str, ...]) -> Check:
    """Look for a program."""
    path = machine.which(program)
    remedy = f"install the package {package} ({SETUP})"
    return checked(program, path is not None, path or "not found", remedy, needed_for)


def native_checks(machine: Machine) -> Iterator[Check]:
    """Look for what the native backend needs beyond what every lab does."""
    for program, package in NATIVE_PROGRAMS.items():
        yield program_check(machine, program, package, (NATIVE,))
    root = machine.effective_uid == 0
    yield checked("root", root, "yes" if root else f"user {machine.effective_uid}", AS_ROOT)
    namespaces = _namespaces(machine) if root else checked("namespaces", False, NOT_TRIED, AS_ROOT)
    yield namespaces
    modules = [_module(machine, module, option) for module, option in MODULES.items()]
    yield from sorted(modules, key=lambda each: not each.ok)  # what shares a remedy stands together
    yield _dctcp(machine, [namespaces, *modules])


def _namespaces(machine: Machine) -> Check:
    status, said = machine.run([*NEW_NAMESPACES, "true"])
    remedy = "run where namespaces may be made (a container: --privileged), or use the backend uml"
    return checked("namespaces", status == 0, "can be made" if status == 0 else said, remedy)


def _module(machine: Machine, module: str, option: str) -> Check:
    where = machine.kernel_module(module, option)
    remedy = (
        OTHER_KERNEL if machine.which("modprobe") else "install the package kmod, whose modprobe finds it"
    )
    return checked(f"module {module}", where is not None, where or f"not in this kernel ({option})", remedy)


def _dctcp(machine: Machine, before: list[Check]) -> Check:
    """Ask a socket in a new network namespace, as every connection of a lab does: not all kernels let it."""
    name = "dctcp in namespaces"
    lacking = [
        each.name for each in before if not each.ok and each.name in ("namespaces", "module tcp_dctcp")
    ]
    if lacking:
        return checked(name, False, NOT_TRIED, f"remedy first: {', '.join(lacking)}")
    status, said = machine.run([*NEW_NAMESPACES, sys.executable, "-c", DCTCP_PROBE])
    if status == 0:
        return checked(name, said == "dctcp", f"a connection gets {said}", "use the backend uml")
    if status == errno.ENOENT:
        return checked(name, True, "to be seen once the module is loaded", "")
    refused = f"refused ({os.strerror(status)})" if status > 0 else f"could not be tried: {said}"
    return checked(name, False, refused, "run as the machine's root, or use the backend uml")


def problems(machine: Machine) -> list[str]:
    """Return why the native backend cannot run here, a clause for each remedy; empty when it can."""
    programs = [program_check(machine, *each, (NATIVE,)) for each in PROGRAMS.items()]
    by_remedy: dict[str, list[Check]] = {}
    for each in (*programs, *native_checks(machine)):
        # What was not tried has its reason among the others.
        if not each.ok and each.found != NOT_TRIED:
            by_remedy.setdefault(each.remedy, []).append(each)
    return [f"no {', '.join(each.name for each in some)}: {remedy}" for remedy, some in by_remedy.items()]


def require_native(machine: Machine | None = None) -> None:
    """Raise MachineError, naming all that is missing and the remedy, where the native backend cannot run."""
    found = problems(machine or Machine())
    if found:
        raise MachineError(f"the native backend cannot run here: {'; '.join(found)}")
