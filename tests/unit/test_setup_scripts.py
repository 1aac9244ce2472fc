from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = [
    "mininet", "openvswitch-switch", "iproute2", "ethtool", "iperf3", "iputils-ping", "user-mode-linux",
    "tshark", "python3-venv", "flex", "bison", "bc", "libelf-dev", "xz-utils", "gcc", "make", "libc6-dev",
]  # fmt: skip
SCRIPTS = ["scripts/setup.sh", "scripts/build-kernel.sh", "scripts/vm.sh", ".ci/run"]


class Checkout:
    """A copy of what set-up reads, with fakes for the programs that would change the machine.

    `installed` is what dpkg knows, `sudo` whether this user (1000) can become root without a word.
    Every call of a fake is a line in `calls`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "fake-bin"
        self.bin.mkdir()
        for name in ("scripts/setup.sh", "pyproject.toml", "requirements-ryu.txt"):
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
        self.log = folder / "calls"
        self.log.touch()
        self.fake("id", "echo 1000")
        self.fake("apt-get", f'echo "apt-get $*" >>{self.log}')
        self.fake("apt-cache", 'echo "  Candidate: 6.12.1"')
        self.fake("gcc", "")
        kernel = folder / "scripts/build-kernel.sh"
        kernel.write_text(f'#!/bin/sh\n[ "$1" = --shim ] || echo "build-kernel $*" >>{self.log}\n')
        kernel.chmod(0o755)
        self.installed(PACKAGES)
        self.sudo(False)

    def fake(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def installed(self, names: list[str]) -> None:
        lines = "\n".join(f"{name} installed" for name in names)
        self.fake("dpkg-query", f"cat <<END\n{lines}\nEND\nexit 1")

    def sudo(self, works: bool) -> None:
        # `sudo -n env NAME=VALUE... COMMAND`: the fake drops -n, so `env` runs the next fake.
        run = f'[ "$2" = true ] || {{ shift; echo "sudo $*" >>{self.log}; }}'
        self.fake("sudo", run if works else "exit 1")

    def environment(self, name: str) -> Path:
        """Make NAME look like an environment that this checkout's set-up made; its python logs and obeys."""
        folder = self.folder / name
        (folder / "bin").mkdir(parents=True)
        options = "--system-site-packages " if name == ".venv" else ""
        (folder / "pyvenv.cfg").write_text(f"command = /usr/bin/python3 -m venv {options}{folder}\n")
        python = folder / "bin/python"
        python.write_text(f'#!/bin/sh\n[ "$1" = -c ] || echo "{name} $*" >>{self.log}\n')
        python.chmod(0o755)
        return folder

    def run(self, *parts: str, **variables: str) -> tuple[int, str]:
        # A tarball given by hand: whether this machine has a kernel source is no matter here.
        path = f"{self.bin}:/usr/bin:/bin"
        inherited = {key: value for key, value in os.environ.items() if key not in ("CI", "KV_TESTS")}
        environment = inherited | {"PATH": path, "KV_KERNEL_SOURCE": "/given.tar"} | variables
        done = subprocess.run(
            ["bash", str(self.folder / "scripts/setup.sh"), *parts],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, env=environment,
        )  # fmt: skip
        return done.returncode, done.stderr

    @property
    def calls(self) -> list[str]:
        return self.log.read_text().splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_with_everything_installed_apt_and_root_are_not_asked_for(checkout: Checkout) -> None:
    assert checkout.run("packages") == (0, "")
    assert checkout.calls == []


def test_without_root_missing_packages_are_named_with_the_command(checkout: Checkout) -> None:
    checkout.installed([name for name in PACKAGES if name not in ("mininet", "bc")])
    assert checkout.run("packages") == (
        3,
        "setup: packages are missing and this user cannot become root: mininet bc\n"
        "setup: as root, run: apt-get update && apt-get install -y --no-install-recommends mininet bc\n",
    )
    assert checkout.calls == []


def test_only_what_is_missing_is_installed(checkout: Checkout) -> None:
    checkout.installed([name for name in PACKAGES if name not in ("tshark", "gcc")])
    checkout.sudo(True)
    assert checkout.run("packages") == (0, "setup: installing tshark gcc\n")
    apt = "sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300"
    assert checkout.calls == [f"{apt} update", f"{apt} install --no-install-recommends tshark gcc"]


