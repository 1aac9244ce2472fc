"""Every packet that leaves a link is recorded when it leaves, and the run comes out the same again.

One run, made twice by `--twice` and once more by `rerun`.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from testbed.record.reader import Departures
from tests.support.command import MIB, Run, call, run, settings, wire_bytes, write_scenario

PORT, NIC = "leaf2-d1", "p1-leaf1"
SETS = [f"measure.departures=[{PORT}, {NIC}]"]
DATA = 500
"""Frames larger than so many bytes carry data."""


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("twice")
    return run(folder / "record", write_scenario(folder), "--twice", sets=SETS)


@pytest.fixture(scope="module")
def port(twice: Run) -> Departures:
    return twice.record.departures(PORT)


def test_a_second_run_gave_the_same_bytes(twice: Run) -> None:
    assert twice.done.stdout.splitlines()[-1] == "  twice       the second run gave the same bytes"


def test_and_so_does_the_record_alone(twice: Run) -> None:
    done = call("rerun", twice.out, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"same": True, "differences": [], "raw": [], "environment": []}


def test_all_packets_are_there(twice: Run, port: Departures) -> None:
    assert port.lost == 0
    sent = int(port.frame_bytes[port.frame_bytes > DATA].sum())
    # Both transfers once; what is retransmitted would come on top, but nothing was lost.
    assert sent == 2 * wire_bytes(4 * MIB, 4200)
    totals = twice.record.totals(PORT)
    # The samples begin after the handshakes.
    assert 0 <= int(port.frame_bytes.sum()) - totals["bytes"] < 1_000
    assert int((port.ecn == 3).sum()) == totals["ce_marks"]


def test_packets_leave_one_after_the_other_at_the_rate(port: Departures) -> None:
    assert (np.diff(port.time_ns) >= 0).all()
    data = np.flatnonzero(port.frame_bytes > DATA)[200:-200]
    first = data[:-1][np.diff(data) == 1]
    gaps_ns, frames_ns = port.time_ns[first + 1] - port.time_ns[first], port.frame_bytes[first] * 8 / 100
    # The kernel counts whole nanoseconds, and the clock has steps of 8. Where a queue ran empty there is a
    # longer gap, and the bucket may hold 64 ns after it.
    assert (gaps_ns - frames_ns).min() >= -64 - 16
    behind = np.abs(gaps_ns - frames_ns) <= 16
    assert behind.mean() > 0.95
    assert gaps_ns[behind].sum() == pytest.approx(frames_ns[behind].sum(), rel=0.002)


def test_a_packet_arrives_after_the_delay_of_its_path(twice: Run, port: Departures) -> None:
    nic = twice.record.departures(NIC)
    first = np.flatnonzero(nic.frame_bytes > DATA)[0]
    same = np.flatnonzero((port.source == nic.source[first]) & (port.sequence == nic.sequence[first]))
    arrived = [at for at in same if port.frame_bytes[at] > DATA]
    # Four links of 1 us. Two first windows of ten packets may stand before it.
    under_way_ns = int(port.time_ns[arrived[0]] - nic.time_ns[first])
    assert 4_000 <= under_way_ns < 4_000 + 20 * 340


def test_a_link_that_is_none_is_refused(tmp_path: Path) -> None:
    words = settings(["measure.departures=[leaf2-d9]"])
    done = call("run", write_scenario(tmp_path), "--out", tmp_path / "record", *words)
    assert done.returncode == 2
    assert "measure.departures.0: is no link (found leaf2-d9)" in done.stderr
    assert not (tmp_path / "record").exists()
