"""What keeps the native backend from running: for the doctor check by check, for a run in one sentence."""

from __future__ import annotations

import errno
import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from testbed import machine as asked
from testbed.errors import MachineError
from testbed.lab import preflight
from testbed.lab.kernels import MODULES
from testbed.machine import LOADABLE, Machine
from tests.support.machine import FakeMachine

ROOT = "run as root (sudo), or use the backend uml or scripts/vm.sh"
KERNEL = (
    "boot a kernel that has it, as Debian's linux-image-amd64 (a container has its machine's kernel), "
    "or use the backend uml or scripts/vm.sh"
)
PACKAGE = "install the package {0} (run scripts/setup.sh)"
DENIED = "unshare: unshare failed: Operation not permitted"
NAMESPACES = "run where namespaces may be made (a container: --privileged), or use the backend uml"

CASES: list[tuple[dict[str, Any], dict[str, str], list[str]]] = [
    ({}, {}, []),
    (
        {"uid": 1000},
        {"root": "user 1000", "namespaces": "not tried", "dctcp in namespaces": "not tried"},
        [f"no root: {ROOT}"],
    ),
    (
        {"lacks": {"unshare", "setpriv"}},
        {"unshare": "not found", "setpriv": "not found"},
        [f"no unshare, setpriv: {PACKAGE.format('util-linux')}"],
    ),
    (
        {"lacks": {"sch_red", "openvswitch"}},
        {
            "module openvswitch": "not in this kernel (CONFIG_OPENVSWITCH)",
            "module sch_red": "not in this kernel (CONFIG_NET_SCH_RED)",
        },
        [f"no module openvswitch, module sch_red: {KERNEL}"],
    ),
    (
        {"lacks": {"sch_red", "modprobe"}},
        {"module sch_red": "not in this kernel (CONFIG_NET_SCH_RED)"},
        ["no module sch_red: install the package kmod, whose modprobe finds it"],
    ),
    (
        {"answers": {"fork true": (1, DENIED)}},
        {
            "namespaces": DENIED,
            "dctcp in namespaces": "not tried",
        },
        [f"no namespaces: {NAMESPACES}"],
    ),
    (
        {"answers": {"TCP_CONGESTION": (errno.EPERM, "")}},
        {"dctcp in namespaces": "refused (Operation not permitted)"},
        ["no dctcp in namespaces: run as the machine's root, or use the backend uml"],
    ),
    (
        {"answers": {"TCP_CONGESTION": (0, "cubic")}},
        {"dctcp in namespaces": "a connection gets cubic"},
        ["no dctcp in namespaces: use the backend uml"],
    ),
    (
        {"lacks": {"tcp_dctcp"}},
        {
            "module tcp_dctcp": "not in this kernel (CONFIG_TCP_CONG_DCTCP)",
            "dctcp in namespaces": "not tried",
        },
        [f"no module tcp_dctcp: {KERNEL}"],
    ),
    # The kernel may ask modprobe itself, and not find what the lab's modprobe will.
    ({"answers": {"TCP_CONGESTION": (errno.ENOENT, "")}}, {}, []),
]


@pytest.mark.parametrize(("change", "found", "sentences"), CASES)
def test_what_is_missing_is_named_with_its_remedy(
    change: dict[str, Any], found: dict[str, str], sentences: list[str]
) -> None:
    machine = FakeMachine(**change)
    failing = [check for check in preflight.native_checks(machine) if not check.ok]
    assert {check.name: check.found for check in failing} == found
    assert [check.name for check in failing if not check.remedy or check.needed_for != ("native",)] == []
    assert preflight.problems(machine) == sentences


def test_a_run_is_refused_with_all_of_them_in_one_line() -> None:
    machine = FakeMachine(uid=1000, lacks={"tc", "sch_fq"})
    with pytest.raises(MachineError) as caught:
        preflight.require_native(machine)
    assert str(caught.value) == (
        f"the native backend cannot run here: no tc: {PACKAGE.format('iproute2')}; no root: {ROOT}; "
        f"no module sch_fq: {KERNEL}"
    )


def test_a_machine_with_everything_is_not_refused() -> None:
    preflight.require_native(FakeMachine())


# ---- how this machine's kernel has a module -------------------------------------------


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of the root for the files that tell what a kernel has; modprobe finds nothing."""
    monkeypatch.setattr(asked, "Path", lambda *parts: Path(tmp_path, *(part.lstrip("/") for part in parts)))
    monkeypatch.setattr(Machine, "run", lambda machine, command: (1, ""))
    return tmp_path


RELEASE = os.uname().release
OPTION = MODULES["sch_red"]


@pytest.mark.parametrize(
    ("name", "content", "how"),
    [
        ("sys/module/sch_red/refcnt", b"0", "loaded or built in"),
        (f"lib/modules/{RELEASE}/modules.builtin", b"kernel/net/sched/sch_red.ko\n", "built in"),
        (f"lib/modules/{RELEASE}/modules.builtin", b"kernel/net/sched/old_sch_red.ko\n", None),
        # No folder of modules at all: only its configuration tells what such a kernel has.
        ("proc/config.gz", gzip.compress(b"CONFIG_NET_SCH_RED=y\n"), "built in"),
        ("proc/config.gz", gzip.compress(b"CONFIG_NET_SCH_RED=m\n"), None),
        (f"boot/config-{RELEASE}", b"CONFIG_NET_SCH_RED=y\n", "built in"),
        (f"boot/config-{RELEASE}", b"# CONFIG_NET_SCH_RED is not set\n", None),
        ("boot/config-another", b"CONFIG_NET_SCH_RED=y\n", None),
    ],
)
def test_what_is_built_in_need_not_be_loaded(
    kernel: Path, name: str, content: bytes, how: str | None
) -> None:
    (kernel / name).parent.mkdir(parents=True)
    (kernel / name).write_bytes(content)
    assert Machine().kernel_module("sch_red", OPTION) == how


def test_what_modprobe_finds_can_be_loaded(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(Machine, "which", lambda machine, program: f"/sbin/{program}")
    monkeypatch.setattr(Machine, "run", lambda machine, command: (commands.append(command), (0, ""))[1])
    assert Machine().kernel_module("sch_red", OPTION) == LOADABLE
    assert commands == [["modprobe", "-n", "-q", "sch_red"]]
