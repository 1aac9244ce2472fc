"""iperf3 flows beside the transfers: started, limited, and reported by iperf3 itself."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import SMALL, run, write_scenario

RATE_BPS = 100_000_000
BESIDE = (
    SMALL.replace("prefill: {count: 2}", "prefill: {count: 3}").split("workload:")[0]
    + """\
workload:
  transfers:
  - {from: p1, to: d1, bytes: 4mib, start: 100ms}
  - {from: p2, to: d1, bytes: 4mib, start: 100ms}
  background:
  - {from: p3, to: d1, protocol: PROTOCOL, rate: 100mbit, duration: 1s}
measure: {interval: 200us, progress: 5ms}
"""
)
"""The transfers come when iperf3 runs."""

TOGETHER = """\
  - {from: p1, to: d1, bytes: 4mib, start: START}
  - {from: p2, to: d1, bytes: 4mib, start: START}
  background:
  - {from: p1, to: d1, protocol: tcp, start: START, duration: 3ms}
"""


def received_bps(report: dict[str, Any], protocol: str) -> float:
    return float(report["end"]["sum_received" if protocol == "tcp" else "sum"]["bits_per_second"])


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_flow_runs_beside_the_transfers(tmp_path: Path, protocol: str) -> None:
    scenario = write_scenario(tmp_path, BESIDE.replace("PROTOCOL", protocol))
    done = run(tmp_path / "record", scenario)
    (entry,) = done.record.background
    report = entry["iperf3"]
    assert "error" not in report
    assert report["start"]["test_start"]["protocol"] == protocol.upper()
    assert report["start"]["test_start"]["duration"] == 1
    # The sender's own pacing; its first burst and the last, partial interval make up the tolerance.
    assert received_bps(report, protocol) == pytest.approx(RATE_BPS, rel=0.1)
    counted = done.summary["links"]["p3-leaf1"]["bytes"] * 8
    assert counted >= received_bps(report, protocol) * 0.95
    assert done.summary["transfers"]["completed"] == 2
    assert done.summary["fidelity"]["valid"] is True


@pytest.mark.parametrize("start", ["0ms", "1500ms"])
def test_a_flow_that_fills_its_socket_holds_nobody_up(tmp_path: Path, start: str) -> None:
    # iperf3 does not sleep while its socket has room; the probe and the traffic must come before it. After a
    # second in which nothing happened Linux would let it go first.
    workload = "workload:\n  transfers:\n" + TOGETHER.replace("START", start)
    scenario = write_scenario(tmp_path, SMALL.split("workload:")[0] + workload)
    done = run(tmp_path / "record", scenario)
    times = done.record.series("leaf2-d1").time_ns
    holes = [after - before for before, after in pairwise(times.tolist())]
    assert max(holes) < 2 * done.record.plan.measure.interval_ns
    assert done.summary["fidelity"]["valid"] is True
