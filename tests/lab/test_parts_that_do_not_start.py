"""A receiver that does not start: an error within a bounded time, which names its host and why."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from testbed.errors import LabError
from testbed.lab import job
from testbed.plan.build import build_plan
from testbed.run.launch import run_plan
from testbed.scenario import load_scenario
from testbed.scenario.dump import scenario_yaml
from tests.support.command import SMALL, Machine, manifest, write_scenario

BACKGROUND = "  background: [{from: p1, to: d1, protocol: tcp, duration: 3ms}]\n"

IPERF3_IS_SILENT = """
printf '#!/bin/sh\\nexec sleep 1000\\n' >/run/silent
chmod +x /run/silent
mount --bind /run/silent /usr/bin/iperf3
"""
PORT_IS_TAKEN = f"""
(until [ -e /run/netns/d1 ] && ip -n d1 addr | grep -q 10.0.2.1; do sleep 0.01; done
exec ip netns exec d1 {sys.executable} -c '
import socket, time
taken = socket.create_server(("10.0.2.1", 5000))
time.sleep(1000)') &
"""


@pytest.mark.parametrize(
    ("scenario", "script", "reason"),
    [
        (
            SMALL + BACKGROUND,
            IPERF3_IS_SILENT,
            "background did not start: waited 10 s for iperf3 on d1; see logs/background.log",
        ),
        (
            SMALL,
            PORT_IS_TAKEN,
            "traffic did not start: OSError: [Errno 98] receiver on d1 (10.0.2.1:5000): "
            "Address already in use; see logs/traffic.log",
        ),
    ],
    ids=["an iperf3 that never listens", "a port that is taken"],
)
def test_the_receiver_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: str, script: str, reason: str
) -> None:
    fake = tmp_path / "fake-python"
    fake.write_text(f'#!/bin/sh\n{script}\nexec {sys.executable} "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setattr(job, "controller_python", lambda framework: str(fake))
    loaded = load_scenario(str(write_scenario(tmp_path, scenario)))
    plan = build_plan(loaded, seed=1, backend="uml", clock="virtual")
    out, machine = tmp_path / "record", Machine()
    with pytest.raises(LabError) as caught:
        run_plan(plan, scenario_yaml(loaded), out, lambda step, seconds: None)
    assert str(caught.value) == reason
    assert (manifest(out)["status"], manifest(out)["reason"]) == ("failed", reason)
    machine.assert_clean(out)
