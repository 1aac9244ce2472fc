"""The native backend, run by a stock guest kernel in the place of a machine with root and modules.

One guest does the first half: a run without modules, a prompt, a whole run, and two side by side of which
one is killed. Another does the rest: Ryu, a person at the prompt, and each part of a run killed.
"""

from __future__ import annotations

import pytest

from testbed.lab.kernels import MODULES
from testbed.lab.preflight import OTHER_KERNEL
from tests.support.command import OF_TIME, failed_checks
from tests.support.guest import Guest, boot

pytestmark = [pytest.mark.slow, pytest.mark.ovs, pytest.mark.timeout(570)]


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Guest:
    """What the first guest left."""
    return boot(tmp_path_factory.mktemp("guest"), "native.sh")


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory) -> Guest:
    """What the second guest left."""
    return boot(tmp_path_factory.mktemp("more"), "native-more.sh")


def test_without_modules_it_says_so_and_starts_nothing(guest: Guest) -> None:
    assert guest.read("no-modules.status") == "3\n"
    assert guest.read("no-modules.err") == (
        "testbed: the native backend cannot run here: no "
        + ", ".join(f"module {name}" for name in MODULES)
        + f": {OTHER_KERNEL}\n"
    )
    assert not guest.has("no-modules")


def test_doctor_finds_the_modules(guest: Guest) -> None:
    assert guest.json("doctor.json")["backends"]["native"] is True


def assert_whole(guest: Guest, name: str) -> None:
    """Assert that a run came to its end, measured what it should and may be believed."""
    summary = guest.json(f"{name}/summary.json")
    assert (summary["backend"], summary["clock"], summary["dilation"]) == ("native", "real", 1000)
    assert (summary["transfers"]["completed"], summary["verdict"]["segment"]) == (4, "dest-leaf")
    assert summary["links"]["leaf2-d1"]["ce_marks"] > 0
    valid = summary["fidelity"]["valid"]
    assert guest.read(f"{name}.status") == ("0\n" if valid else "4\n")
    # The only excuse: a machine busy with something else.
    assert failed_checks(summary) <= OF_TIME


def test_a_whole_run(guest: Guest) -> None:
    assert_whole(guest, "complete")


def test_every_connection_ran_dctcp_without_a_change_to_the_machine(guest: Guest) -> None:
    outcomes = guest.json("complete/raw/outcomes.json")
    used = [(outcome["congestion_control"], outcome["ecn"]) for outcome in outcomes]
    assert used == [({"sender": "dctcp", "receiver": "dctcp"}, True)] * 4
    assert "dctcp" not in guest.read("allowed.txt").split()


def test_nothing_is_left_after_a_run(guest: Guest) -> None:
    assert guest.read("after-run.txt") == guest.read("before.txt")


def test_commands_are_run_at_the_prompt(guest: Guest) -> None:
    assert guest.read("shell.status") == "0\n", guest.read("shell.err")
    said = guest.read("shell.out")
    assert "1 packets transmitted, 1 received, 0% packet loss" in said
    assert guest.read("after-shell.txt") == guest.read("before.txt")


def test_a_run_beside_the_one_that_was_killed_came_to_its_end(guest: Guest) -> None:
    during = guest.read("during.txt").splitlines()
    assert len([line for line in during if line.startswith("ovs-vswitchd")]) == 2
    summary = guest.json("beside/summary.json")
    assert (summary["transfers"]["completed"], summary["verdict"]["segment"]) == (4, "dest-leaf")
    assert guest.read("beside.status") in ("0\n", "4\n")


def test_nothing_is_left_after_the_command_was_killed(guest: Guest) -> None:
    assert "ovs-vswitchd" in guest.read("during.txt")
    assert guest.read("killed.status") == "137\n"
    assert guest.read("after-kill.txt") == guest.read("before.txt")


# ---- the second guest -----------------------------------------------------------------


def test_a_whole_run_under_ryu(more: Guest) -> None:
    assert_whole(more, "ryu")
    controller = more.json("ryu/raw/facts.json")["controller"]
    assert (controller["framework"], controller["version"]) == ("ryu", "4.34")
    assert more.read("after-ryu.txt") == more.read("before.txt")


def test_a_person_at_the_prompt(more: Guest) -> None:
    typed = more.json("typed.json")
    assert "hosts     p1 p2 p3 p4 d1\r\nswitches  leaf1 leaf2 spine1 spine2\r\n" in typed["first"]
    assert "All rates are divided, all delays multiplied by 1000 (dilation)." in typed["first"]
    assert "Time stands still" not in typed["first"]
    assert "c0 d1 leaf1 leaf2 p1 p2 p3 p4 spine1 spine2" in typed["nod\t\n"]
    assert "2 packets transmitted, 2 received, 0% packet loss" in typed["p1 ping -c 2 d1\n"]
    assert "24 80" in typed["sh stty size\n"]
    assert "packets transmitted" in typed["interrupted"]
    assert typed["status"] == 0
    assert more.read("after-typed.txt") == more.read("before.txt")


DEATHS = {
    "vswitchd": "ovs-vswitchd ended with status -9; see its log in the record",
    "controller": "the controller ended with status -9; see logs/controller.log",
    "senders": "traffic was killed by SIGKILL; see logs/traffic.log",
}


@pytest.mark.parametrize(("name", "reason"), DEATHS.items(), ids=DEATHS)
def test_a_part_that_is_killed_is_named_and_nothing_is_left(more: Guest, name: str, reason: str) -> None:
    assert more.read(f"{name}.status") == "3\n"
    assert more.read(f"{name}.err").splitlines()[-1] == f"testbed: {reason}"
    manifest = more.json(f"{name}/manifest.json")
    assert (manifest["status"], manifest["reason"]) == ("failed", reason)
    assert more.read(f"after-{name}.txt") == more.read("before.txt")


def test_nothing_is_left_of_a_killed_command(more: Guest) -> None:
    assert more.read("harness.status") == "137\n"
    assert more.json("harness/manifest.json")["status"] == "running"
    assert more.read("after-harness.txt") == more.read("before.txt")
