"""Virtual time and a real clock in one table: what is compared, and what counts as a departure."""

from __future__ import annotations

import dataclasses

import pytest

from testbed.cli import main
from testbed.clocks.rows import Figures, Row, departures, figures, lines

VIRTUAL = Row("virtual", 1, Figures(7.0, 4.0, 50_000, 120_000, 0.18, 20_000), (), 0.9)


def real(*failed: str, **changed: float) -> Row:
    assert VIRTUAL.figures
    return Row("real", 1000, dataclasses.replace(VIRTUAL.figures, **changed), failed, 0.4)


def test_the_figures_are_of_the_link_that_marked_most() -> None:
    queue = {"mean": 10.0, "max": 20}
    summary = {
        "transfers": {"last_end_ms": 7.5, "slowdown": {"p99": 4.5}},
        "links": {
            "a": {"bytes": 0, "ce_marks": 0, "queue_bytes": {"mean": 99.0, "max": 99}},
            "b": {"bytes": 151_400, "ce_marks": 25, "queue_bytes": queue},
        },
    }
    assert figures(summary, mtu=1500) == Figures(7.5, 4.5, 10.0, 20, 0.25, 25)


@pytest.mark.parametrize(
    ("changed", "away"),
    [
        ({"last_end_ms": 7.34}, []),
        ({"last_end_ms": 7.36}, ["last_end_ms"]),
        ({"slowdown_p99": 3.7}, ["slowdown_p99"]),
        ({"ce_share": 0.192}, []),  # 5 %, and 2 % for 20,000 marks
        ({"ce_share": 0.193}, ["ce_share"]),
        ({"queue_mean": 57_000}, []),
        ({"queue_mean": 58_000}, ["queue_mean"]),
        ({"queue_peak": 999_999}, []),
    ],
)
def test_what_is_too_far_from_virtual_time(changed: dict[str, float], away: list[str]) -> None:
    assert departures(real(**changed), VIRTUAL) == away


def test_nothing_is_claimed_of_a_run_that_is_not_valid() -> None:
    assert departures(real("rates", last_end_ms=70), VIRTUAL) == []
    assert departures(Row("real", 1, None, ("deadline",), 0), VIRTUAL) == []


def test_the_table() -> None:
    rows = [VIRTUAL, real("sampling"), real(queue_mean=70_000), Row("real", 1, None, ("deadline",), 0)]
    assert lines(rows) == [
        ["clock", "dilation", "last end", "p99", "queue", "peak", "CE", "CPU", ""],
        ["virtual", "-", "7.00 ms", "4.00", "50.0 kB", "120.0 kB", "18.0%", "0.90", "valid"],
        ["real", "1000", "7.00 ms", "4.00", "50.0 kB", "120.0 kB", "18.0%", "0.40", "not valid: sampling"],
        ["real", "1000", "7.00 ms", "4.00", "70.0 kB", "120.0 kB", "18.0%", "0.40", "differs: queue_mean"],
        ["real", "1", "-", "-", "-", "-", "-", "-", "not valid: deadline"],
    ]


def test_a_dilation_too_large_is_refused_before_the_first_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clocks", "incast", "--dilation", "1000,10000000"]) == 2
    assert capsys.readouterr().err == (
        "testbed: --set dilation=1e+07: dilation: is out of range (found 1e+07); 1 to 1000000\n"
    )


@pytest.mark.parametrize("text", ["0", "x", "1000,,5", "0.5", "inf", "nan"])
def test_dilations_are_numbers_from_1_on(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clocks", "incast", "--dilation", text]) == 2
    assert f"{text!r} is no list of numbers from 1 on, as 500,1000" in capsys.readouterr().err
