"""The real clock: the distribution's guest kernel, everything slowed by the scenario's dilation.

The yardstick is the same scenario in virtual time. A machine that is busy with something else cannot keep
up; then the run must say so and exit with 4, and what only a valid run shows is tried once more.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.lab.kernels import distribution_kernel
from tests.support.command import OF_TIME, Run, call, failed_checks, run, settings

pytestmark = [pytest.mark.slow, pytest.mark.ovs]

SCENARIO = Path(__file__).parents[1] / "data/scenarios/good/small-incast.yaml"
REAL = ("--backend", "uml", "--clock", "real")
SLOWED = ["dilation=1000"]

LAST_END_SHARE = 0.02
"""What the validity check of the rates lets pass."""
QUEUE_SHARE = 0.1
"""Mean queues of three runs on a machine under load were 3 % from virtual time's; marks are few enough
(about 1,100) for a tenth of this by chance alone."""


def _real(out: Path, *sets: str) -> Run:
    """Run in real time; AssertionError when a check fails that is none of time."""
    done = call("run", SCENARIO, "--out", out, *settings(sets), *REAL)
    assert done.returncode in (0, 4), done.stderr
    ran = Run(done, out)
    failed = failed_checks(ran.summary)
    assert failed <= OF_TIME, done.stdout
    assert done.returncode == (4 if failed else 0)
    return ran


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _real(tmp_path_factory.mktemp("real") / "record", *SLOWED)


@pytest.fixture(scope="module")
def virtual(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("virtual") / "record", SCENARIO)


@pytest.fixture(scope="module")
def valid(real: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A valid run: the first one, or another."""
    ran = real
    if failed_checks(ran.summary):
        ran = _real(tmp_path_factory.mktemp("again") / "record", *SLOWED)
    if failed_checks(ran.summary):
        pytest.skip("announced: the machine is too busy to keep up with a real clock")
    return ran


def test_it_is_the_distributions_kernel_in_real_time(real: Run) -> None:
    summary = real.summary
    assert (summary["backend"], summary["clock"], summary["dilation"]) == ("uml", "real", 1000)
    environment = json.loads((real.out / "environment.json").read_text())
    assert environment["kernel"]["version"] == distribution_kernel().version
    assert real.record.facts["versions"]["kernel"] == distribution_kernel().version


def test_what_was_set_is_read_back(real: Run) -> None:
    items = real.record.facts["readback"]
    assert len(items) > 100
    assert [item for item in items if not item["ok"]] == []
    rates = {item["where"]: item["planned"] for item in items if item["what"] == "rate"}
    assert (rates["leaf2-d1"], rates["leaf1-spine1"]) == ("1e+07", "2e+07")


def test_every_connection_ran_dctcp(real: Run) -> None:
    used = [(o.sender_congestion_control, o.receiver_congestion_control, o.ecn) for o in real.record.outcomes]
    assert used == [("dctcp", "dctcp", True)] * 4


def test_it_behaves_as_in_virtual_time(valid: Run, virtual: Run) -> None:
    assert valid.last_end_ns() == pytest.approx(virtual.last_end_ns(), rel=LAST_END_SHARE)
    there, here = valid.summary["links"]["leaf2-d1"], virtual.summary["links"]["leaf2-d1"]
    assert there["queue_bytes"]["mean"] == pytest.approx(here["queue_bytes"]["mean"], rel=QUEUE_SHARE)
    assert there["ce_marks"] == pytest.approx(here["ce_marks"], rel=2 * QUEUE_SHARE)
    assert valid.summary["verdict"]["segment"] == virtual.summary["verdict"]["segment"] == "dest-leaf"


def test_a_clock_too_fast_for_the_machine_is_not_valid_and_exits_with_4(tmp_path: Path) -> None:
    # 10 Gbit/s and a sample each 20 us, undilated, and by the other controller framework. The deadline, which
    # a scenario of 7 ms has at 2 s, is in real seconds here.
    sets = ("dilation=1", "controller.framework=ryu", "deadline.scenario=60s")
    ran = _real(tmp_path / "record", *sets)
    assert ran.done.returncode == 4
    assert "sampling" in failed_checks(ran.summary)
    assert ran.done.stderr.splitlines()[-1].startswith("testbed: the measurement is not valid: ")
    assert ran.record.facts["controller"]["framework"] == "ryu"


def test_dilation_is_refused_in_virtual_time(tmp_path: Path) -> None:
    done = call("run", SCENARIO, "--out", tmp_path / "record", *settings(SLOWED))
    assert done.returncode == 2
    assert not (tmp_path / "record").exists()