def test_a_package_that_was_removed_but_not_purged_is_missing(checkout: Checkout) -> None:
    others = "\n".join(f"echo {name} installed" for name in PACKAGES[1:])
    checkout.fake("dpkg-query", f"{others}\necho mininet config-files")
    status, message = checkout.run("packages")
    assert (status, message.splitlines()[0]) == (
        3,
        "setup: packages are missing and this user cannot become root: mininet",
    )


BOOKWORM = "VERSION_CODENAME=bookworm" in Path("/etc/os-release").read_text().splitlines()
FOR_TESTS = ["chromium", *(["vagrant"] if BOOKWORM else [])]
"""A browser everywhere, and what reads the Vagrantfile where it is sure to be packaged."""


@pytest.mark.parametrize("variable", ["CI", "KV_TESTS"])
def test_what_only_tests_need_is_installed_where_they_will_run(checkout: Checkout, variable: str) -> None:
    status, message = checkout.run("packages", **{variable: "1"})
    assert (status, message.splitlines()[0]) == (
        3,
        f"setup: packages are missing and this user cannot become root: {' '.join(FOR_TESTS)}",
    )
    checkout.installed([*PACKAGES, *FOR_TESTS])
    assert checkout.run("packages", **{variable: "1"}) == (0, "")


def test_make_test_asks_for_the_packages_of_tests() -> None:
    show = "print: ; @echo $(KV_TESTS)\n"
    command = ["make", "-f", "Makefile", "--eval", f"test: print\n{show}", "-n", "test"]
    # These tests may be run by that very target.
    inherited = {
        key: value for key, value in os.environ.items() if key not in ("KV_TESTS", "MAKEFLAGS", "MFLAGS")
    }
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20, env=inherited)
    assert "echo 1" in done.stdout.splitlines()


def test_the_library_is_built_also_when_the_kernel_is_not(checkout: Checkout) -> None:
    kernel = checkout.folder / "scripts/build-kernel.sh"
    kernel.write_text(f'#!/bin/sh\necho "build-kernel $*" >>{checkout.log}\n')
    assert checkout.run("packages") == (0, "")
    assert checkout.calls == ["build-kernel --shim"]
    assert checkout.run("packages", "kernel") == (0, "")
    assert checkout.calls[1:] == ["build-kernel "]
    assert checkout.run("packages", CC="no-such-compiler") == (0, "")
    assert checkout.calls[2:] == []


def test_a_tarball_is_read_once(tmp_path: Path) -> None:
    tarball, cache = tmp_path / "linux.tar", tmp_path / "cache"
    environment = os.environ | {"KV_KERNEL_SOURCE": str(tarball), "KV_KERNEL_CACHE": str(cache)}

    def folder(text: str, moment: int) -> str:
        tarball.write_text(text)
        os.utime(tarball, ns=(moment, moment))
        command = ["bash", str(ROOT / "scripts/build-kernel.sh"), "--where"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20)
        assert (done.returncode, done.stderr) == (1, "")
        return done.stdout

    first = folder("one", 1_000_000_000)
    # Same path, size and moment: not read again. Any of them different: read.
    assert folder("two", 1_000_000_000) == first
    second = folder("two", 1_000_000_001)
    assert second != first
    assert folder("one", 1_000_000_002) == first
    assert folder("three", 1_000_000_002) not in (first, second)
    assert sorted(path.name for path in cache.iterdir()) == [".tarball-digest"]


def test_packages_and_environments_are_separate_parts(checkout: Checkout) -> None:
    checkout.installed([])
    for name in (".venv", ".venv-ryu"):
        checkout.environment(name)
    status, _ = checkout.run(KV_SETUP="python")
    assert status == 0
    assert [line for line in checkout.calls if "apt-get" in line] == []


def test_the_virtual_machine_is_a_part_of_its_own(checkout: Checkout) -> None:
    machine = checkout.folder / "scripts/vm.sh"
    machine.write_text(f'#!/bin/sh\necho "vm $*" >>{checkout.log}\n')
    machine.chmod(0o755)
    status, message = checkout.run("vm")
    assert (status, message.splitlines()[0]) == (
        3,
        "setup: packages are missing and this user cannot become root: qemu-system-x86 busybox-static kmod",
    )
    checkout.installed([*PACKAGES, "qemu-system-x86", "busybox-static", "kmod"])
    assert checkout.run("vm") == (0, "")
    assert checkout.calls == ["vm --setup"]


