"""Each check of the measurement holds on a good record and is provoked to fail by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.analysis import fidelity as fidelity_module
from testbed.analysis import lab_checks
from testbed.analysis.fidelity import CHECKS, fidelity, marking_probability
from testbed.analysis.held_rates import held_rates
from testbed.record import layout
from testbed.record.reader import LinkSeries, Record, SampleGroup
from tests.support.synthetic import edit_json, edit_samples, incast, reseal, write_record

CASE = incast(senders=2, size=4 << 20)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_record(tmp_path / "run", CASE)


def _failed(record: Record) -> dict[str, str]:
    found = fidelity(record)
    failed = {check["name"]: check["detail"] for check in found["checks"] if not check["ok"]}
    assert found["valid"] == (not failed)
    assert found["reasons"] == list(failed.values())
    return failed


def _retimed(record: Record, change: Callable[[Any], Any]) -> Record:
    groups: list[SampleGroup] = []
    for group in record.groups:
        rows = np.array(group.rows)
        rows[:, 0] = change(rows[:, 0])
        groups.append(replace(group, rows=rows))
    return replace(record, groups=tuple(groups))


def test_a_good_record_passes_every_check(folder: Path) -> None:
    found = fidelity(Record.open(folder))
    assert (found["valid"], found["reasons"]) == (True, [])
    assert [check["name"] for check in found["checks"]] == [
        check.__name__.removeprefix("check_") for check in CHECKS
    ]


@pytest.fixture
def deep(tmp_path: Path) -> Record:
    """An incast whose queue holds more than its link sends from one sample to the next."""
    record = Record.open(write_record(tmp_path / "deep", incast(senders=2)))
    return edit_samples(record, "leaf3-d1", "backlog_bytes", lambda values: values * 3)


def test_every_check_is_made() -> None:
    written = {
        name for module in (fidelity_module, lab_checks) for name in vars(module) if name.startswith("check_")
    }
    assert {check.__name__ for check in CHECKS} == written


def test_rates(deep: Record) -> None:
    # A little less than the tolerance, so that the counters still hold all payload.
    slow = edit_samples(deep, "leaf3-d1", "bytes", lambda values: values * 0.979)
    assert _failed(slow) == {"rates": "links sent below their rate while packets waited: leaf3-d1 (97.9 %)"}


def test_a_link_without_a_backlog_need_not_send(deep: Record) -> None:
    assert held_rates(deep) == {"leaf3-d1": pytest.approx(1.0, abs=1e-3)}
    assert held_rates(edit_samples(deep, "leaf3-d1", "backlog_bytes", lambda values: values // 10)) == {}


@pytest.mark.parametrize(
    ("dilation", "kmin_bytes", "judged"),
    [(1, 100_000, ["leaf3-d1"]), (1, 60_000, []), (1000, 60_000, ["leaf3-d1"])],
    ids=["near samples", "samples far apart", "samples far apart, real clock"],
)
def test_a_queue_that_may_have_run_empty_is_judged_on_a_real_clock_only(
    dilation: float, kmin_bytes: int, judged: list[str], tmp_path: Path
) -> None:
    """The link sends 250 kB in 20 us: a short queue at both ends says nothing of the time between them."""
    record = Record.open(write_record(tmp_path, incast(senders=2, dilation=dilation)))
    queues = tuple(replace(queue, kmin_bytes=kmin_bytes) for queue in record.plan.queues)
    assert list(held_rates(replace(record, plan=replace(record.plan, queues=queues)))) == judged


def test_status(tmp_path: Path) -> None:
    record = Record.open(write_record(tmp_path, CASE, status="failed", reason="deadline of 1 s reached"))
    assert _failed(record) == {"status": "the run is failed: deadline of 1 s reached"}


def test_intact(folder: Path) -> None:
    (folder / layout.SCENARIO).write_text("name: other\n")
    assert _failed(Record.open(folder)) == {
        "intact": "the record is damaged: scenario.yaml has 12 bytes, the manifest says 13"
    }


def test_completed(folder: Path) -> None:
    edit_json(folder, layout.OUTCOMES, lambda outcomes: outcomes[1].update(end_ns=None, error="timed out"))
    assert _failed(Record.open(folder)) == {"completed": "1 of 2 transfers did not complete: 1 (timed out)"}


def test_starts(folder: Path) -> None:
    edit_json(folder, layout.OUTCOMES, lambda outcomes: outcomes[1].update(start_ns=80_000))
    assert _failed(Record.open(folder)) == {
        "starts": "transfers began off their planned time: transfer 1 by 80 us"
    }


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (
            {"congestion_control": {"sender": "dctcp", "receiver": "cubic"}},
            "sender dctcp, receiver cubic, ECN on",
        ),
        (
            {"congestion_control": {"sender": "cubic", "receiver": "dctcp"}},
            "sender cubic, receiver dctcp, ECN on",
        ),
        ({"ecn": False}, "sender dctcp, receiver dctcp, ECN off"),
        ({"ecn": None, "congestion_control": None}, "sender None, receiver None, ECN not reported"),
    ],
)
def test_congestion_control(folder: Path, change: dict[str, Any], found: str) -> None:
    edit_json(folder, layout.OUTCOMES, lambda outcomes: outcomes[0].update(change))
    assert _failed(Record.open(folder)) == {
        "congestion_control": f"dctcp with ECN on was asked for, but transfer 0: {found}"
    }


def test_marking(folder: Path) -> None:
    record = edit_samples(Record.open(folder), "leaf3-d1", "ce_marks", lambda marks: 0 * marks)
    assert list(_failed(record)) == ["marking"]
    assert _failed(record)["marking"].startswith(
        "queues stood above K_min but no packet was marked: leaf3-d1 (about "
    )


def test_dctcp_without_one_mark_though_packets_waited(tmp_path: Path) -> None:
    record = Record.open(write_record(tmp_path, incast(senders=2, size=16 << 20)))
    late = tuple(replace(queue, kmin_bytes=2_000_000, kmax_bytes=3_000_000) for queue in record.plan.queues)
    record = replace(record, plan=replace(record.plan, queues=late))

    def standing(record: Record, most: int) -> Record:
        return edit_samples(record, "leaf3-d1", "backlog_bytes", lambda backlog: np.sign(backlog) * most)

    silent = edit_samples(record, "leaf3-d1", "ce_marks", lambda marks: 0 * marks)
    unheard = standing(silent, 1_000_000)
    assert _failed(unheard)["marking"] == (
        "dctcp ran without one mark, so it is another control: leaf3-d1 held up to 1000000 B, "
        "K_min is 2000000 B"
    )
    cubic = replace(unheard.plan.transport, congestion_control="cubic")
    short = standing(silent, 90_000)  # as where a landing limits the window
    for allowed in (
        standing(record, 1_000_000),
        short,
        replace(unheard, plan=replace(unheard.plan, transport=cubic)),
    ):
        assert "marking" not in _failed(allowed)


def test_no_marks_are_expected_without_ecn_or_without_a_queue(folder: Path) -> None:
    record = edit_samples(Record.open(folder), "leaf3-d1", "ce_marks", lambda marks: 0 * marks)
    short = edit_samples(record, "leaf3-d1", "backlog_bytes", lambda backlog: np.minimum(backlog, 100_000))
    off = replace(
        record,
        plan=replace(
            record.plan, transport=replace(record.plan.transport, congestion_control="cubic", ecn=False)
        ),
    )
    cubic = replace(record.plan.transport, congestion_control="cubic")
    assert "marking" not in _failed(replace(short, plan=replace(record.plan, transport=cubic)))
    assert "marking" not in _failed(off)


def test_the_marking_probability_rises_to_pmax_and_jumps_to_one() -> None:
    queue = next(queue for queue in CASE.plan.queues if queue.link == "leaf3-d1")
    backlog = np.array([0, 100_000, 250_000, 399_999, 400_000, 900_000])
    series = LinkSeries(backlog, backlog, backlog, backlog, backlog, backlog)
    assert marking_probability(series, queue).tolist() == pytest.approx([0, 0, 0.1, 0.2, 1, 1], abs=1e-6)


def test_sampling(folder: Path) -> None:
    record = Record.open(folder)
    assert "0 of " in {c["name"]: c["detail"] for c in fidelity(record)["checks"]}["sampling"]
    late = _retimed(record, lambda times: times + 15_000 * (np.arange(len(times)) % 10 == 0))
    detail = _failed(late)["sampling"]
    assert "the longest hole is 1.75 intervals of 20 us" in detail
    assert int(detail.split()[0]) > 5


def test_one_hole_counts_as_all_the_samples_that_are_not_in_it(folder: Path) -> None:
    record = Record.open(write_record(folder.parent / "held-up", incast(senders=2, size=64 << 20)))
    held_up = _retimed(record, lambda times: times + 600_000 * (np.arange(len(times)) > len(times) // 2))
    assert "the longest hole is 31 intervals of 20 us" in _failed(held_up)["sampling"]


def test_one_late_sample_in_many_is_no_reason(folder: Path) -> None:
    record = Record.open(folder)
    once = _retimed(record, lambda times: times + 30_000 * (np.arange(len(times)) > len(times) // 2))
    long = incast(senders=2, size=64 << 20)
    assert "sampling" in _failed(once)
    record = Record.open(write_record(folder.parent / "long", long))
    once = _retimed(record, lambda times: times + 30_000 * (np.arange(len(times)) > len(times) // 2))
    checks = {check["name"]: check["detail"] for check in fidelity(once)["checks"] if check["ok"]}
    assert checks["sampling"].startswith("2 of ")


def test_coverage(folder: Path) -> None:
    record = Record.open(folder)
    short = replace(record, groups=tuple(replace(group, rows=group.rows[:20]) for group in record.groups))
    assert _failed(short)["coverage"] == "samples do not span all transfers: group fabric, hosts"
    bare = replace(record, groups=record.groups[:1])
    assert _failed(bare)["coverage"] == "links were not sampled: p1-leaf1, p2-leaf2, d1-leaf3"


def test_a_record_without_samples_is_not_valid(folder: Path) -> None:
    failed = _failed(replace(Record.open(folder), groups=()))
    assert failed["sampling"] == "no queue was sampled while transfers ran"
    assert set(failed) == {"sampling", "coverage"}


def test_host_drops(folder: Path) -> None:
    def _seven_more(drops: Any) -> Any:
        return drops + 7 * (np.arange(len(drops)) > 3)

    record = Record.open(folder)
    host = edit_samples(record, "p2-leaf2", "drops", _seven_more)
    assert _failed(host) == {"host_drops": "hosts dropped packets at their own egress: p2-leaf2 (7)"}
    assert _failed(edit_samples(record, "leaf3-d1", "drops", _seven_more)) == {}


def test_tcp_memory(folder: Path) -> None:
    counters = {"p1": {"TCPMemoryPressures": 2}, "p2": {"TCPDelivered": 9}, "d1": {"TCPMemoryPressures": 1}}
    record = replace(Record.open(folder), tcp_counters=counters)
    reason = "TCP ran short of memory in p1, d1: give the lab more"
    assert _failed(record) == {"tcp_memory": reason}


@pytest.mark.parametrize(
    ("readback", "reason"),
    [
        ([], "nothing was read back from the lab"),
        (
            [{"where": "leaf3-d1", "what": "kmin", "planned": 1, "found": 2, "ok": False}, {"ok": True}],
            "the lab differs from the plan: kmin of leaf3-d1 is 2, not 1",
        ),
    ],
)
def test_readback(folder: Path, readback: list[Any], reason: str) -> None:
    edit_json(folder, layout.FACTS, lambda facts: facts.update(readback=readback))
    assert _failed(Record.open(folder)) == {"readback": reason}


def test_paths(folder: Path) -> None:
    lines = (folder / layout.DATAPATH_FLOWS).read_text().splitlines()
    (folder / layout.DATAPATH_FLOWS).write_text("\n".join(lines[1:]))
    reseal(folder)
    assert _failed(Record.open(folder)) == {"paths": "the path of 1 transfers was not measured: 0"}


def test_counted(folder: Path) -> None:
    record = edit_samples(Record.open(folder), "leaf3-d1", "bytes", lambda counted: counted // 2)
    ((name, reason),) = _failed(record).items()
    assert name == "counted"
    assert reason.startswith("links counted less than arrived over them: leaf3-d1 (")
    assert reason.endswith(f" of {8 << 20} bytes)")


def test_not_too_fast(folder: Path) -> None:
    record = Record.open(folder)
    ideal = record.plan.transfers[0].ideal_ns
    allowed, floor = round(0.97 * ideal), 8 * 1_000_000 // 100  # what 1 MB takes at 100 Gbit/s
    fast = replace(record.outcomes[0], end_ns=round(0.98 * ideal) - floor - 2_000)
    fine = replace(record.outcomes[0], end_ns=max(allowed - floor // 2, 1))
    assert list(_failed(replace(record, outcomes=(fast, record.outcomes[1])))) == ["not_too_fast"]
    assert _failed(replace(record, outcomes=(fine, record.outcomes[1]))) == {}
