"""What a result depends on besides scenario and seed: the lab's kernel and the packages it works with.

The same here and there: the same bytes. Stands beside every golden. Called by `testbed check`.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Mapping

from testbed.lab.kernels import find_kernel
from testbed.run.environment import debian_packages, installed

PROGRAMS = ("openvswitch-switch", "iproute2", "mininet", "iperf3", "libc6", "util-linux")
"""Debian packages whose programs take part in a run. Python's own, of the same version, is one more: its
revisions ask for other files, and each system call that fails takes a step of the virtual clock."""

LIBRARIES = ("os-ken", "numpy")
"""Python packages whose version may show in a result: the controller's, and the analysis'."""

Toolchain = Mapping[str, str]


def toolchain(backend: str, clock: str) -> Toolchain:
    """Return name and version of everything a run of this backend and clock depends on.

    `kernel key` is a hash of the kernel's source, configuration, changes and compiler, `kernel image` of what
    was built from them. Raises MachineError when there is no kernel.
    """
    python = ".".join(platform.python_version_tuple()[:2])
    libraries = {name: installed(name) or "none" for name in LIBRARIES}
    packages = debian_packages((*PROGRAMS, f"python{python}-minimal"))
    found = {"python": python, **packages, **libraries}
    if backend == "uml":
        kernel = find_kernel(clock)
        image = hashlib.sha256(kernel.path.read_bytes()).hexdigest()[:16]
        return {"kernel": kernel.version, "kernel key": kernel.key, "kernel image": image, **found}
    return {"kernel": platform.release(), **found}


def differing(golden: Toolchain, here: Toolchain) -> Iterator[str]:
    """Yield what differs, as `iproute2 6.1.0-3 (golden) and 6.9.0-1 (here)`."""
    for name in sorted(golden.keys() | here.keys()):
        theirs, ours = golden.get(name, "none"), here.get(name, "none")
        if theirs != ours:
            yield f"{name} {theirs} (golden) and {ours} (here)"
