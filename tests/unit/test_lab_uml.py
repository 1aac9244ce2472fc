"""The guest's command line, its places and modules, and why it ended."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import LabError, MachineError
from testbed.lab import uml
from testbed.lab.guest_memory import Memory
from testbed.lab.job import Job
from testbed.lab.kernels import Kernel
from testbed.signals import OUT_OF_MEMORY

BUILT = Kernel(Path("/cache/0123/linux"), "6.12.1-kv", True, Path("/cache/shim-4567.so"), "0123")
DISTRIBUTION = Kernel(Path("/usr/bin/linux.uml"), "6.1.176", False, None, "6.1.176")


def job(folder: Path, seed: int = 1) -> Job:
    return Job(folder, "os-ken", seed, 30.0, lambda step, seconds: None)


# ---- the command line -----------------------------------------------------------------


def test_the_command_line() -> None:
    first = "mount -n -i -t hostfs none /mnt -o /proc/self/cwd && exec sh /mnt/.lab/init.sh"
    assert uml.command(BUILT, 700) == [
        "setpriv", "--pdeathsig", "KILL", "setarch", "-R", "env", "LD_PRELOAD=.lab/uml_shim.so",
        "/cache/0123/linux", "mem=700M", "rootfstype=hostfs", "rootflags=/", "ro",
        "con=null", "con0=null,fd:1", "ssl=null", "uml_dir=.lab/", "umid=uml",
        "time-travel=inf-cpu", "time-travel-start=1700000000", "norandmaps",
        "init=/bin/sh", "--", "-c", f'"{first}"',
    ]  # fmt: skip


def started(monkeypatch: pytest.MonkeyPatch, made: Job, kernel: Kernel) -> tuple[list[str], dict[str, Any]]:
    """What `run_uml` would start for a job."""
    calls: list[tuple[list[str], dict[str, Any]]] = []

    class Ended:
        pid = 0x7FFFFFF0  # no process has this number
        returncode = 0

    def popen(command: list[str], **options: Any) -> Ended:
        calls.append((command, options))
        return Ended()

    monkeypatch.setattr(uml.subprocess, "Popen", popen)
    monkeypatch.setattr(uml, "watch", lambda job, process, **_: None)
    monkeypatch.setattr(uml, "result", lambda job, otherwise: None)
    monkeypatch.setattr(uml, "prepare", lambda job, **_: job.folder.mkdir(parents=True))
    (made.record / "logs").mkdir(parents=True)
    uml.run_uml(made, kernel, Memory(700, Path("/chosen")))
    ((command, options),) = calls
    return command, options


def test_nothing_of_the_run_stands_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The kernel mixes its command line into its random pool.
    one, one_options = started(monkeypatch, job(tmp_path / "one", seed=1), BUILT)
    two, two_options = started(monkeypatch, job(tmp_path / "two", seed=2), BUILT)
    assert one == two
    assert (one_options["cwd"], two_options["cwd"]) == (tmp_path / "one", tmp_path / "two")
    assert one_options["start_new_session"]


def test_the_seed_is_the_only_difference_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOMETHING_OF_THE_PERSON", "1")
    _, options = started(monkeypatch, job(tmp_path / "one", seed=7), BUILT)
    base = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "TMPDIR": "/chosen"}
    assert options["env"] == base | {"KV_TESTBED_SEED": "7"}
    _, options = started(monkeypatch, job(tmp_path / "two", seed=7), DISTRIBUTION)
    assert options["env"] == base


def test_the_library_is_loaded_into_the_kernel_and_into_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, options = started(monkeypatch, job(tmp_path / "one"), BUILT)
    at = command.index("LD_PRELOAD=.lab/uml_shim.so")
    assert command[at - 1] == "env"
    assert command[at + 1] == "/cache/0123/linux"
    assert (tmp_path / "one/.lab/uml_shim.so").readlink() == BUILT.shim
    assert "LD_PRELOAD" not in options["env"]
    assert "LD_PRELOAD" not in " ".join(uml.command(DISTRIBUTION, 700))


def test_the_distributions_kernel_has_no_virtual_time_and_loads_its_modules() -> None:
    command = uml.command(DISTRIBUTION, 700)
    assert [word for word in command if "time-travel" in word] == []
    assert command[5] == "/usr/bin/linux.uml"
    lines = uml._load_modules(DISTRIBUTION).splitlines()
    assert lines[1:3] == ["mkdir -p /run/kernel/lib", "ln -s /usr/lib/uml/modules /run/kernel/lib/modules"]
    assert lines[3].startswith("modprobe -d /run/kernel -a openvswitch veth ifb sch_htb sch_red sch_netem ")
    assert uml._load_modules(BUILT) == ""


# ---- places ---------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["/run", "/mnt", "/proc", "/sys", "/dev"])
def test_a_project_that_the_guest_could_not_see(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uml, "PROJECT", Path(folder, "kv"))
    with pytest.raises(MachineError) as caught:
        uml._check_places()
    message = f"the project lies in {folder}/kv, which the lab cannot see; move it out of {folder}"
    assert str(caught.value) == message


def test_a_name_that_only_begins_like_a_hidden_folder_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uml, "PROJECT", Path("/mnt2/kv"))
    uml._check_places()


def test_a_missing_tool_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uml.shutil, "which", lambda name: None if name == "setarch" else f"/usr/bin/{name}")
    with pytest.raises(MachineError, match=r"^no setarch: install the package util-linux$"):
        uml._check_places()


# ---- the end --------------------------------------------------------------------------

SEE = "; see logs/guest-kernel.log"
CONSOLES = [
    (
        "Kernel panic - not syncing: The system was going to sleep forever, no event is left",
        "nothing in the lab will ever happen again (every program waits for another)"
        ": The system was going to sleep forever, no event is left",
    ),
    (
        "Kernel panic - not syncing: time-travel: time goes backwards 10 -> 5\n",
        "the guest's virtual clock went backwards: time-travel: time goes backwards 10 -> 5",
    ),
    ("Out of memory: Killed process 31 (python3)", "the guest ran out of memory"),
    (
        "Kernel panic - not syncing: Out of memory: system-wide panic_on_oom is enabled\nRebooting",
        "the guest ran out of memory: Out of memory: system-wide panic_on_oom is enabled",
    ),
    (
        "UML ran out of memory on the host side! This can happen due to a memory limitation or\n"
        "Kernel panic - not syncing: Kernel mode signal 7",
        "the machine gave the guest no more memory (a limit of it): Kernel mode signal 7",
    ),
    (
        "x\nKernel panic - not syncing: Attempted to kill init! exitcode=0x00000100\nCall Trace:",
        "the guest kernel panicked: Attempted to kill init! exitcode=0x00000100",
    ),
]


@pytest.mark.parametrize(
    ("console", "words"), CONSOLES, ids=["sleep", "clock", "oom", "oom panic", "host memory", "init"]
)
def test_a_guest_that_gave_up_is_explained(console: str, words: str) -> None:
    assert uml.explain(f"Linux version 6.12\n{console}", 1) == words + SEE


def test_a_guest_without_room_for_its_memory_is_told_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uml, "memory_dir", lambda: Path("/dev/shm"))
    console = "Bus error - the host /dev/shm or /tmp mount likely just ran out of space\n"
    words = "no room for the guest's memory in /dev/shm: free some there, or set TMPDIR"
    assert uml.explain(console, -7) == words + SEE


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "ended with status 0"),
        (None, "ended with status None"),
        (-9, f"was killed by SIGKILL, {OUT_OF_MEMORY}"),
        (-11, "was killed by SIGSEGV"),
    ],
)
def test_a_guest_that_just_ended(status: int | None, words: str) -> None:
    assert uml.explain("reboot: System halted", status) == f"the guest kernel {words}{SEE}"


def boot(monkeypatch: pytest.MonkeyPatch, folder: Path, *, alive: bool, said: bytes = b"") -> None:
    def run(command: list[str], *, cwd: Path, **_: Any) -> subprocess.CompletedProcess[bytes]:
        if alive:
            (cwd / "alive").write_text("alive\n")
        return subprocess.CompletedProcess(command, 1, said, b"")

    monkeypatch.setattr(uml.subprocess, "run", run)
    uml.check_boot(BUILT, folder)


def test_a_boot_is_believed_when_the_guest_wrote_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot(monkeypatch, tmp_path, alive=True)
    assert "echo alive >/mnt/alive" in (tmp_path / ".lab/init.sh").read_text()


def test_a_boot_that_failed_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = b"Kernel panic - not syncing: do_syscall_stub : PTRACE_SETREGS failed"
    with pytest.raises(LabError) as caught:
        boot(monkeypatch, tmp_path, alive=False, said=said)
    assert str(caught.value) == (f"the guest kernel panicked: do_syscall_stub : PTRACE_SETREGS failed{SEE}")
