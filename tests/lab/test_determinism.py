"""Same scenario, seed and kernel: the same bytes, whatever the machine does meanwhile and wherever it is."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.lab.kernels import cache_dir
from tests.support.command import RUN_LIMIT_S, SMALL, call, command, start, write_scenario

TOGETHER = 3
EIGHT_MIB = SMALL.replace("kv_bytes: 4mib", "kv_bytes: 8mib").replace("count: 2", "count: 4")


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scenario(tmp_path_factory.mktemp("scenario"), EIGHT_MIB)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, scenario: Path) -> Path:
    """A run by itself, in a folder of another length, with a blank, started from yet another folder."""
    folder = tmp_path_factory.mktemp("alone")
    out = folder / "a much longer name with blanks" / "record"
    done = call("run", scenario, "--out", out, cwd=folder)
    assert done.returncode == 0, done.stderr
    return out


def results(out: Path) -> tuple[bytes, bytes]:
    return (out / "summary.json").read_bytes(), (out / "transfers.csv").read_bytes()


def test_three_at_once_and_one_alone_give_the_same_bytes(tmp_path: Path, scenario: Path, alone: Path) -> None:
    outs = [tmp_path / f"run{number}" for number in range(TOGETHER)]
    processes = [start("run", scenario, "--out", out) for out in outs]
    for process in processes:
        _, errors = process.communicate(timeout=RUN_LIMIT_S)
        assert process.returncode == 0, errors
    assert [results(out) == results(alone) for out in outs] == [True] * TOGETHER


def test_raw_facts_are_the_same_too(tmp_path: Path, scenario: Path, alone: Path) -> None:
    """Not promised by the summary alone: the progress of every transfer, to the nanosecond."""
    out = tmp_path / "record"
    relative = call("run", scenario.name, "--out", str(out), cwd=scenario.parent)
    assert relative.returncode == 0, relative.stderr
    assert results(out) == results(alone)
    for name in ("raw/progress.bin", "raw/outcomes.json", "raw/samples-fabric.bin", "raw/samples-hosts.bin"):
        assert (out / name).read_bytes() == (alone / name).read_bytes(), name


def test_another_seed_gives_other_bytes(tmp_path: Path, scenario: Path, alone: Path) -> None:
    out = tmp_path / "record"
    done: subprocess.CompletedProcess[str] = call("run", scenario, "--seed", "2", "--out", out)
    assert done.returncode == 0, done.stderr
    assert (out / "transfers.csv").read_bytes() != (alone / "transfers.csv").read_bytes()


OTHER_MACHINE = """
mount -n -t tmpfs tmpfs /run && mkdir -p $1 && mount -n --bind "$2" /etc/ld.so.cache && shift 2 && exec "$@"
"""


@pytest.mark.parametrize(("has", "pages"), [("/run/mount", 1), ("/run", 2), ("/run", 5)])
def test_what_else_is_on_the_machine_makes_no_difference(
    tmp_path: Path, scenario: Path, alone: Path, has: str, pages: int
) -> None:
    """More libraries are installed, and the folder of mount's notes has been made, or has not."""
    libraries, out = tmp_path / "ld.so.cache", tmp_path / "record"
    libraries.write_bytes(Path("/etc/ld.so.cache").read_bytes() + bytes(pages * 4096))
    unshare = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
    words = ["sh", "-c", OTHER_MACHINE, "sh", has, str(libraries), *command("run", scenario, "--out", out)]
    done = subprocess.run(
        [*unshare, *words], capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert results(out) == results(alone)


NOBODY = 65534
STRANGE = {
    "TZ": "Pacific/Chatham",
    "LANG": "tr_TR.UTF-8",
    "LC_ALL": "C",
    "COLUMNS": "33",
    "PYTHONHASHSEED": "12345",
    "PYTHONOPTIMIZE": "2",
    "PYTHONIOENCODING": "ascii",
    "OMP_NUM_THREADS": "3",
    "TERM": "vt52",
    **{f"UNRELATED_{number}": "x" * 50 * number for number in range(40)},
}


@pytest.fixture
def burning() -> Iterator[None]:
    """As many programs as there are processors, and one more, that only compute."""
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range((os.cpu_count() or 1) + 1)
    ]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder that anybody reaches, of the user nobody where this is root."""
    folder = Path(tempfile.mkdtemp(prefix="testbed-elsewhere-"))
    folder.chmod(0o755)
    shutil.copytree(cache_dir(), folder / "kernels", ignore=shutil.ignore_patterns(".build-*", ".lock"))
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


def test_load_user_folder_environment_terminal_and_time_zone_make_no_difference(
    burning: None, elsewhere: Path, tmp_path: Path, scenario: Path, alone: Path
) -> None:
    beside = start("run", scenario, "--seed", "9", "--out", tmp_path / "beside")
    own = shutil.copy(scenario, elsewhere / "scenario.yaml")
    out = elsewhere / "f" / ("of another length, " * 8) / "record"
    status, said = _in_a_terminal(command("run", own, "--out", out), elsewhere)
    beside.communicate(timeout=RUN_LIMIT_S)
    assert status == 0, said
    assert "\033[K" in said  # progress on one line: it did see a terminal
    assert results(out) == results(alone)
    assert (out / "raw/outcomes.json").read_bytes() == (alone / "raw/outcomes.json").read_bytes()


def _in_a_terminal(words: list[str], home: Path) -> tuple[int, str]:
    """Run a program at a terminal of its own, as nobody where this is root, with an unusual environment."""
    ours, theirs = pty.openpty()
    as_user: dict[str, Any] = {}
    if os.geteuid() == 0:
        as_user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "KV_KERNEL_CACHE": str(home / "kernels")}
    environment |= STRANGE | ({"PYTHONPATH": path} if (path := os.environ.get("PYTHONPATH")) else {})
    process = subprocess.Popen(
        words, cwd=home, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, **as_user
    )
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # the end of a terminal is an error
        while piece := os.read(ours, 4096):
            said += piece
    os.close(ours)
    return process.wait(RUN_LIMIT_S), said.decode(errors="replace")
