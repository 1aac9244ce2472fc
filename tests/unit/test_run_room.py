"""Whether a machine has room for a run: what is refused, with need, room and remedy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from testbed.cli import main
from testbed.errors import InputError, MachineError
from testbed.lab.guest_memory import Memory
from testbed.machine import Machine
from testbed.plan.codec import from_json
from testbed.run import room
from testbed.run.needs import MIB, Needs
from testbed.run.room import require_room
from tests.support.lab import small_plan

NEEDS = Needs(touched_bytes=300 * MIB, memory_mib=512, record_bytes=20 * MIB, real_s=9.0, maps=7_000)


@dataclass
class FakeMachine(Machine):
    """A machine with so many mebibytes free."""

    disk: int = 20
    memory: int | None = 300
    asked: str = ""
    maps: int | None = 7_000

    def free_bytes(self, folder: str) -> int:
        self.asked = folder
        return self.disk * MIB

    def most_maps(self) -> int | None:
        return self.maps

    def available_memory_bytes(self) -> int | None:
        return None if self.memory is None else self.memory * MIB


@pytest.fixture(autouse=True)
def _needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "needs_of", lambda plan: NEEDS)
    monkeypatch.setattr(room, "memory_dir", lambda need_bytes: Path(f"/{need_bytes // MIB}"))


@pytest.mark.parametrize("memory", [300, None])
def test_a_machine_with_just_enough(tmp_path: Path, memory: int | None) -> None:
    machine = FakeMachine(memory=memory)
    assert require_room(small_plan(), tmp_path / "runs" / "x", machine) == Memory(512, Path("/300"))
    assert machine.asked == str(tmp_path)


def test_a_disk_that_is_too_small(tmp_path: Path) -> None:
    with pytest.raises(MachineError) as caught:
        require_room(small_plan(), tmp_path / "x", FakeMachine(disk=19))
    assert str(caught.value) == (
        f"the record takes about 20 MiB, and {tmp_path} has 19 MiB free: give another --out, or sample less "
        "often (measure.interval)"
    )


def test_too_little_memory(tmp_path: Path) -> None:
    with pytest.raises(MachineError) as caught:
        require_room(small_plan(), tmp_path, FakeMachine(memory=299))
    assert str(caught.value) == (
        "the guest needs about 300 MiB of memory, and this machine has 299 MiB left: use fewer hosts or "
        "transfers, or a larger machine"
    )


def test_too_few_mappings(tmp_path: Path) -> None:
    with pytest.raises(MachineError) as caught:
        require_room(small_plan(), tmp_path, FakeMachine(maps=6_999))
    assert str(caught.value) == (
        "a program of the guest needs about 7000 memory mappings, the machine allows 6999: "
        "sysctl -w vm.max_map_count=14000, or use fewer transfers"
    )
    assert require_room(small_plan(), tmp_path, FakeMachine(maps=None)) is not None


def test_without_a_guest_there_is_no_memory_to_give(tmp_path: Path) -> None:
    plan = replace(small_plan(clock="real"), backend="native")
    assert require_room(plan, tmp_path, FakeMachine(memory=0)) is None


def test_a_run_that_its_deadline_would_end(tmp_path: Path) -> None:
    plan = small_plan("deadline.real=4s")
    with pytest.raises(InputError) as caught:
        require_room(plan, tmp_path, FakeMachine())
    assert str(caught.value) == (
        "the run takes about 9 s of real time, and is ended after 4 s (deadline.real): set it to 18s, or "
        "move less"
    )
    require_room(small_plan("deadline.real=5s"), tmp_path, FakeMachine())


def test_planning_tells_what_would_end_a_run_and_refuses_only_what_cannot_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = FakeMachine(disk=19)
    monkeypatch.setattr(room, "Machine", lambda: machine)
    words = ["plan", "incast", "--backend", "uml", "--set", "deadline.real=4s", "--json"]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert from_json(printed.out).scenario == "incast"
    late, large = printed.err.splitlines()
    assert late == (
        "testbed: `run` would refuse this: the run takes about 9 s of real time, and is ended after 4 s "
        "(deadline.real): set it to 18s, or move less"
    )
    assert large.startswith("testbed: `run` would refuse this: the record takes about 20 MiB, and ")
    machine.memory = 299
    assert main(words) == 3
    assert "the guest needs about 300 MiB of memory" in capsys.readouterr().err