def test_an_unknown_part_is_refused(checkout: Checkout) -> None:
    message = "setup: unknown part 'kernels'; the parts are packages, python, kernel, vm, all\n"
    assert checkout.run("packages", "kernels") == (2, message)
    assert checkout.run(KV_SETUP="kernels") == (2, message)


def test_python_packages_are_installed_again_only_when_their_list_changed(checkout: Checkout) -> None:
    checkout.environment(".venv")
    checkout.environment(".venv-ryu")
    options = "--quiet --no-input --disable-pip-version-check"
    editable = f".venv -m pip install {options} -e {checkout.folder}[dev]"
    assert checkout.run("python")[0] == 0
    assert [line for line in checkout.calls if line.startswith(".venv ")] == [editable]
    before = checkout.calls
    assert checkout.run("python") == (0, "")
    assert checkout.calls == before
    with (checkout.folder / "pyproject.toml").open("a") as project:
        project.write("# changed\n")
    assert checkout.run("python")[0] == 0
    assert checkout.calls == [*before, editable]


def test_an_install_that_failed_is_tried_again(checkout: Checkout) -> None:
    python = checkout.environment(".venv") / "bin/python"
    checkout.environment(".venv-ryu")
    good = python.read_text()
    python.write_text('#!/bin/sh\n[ "$1" = -c ]\n')
    status, message = checkout.run("python")
    assert status == 3
    assert message.splitlines()[-1].startswith("setup: pip could not install -e ")
    python.write_text(good)
    assert checkout.run("python")[0] == 0
    assert [line for line in checkout.calls if line.startswith(".venv ")] != []


def test_ci_runs_make_test() -> None:
    assert "make --no-print-directory test" in (ROOT / ".ci/run").read_text()


def test_ci_ends_with_the_status_of_make(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    (tmp_path / "Makefile").write_text("test:\n\t@echo CI=$$CI; read -r line || echo no input; exit 7\n")
    done = subprocess.run(
        ["bash", ".ci/run"], cwd=tmp_path, input="text\n", capture_output=True, text=True, timeout=20,
        env={key: value for key, value in os.environ.items() if key != "CI"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "CI=true\nno input\n")


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_stop_at_the_first_error_and_can_be_run(script: str) -> None:
    path = ROOT / script
    assert os.access(path, os.X_OK)
    assert re.search(r"^set -euo pipefail$", path.read_text(), re.MULTILINE)
    assert subprocess.run(["bash", "-n", str(path)], timeout=20).returncode == 0


def test_the_pins_are_exact() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    assert len(pins) >= 12
    assert [pin for pin in pins if not re.fullmatch(r"[a-z0-9-]+==\d[\w.]*", pin)] == []


def has_candidate(folder: Path, answer: str) -> bool:
    """What the script's own function says of a package when apt-cache answers so."""
    script = (ROOT / "scripts/setup.sh").read_text()
    function = re.search(r"^has_candidate\(\) \{.*?\}$", script, re.MULTILINE | re.DOTALL)
    assert function is not None
    assert "set -euo pipefail" in script
    (folder / "answer").write_text(answer)
    fake = folder / "apt-cache"
    fake.write_text(f"#!/bin/sh\nexec cat {folder}/answer\n")
    fake.chmod(0o755)
    body = f"set -euo pipefail\n{function[0]}\nhas_candidate linux-source-6.12\n"
    environment = {"PATH": f"{folder}:/usr/bin:/bin"}
    return subprocess.run(["bash", "-c", body], env=environment, timeout=20, check=False).returncode == 0


MANY = "".join(f" {number} http://deb.debian.org/debian bookworm/main Packages\n" for number in range(5000))
"""More than a pipe holds: whoever writes this waits for its reader, or gets SIGPIPE when that is gone."""


@pytest.mark.parametrize(("candidate", "found"), [("6.12.38-1~bpo12+1", True), ("(none)", False)])
def test_a_candidate_is_found_however_much_apt_cache_says(
    tmp_path: Path, candidate: str, found: bool
) -> None:
    answer = f"linux-source-6.12:\n  Installed: (none)\n  Candidate: {candidate}\n  Version table:\n"
    assert len(MANY) > 4 * 65_536
    assert has_candidate(tmp_path, answer + MANY) is found
    assert has_candidate(tmp_path, answer) is found


def test_a_package_that_apt_cache_does_not_know_is_no_candidate(tmp_path: Path) -> None:
    assert has_candidate(tmp_path, "") is False
