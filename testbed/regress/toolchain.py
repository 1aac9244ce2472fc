"""What a result depends on besides scenario and seed: the lab's kernel and the packages it works with.

The same here and there: the same bytes. Stands beside every golden. Called by `testbed check`.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version

from testbed.lab.kernels import find_kernel

PROGRAMS = ("openvswitch-switch", "iproute2", "mininet", "iperf3")
"""Debian packages whose programs take part in a run."""

LIBRARIES = ("os-ken", "numpy")
"""Python packages whose version may show in a result: the controller's, and the analysis'."""

Toolchain = Mapping[str, str]


def toolchain(backend: str, clock: str) -> Toolchain:
    """Return name and version of everything a run of this backend and clock depends on.

    `kernel key` is a hash of the kernel's source, configuration, changes and compiler. Raises MachineError
    when there is no kernel.
    """
    found = {"python": ".".join(platform.python_version_tuple()[:2]), **_programs(), **_libraries()}
    if backend == "uml":
        kernel = find_kernel(clock)
        return {"kernel": kernel.version, "kernel key": kernel.key, **found}
    return {"kernel": platform.release(), **found}


def differing(golden: Toolchain, here: Toolchain) -> Iterator[str]:
    """Yield what differs, as `iproute2 6.1.0-3 (golden) and 6.9.0-1 (here)`."""
    for name in sorted(golden.keys() | here.keys()):
        theirs, ours = golden.get(name, "none"), here.get(name, "none")
        if theirs != ours:
            yield f"{name} {theirs} (golden) and {ours} (here)"


def _programs() -> dict[str, str]:
    command = ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *PROGRAMS]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return {}  # no Debian: the kernel and the libraries are known all the same
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if not line.endswith(" "))


def _libraries() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found
