"""Tables in the terminal: aligned, at most 80 columns, nothing left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.analysis import write_outputs
from testbed.checks import Result
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.record.reader import Record
from testbed.scenario import load_scenario, shipped_scenarios
from testbed.terminal import narrow, plan_text, summary_text, table
from tests.support.lab import small_plan
from tests.support.synthetic import CASES, MIB, write_record
from topologies import Host

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = [
    *(name for name, _ in shipped_scenarios()),
    *map(str, sorted((ROOT / "tests/data/scenarios/good").glob("*.yaml"))),
]


def widest(text: str) -> int:
    return max(len(line) for line in text.splitlines())


def test_the_first_column_is_to_the_left_and_the_others_to_the_right() -> None:
    assert table(["name", "n", "bytes"], [["a", "1", "1 MB"], ["longer", "22", ""]]) == [
        "  name     n  bytes",
        "  a        1   1 MB",
        "  longer  22",
    ]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda name: Path(name).stem)
def test_the_plan_of_every_scenario_fits_the_terminal(scenario: str) -> None:
    plan = build_plan(load_scenario(scenario), seed=1, backend="uml", clock="real")
    assert widest(plan_text(plan)) <= 80


PLAN_TEXT = """\
small, seed 1, uml with the virtual clock
  Two senders, one receiver.

  leaf1: p1(10.0.1.1) p2(10.0.1.2)
  leaf2: d1(10.0.2.1)
  spines: spine1, spine2
  routing: ecmp, by hash of ipv4_src, ipv4_dst, tcp_src, tcp_dst
  controller on os-ken

  queues of    links        rate  delay   K_min   K_max  P_max  limit
  source-rail      3  100 Gbit/s   1 µs       -       -      -   8 MB
  source-leaf      4  100 Gbit/s   1 µs  100 kB  400 kB    0.2   8 MB
  spine            4  100 Gbit/s   1 µs  100 kB  400 kB    0.2   8 MB
  dest-leaf        3  100 Gbit/s   1 µs  100 kB  400 kB    0.2   8 MB

  transfer  from, to    bytes  start   port   alone
  0         p1 -> d1  4.19 MB   0 ns  20000  345 µs
  1         p2 -> d1  4.19 MB   0 ns  20000  345 µs
  2 transfers, 8.39 MB in all

  ideal end of the last transfer  686 µs"""


def shown(plan: Plan) -> str:
    """The text with plain blanks: a number and its unit are held together by another one."""
    return plan_text(plan).replace("\N{NO-BREAK SPACE}", " ")


def test_a_plan_in_full() -> None:
    assert shown(small_plan("description=Two senders, one receiver.")) == PLAN_TEXT


def test_many_transfers_are_counted_and_not_all_listed() -> None:
    plan = small_plan("workload.requests.count=15")
    lines = shown(plan).splitlines()
    listed = [line for line in lines if " -> " in line]
    assert [line.split()[0] for line in listed] == [str(number) for number in range(12)]
    assert "  15 transfers, 62.9 MB in all (3 more not listed)" in lines
    exact = plan_text(small_plan("workload.requests.count=12"))
    assert "not listed" not in exact


def test_background_flows_are_listed() -> None:
    flows = (
        "[{from: p1, to: d1, duration: 10ms}, {from: p2, to: d1, rate: 5gbit, protocol: udp, duration: 1s}]"
    )
    lines = shown(small_plan(f"workload.background={flows}")).splitlines()
    at = next(number for number, line in enumerate(lines) if line.split()[:1] == ["background"])
    assert " ".join(lines[at + 1].split()) == "0 p1 -> d1 tcp as fast as it goes 0 ns 10 ms"
    assert lines[at + 2].split()[4:7] == ["udp", "5", "Gbit/s"]


@pytest.fixture(scope="module", params=sorted(CASES))
def summary(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = write_record(tmp_path_factory.mktemp("record"), CASES[request.param](size=2 * MIB))
    return dict(write_outputs(Record.open(folder)))


def test_the_summary_of_every_kind_of_run_fits_the_terminal(summary: dict[str, Any]) -> None:
    text = summary_text(summary, [], Path("runs/x"))
    assert widest(text) <= 80
    assert text.splitlines()[-1] == "  report      runs/x/report.html"


def test_every_stretch_and_the_sender_have_a_row(summary: dict[str, Any]) -> None:
    text = summary_text(summary, [], Path("runs/x"))
    rows = [line.split()[0] for line in text.splitlines() if line.startswith("  ") and line.split()]
    segments = {link["segment"] for link in summary["links"].values()}
    assert segments | {"sender"} <= set(rows)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "  PFC risk    none: no queue reached XOFF"),
        (
            {"link": "leaf3-d1", "links": 1, "crossings": 1, "total_ms": 0.02, "longest_ms": 0.02},
            "  PFC risk    leaf3-d1 crossed XOFF 1 time: 20 µs above, 20 µs at a stretch",
        ),
        (
            {"link": "leaf3-d1", "links": 2, "crossings": 3, "total_ms": 1.5, "longest_ms": 0.9},
            "  PFC risk    2 links, first leaf3-d1, crossed XOFF 3 times: 1.5 ms above,",
        ),
    ],
)
def test_where_pfc_would_have_paused_somebody(
    summary: dict[str, Any], changes: dict[str, Any], line: str
) -> None:
    events = summary["events"] | {"xoff": summary["events"]["xoff"] | changes}
    text = summary_text(summary | {"events": events}, [], Path("runs/x")).replace("\N{NO-BREAK SPACE}", " ")
    assert line in text.splitlines()
    assert widest(text) <= 80
    unwatched = summary | {"events": summary["events"] | {"xoff": None}}
    assert "PFC" not in summary_text(unwatched, [], Path("runs/x"))


def test_expectations_are_shown_with_what_was_measured(summary: dict[str, Any]) -> None:
    results = [
        Result("transfers.count == 8", "== 8", "8", True),
        Result("verdict.segment == spine", "== spine", "dest-leaf", False),
    ]
    lines = summary_text(summary, results, Path("runs/x")).splitlines()
    assert lines[-3:-1] == [
        "  holds       transfers.count == 8",
        "  FAILS       verdict.segment == spine (measured: dest-leaf)",
    ]


def test_why_a_run_is_not_valid_is_wrapped(summary: dict[str, Any]) -> None:
    reason = "no queue was sampled while transfers ran, " * 4
    invalid = summary | {"fidelity": {"valid": False, "reasons": [reason.strip(), "another"]}}
    text = summary_text(invalid, [], Path("runs/x"))
    assert text.count("NOT VALID") == 2
    assert widest(text) <= 80


def test_a_fabric_with_many_hosts_is_wrapped() -> None:
    plan = small_plan()
    (nic,) = plan.topology.hosts[0].nics
    hosts = tuple(
        Host(name, "prefill", (replace(nic, name=name, ip=f"10.0.1.{number}"),))
        for number, name in ((number, f"prefill{number}") for number in range(1, 30))
    )
    crowded = replace(plan, topology=replace(plan.topology, hosts=hosts), transfers=())
    text = plan_text(crowded)
    assert widest(text) <= 80
    assert "prefill29(10.0.1.29)" in text
    assert "leaf2: no hosts" in text


def test_a_table_that_is_too_wide_is_narrower_and_still_aligned() -> None:
    head, rows = ["at", *["column"] * 9], [["all", *["1"] * 9], ["d1", *["22"] * 9]]
    assert {len(line) for line in narrow(head, rows)} == {2 + 3 + 9 * 8}
    wide = ["at", *["column"] * 10]
    lines = narrow(wide, [[*row, row[-1]] for row in rows])
    assert {len(line) for line in lines} == {2 + 3 + 10 * 7}
    assert lines[2] == "  d1  " + " ".join(["    22"] * 10)
