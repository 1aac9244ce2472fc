from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import doctor, machine
from testbed.errors import LabError, MachineError
from testbed.lab import kernels
from testbed.machine import Machine
from tests.support.machine import FakeMachine

KEY = "0123456789abcdef"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder with the kernel and the library that this checkout wants."""
    monkeypatch.setenv("KV_KERNEL_CACHE", str(tmp_path))
    fragment = hashlib.sha256(kernels.FRAGMENT.read_bytes()).hexdigest()
    facts = {"version": "6.12.1-kv", "key": KEY, "recipe": kernels.RECIPE, "fragment_sha256": fragment}
    (tmp_path / KEY).mkdir()
    (tmp_path / KEY / "linux").touch()
    (tmp_path / KEY / "kernel.json").write_text(json.dumps(facts))
    source = hashlib.sha256(kernels.SHIM_SOURCE.read_bytes()).hexdigest()
    (tmp_path / f"shim-{source[:16]}.so").touch()
    return tmp_path


def failing(machine: Machine) -> dict[str, doctor.Check]:
    return {check.name: check for check in doctor.checks(machine) if not check.ok}


def test_nothing_fails_on_a_machine_with_everything() -> None:
    found = doctor.checks(FakeMachine())
    assert [check.name for check in found if not check.ok or check.remedy] == []
    assert len({check.name for check in found}) == len(found) == 41
    assert doctor.usable_backends(found) == ("uml/virtual", "uml/real", "native")


CASES = [
    ({"version": (3, 10, 9)}, "python", "3.10.9", ()),
    ({"answers": {"mininet": (1, "")}}, "mininet", "not importable", ()),
    ({"answers": {"os_ken": (1, "")}}, "os-ken", f"not importable by {sys.executable}", ()),
    (
        {"answers": {"eventlet, ryu": (1, "")}},
        "ryu",
        f"not importable by {kernels.PROJECT}/.venv-ryu/bin/python",
        ("uml/virtual", "uml/real", "native"),
    ),
    ({"lacks": {"ovs-vsctl"}}, "ovs-vsctl", "not found", ()),
    ({"lacks": {"iperf3"}}, "iperf3", "not found", ("uml/virtual", "uml/real", "native")),
    ({"lacks": {"linux.uml"}}, "distribution UML", "no linux.uml", ("uml/virtual", "native")),
    (
        {"lacks": {"/usr/lib/uml/modules"}},
        "distribution UML",
        "/usr/bin/linux.uml, but no modules under /usr/lib/uml/modules",
        ("uml/virtual", "native"),
    ),
    ({"memory": ("/dev/shm", 64 << 20)}, "guest memory", "/dev/shm: 64 MiB free", ("native",)),
    ({"memory": (None, 0)}, "guest memory", "no folder that is writable and mounted exec", ("native",)),
    ({"answers": {"ptrace": (1, "")}}, "ptrace", "refused (Operation not permitted)", ("native",)),
]


@pytest.mark.parametrize(("change", "name", "found", "usable"), CASES, ids=[case[1] for case in CASES])
def test_what_is_missing_is_named_with_what_it_stops(
    change: dict[str, object], name: str, found: str, usable: tuple[str, ...]
) -> None:
    machine = FakeMachine(**change)  # type: ignore[arg-type]
    checks = failing(machine)
    assert {check: value.found for check, value in checks.items()} == {name: found}
    assert checks[name].remedy != ""
    assert "\n" not in checks[name].remedy
    assert doctor.usable_backends(doctor.checks(machine)) == usable


def test_a_kernel_that_the_lab_would_not_take_is_missing(cache: Path) -> None:
    facts = json.loads((cache / KEY / "kernel.json").read_text())
    (cache / KEY / "kernel.json").write_text(json.dumps(facts | {"recipe": kernels.RECIPE - 1}))
    check = failing(FakeMachine())["lab kernel"]
    assert (check.found, check.needed_for) == (f"not built in {cache}", ("uml/virtual",))
    assert check.remedy == "run scripts/setup.sh kernel (about 6 minutes on two cores)"


def test_a_kernel_without_its_library_is_not_enough(cache: Path) -> None:
    for library in cache.glob("shim-*.so"):
        library.unlink()
    checks = failing(FakeMachine())
    assert list(checks) == ["kernel shim"]
    assert checks["kernel shim"].found == f"not built in {cache}"
    assert checks["kernel shim"].remedy == "run scripts/build-kernel.sh --shim"
    assert doctor.usable_backends(doctor.checks(FakeMachine())) == ("uml/real", "native")
    with pytest.raises(MachineError, match="run scripts/build-kernel.sh --shim$"):
        kernels.built_kernel()


def test_what_the_doctor_finds_is_what_the_lab_boots(cache: Path) -> None:
    found = {check.name: check.found for check in doctor.checks(FakeMachine())}
    kernel = kernels.built_kernel()
    assert (found["lab kernel"], found["kernel shim"]) == (str(kernel.path.parent), str(kernel.shim))
    assert kernel.path == cache / KEY / "linux"


def test_room_for_the_guest_memory_is_counted_to_the_byte() -> None:
    enough = FakeMachine(memory=("/dev/shm", 1 << 30))
    short = FakeMachine(memory=("/dev/shm", (1 << 30) - 1))
    assert (list(failing(enough)), list(failing(short))) == ([], ["guest memory"])


def test_the_exit_code_is_3_only_when_no_backend_can_run(capsys: pytest.CaptureFixture[str]) -> None:
    no_uml = FakeMachine(answers={"ptrace": (1, "")})
    nothing = FakeMachine(answers={"ptrace": (1, "")}, uid=1000)
    assert (doctor.run_doctor(False, machine=no_uml), doctor.run_doctor(False, machine=nothing)) == (0, 3)
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "backend uml/virtual  cannot run: ptrace",
        "backend uml/real     cannot run: ptrace",
        "backend native       cannot run: root, namespaces, dctcp in namespaces",
    ]


def test_the_table_has_one_remedy_line_under_each_missing_thing(capsys: pytest.CaptureFixture[str]) -> None:
    doctor.run_doctor(False, machine=FakeMachine(lacks={"tc"}))
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("MISSING"))
    assert lines[at].split() == ["MISSING", "tc", "not", "found"]
    assert lines[at + 1].strip() == (
        "to have uml/virtual, uml/real, native: install the package iproute2 (run scripts/setup.sh)"
    )
    assert sum(line.startswith("MISSING") for line in lines) == 1


def test_a_remedy_that_several_things_share_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    doctor.run_doctor(False, machine=FakeMachine(lacks={"sch_htb", "sch_red", "sch_fq", "ovs-vsctl"}))
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split()[:3] if line[0] != " " else line.split(":")[-1].split()[0] for line in lines if line]
    missing = [["MISSING", "module", name] for name in ("sch_htb", "sch_red", "sch_fq")]
    at = rows.index(missing[0])
    assert rows[at : at + 4] == [*missing, "boot"]
    assert (rows.count("boot"), rows.count("install")) == (1, 1)


def test_json_has_every_field_and_nothing_else_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.run_doctor(True, machine=FakeMachine(uid=1000)) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["backends"] == {"uml/virtual": True, "uml/real": True, "native": False}
    assert next(check for check in answer["checks"] if check["name"] == "root") == {
        "name": "root",
        "ok": False,
        "found": "user 1000",
        "remedy": "run as root (sudo), or use the backend uml or scripts/vm.sh",
        "needed_for": ["native"],
    }


def test_a_boot_that_fails_takes_both_uml_clocks(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse() -> None:
        raise LabError("the guest panicked: no init")

    assert doctor.run_doctor(False, refuse, FakeMachine(uid=1000)) == 3
    output = capsys.readouterr().out
    assert "boot                 the guest panicked: no init\n" in output
    assert "backend uml/virtual  cannot run: boot\n" in output


def test_a_boot_is_not_tried_where_it_cannot_work() -> None:
    tried: list[str] = []
    cannot = doctor.checks(FakeMachine(answers={"ptrace": (1, "")}), lambda: tried.append("cannot"))
    can = doctor.checks(FakeMachine(), lambda: tried.append("can"))
    assert tried == ["can"]
    assert (cannot[-1].found, cannot[-1].ok) == ("not tried", False)
    assert (can[-1].found, can[-1].ok) == ("the lab booted", True)


def test_this_machine_answers_without_raising(tmp_path: Path) -> None:
    machine = Machine()
    assert machine.run(["/nonexistent"]) == (-1, "[Errno 2] No such file or directory: '/nonexistent'")
    assert machine.run(["sh", "-c", "echo one; echo two; exit 7"]) == (7, "two")
    assert machine.run(["sh", "-c", "echo why >&2; exit 1"]) == (1, "why")
    assert machine.free_bytes("/nonexistent") == 0
    assert machine.free_bytes(str(tmp_path)) > 0
    assert machine.entries("/nonexistent") == []
    assert machine.which("no-such-program") is None
    assert machine.kernel_module("no_such_module", "CONFIG_NO_SUCH_OPTION") is None


def test_tmpdir_comes_first_for_the_guest_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert Machine().guest_memory_folder(0) == str(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "absent"))
    assert Machine().guest_memory_folder(0) in ("/dev/shm", "/tmp", None)


def test_a_folder_without_room_for_the_guest_memory_gives_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = {"/dev/shm": 64 << 20, str(tmp_path): 1 << 20, "/tmp": 9 << 30}
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(machine, "_takes_executables", lambda folder: True)
    monkeypatch.setattr(Machine, "free_bytes", lambda self, folder: free[folder])
    needs = (1 << 20, 60 << 20, 1 << 30, 10 << 30)
    folders = [Machine().guest_memory_folder(need) for need in needs]
    assert folders == [str(tmp_path), "/dev/shm", "/tmp", str(tmp_path)]


@pytest.mark.parametrize(
    ("files", "available"),
    [
        ({}, None),
        ({"meminfo": "MemTotal: 9 kB\nMemAvailable:   2048 kB\n"}, 2 << 20),
        (
            {
                "meminfo": "MemAvailable: 9999 kB\n",
                "memory.max": "5242880\n",
                "memory.current": "4194304\n",
                "memory.stat": "anon 7\nactive_file 5\ninactive_file 1048576\n",
            },
            2 << 20,  # 5 - 4 + 1
        ),
        ({"meminfo": "MemAvailable: 1024 kB\n", "memory.max": "max\n", "memory.current": "1\n"}, 1 << 20),
    ],
)
def test_the_memory_that_programs_can_still_have(
    files: dict[str, str], available: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_text", lambda path: files.get(path.name, ""))
    assert Machine().available_memory_bytes() == available


def test_the_ptrace_probe_reports_the_errno() -> None:
    allowed = subprocess.run([sys.executable, "-c", doctor.PTRACE_PROBE], timeout=20).returncode
    assert allowed in (0, 1)
    # A process that is traced already cannot ask to be traced again: EPERM.
    twice = doctor.PTRACE_PROBE.replace("sys.exit", "libc.ptrace(0, 0, 0, 0); sys.exit")
    assert subprocess.run([sys.executable, "-c", twice], timeout=20).returncode == 1
    assert os.strerror(1) == "Operation not permitted"


def test_only_the_standard_library_and_what_asks_the_machine_are_imported() -> None:
    code = "import sys, testbed.doctor; print(sorted(m for m in sys.modules if m.split('.')[0] == 'testbed'))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=kernels.PROJECT, timeout=20)
    own = ["doctor", "errors", "lab", "lab.kernels", "lab.preflight", "machine"]
    assert done.stdout.strip() == str(["testbed", *(f"testbed.{name}" for name in own)])
