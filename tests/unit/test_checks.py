"""Expectations: what parses to what, what is refused how, and what holds against a summary."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.checks import Result, evaluate, parse_expectation

SUMMARY: dict[str, Any] = {
    "seed": 1,
    "transfers": {"count": 8, "slowdown": {"p99": 1.04}, "fct_ms": {"p50": 43.6}},
    "ttft_ms": {"by_pair": {"p1->d1": {"p99": 12.5}}},
    "links": {"leaf3-d1": {"queue_bytes": {"max": 400_000}, "rate_bps": 10**11, "segment": "dest-leaf"}},
    "verdict": {"segment": "dest-leaf", "link": None},
    "fidelity": {"valid": True, "reasons": []},
}


@pytest.mark.parametrize(
    ("text", "path", "op", "literal"),
    [
        ("verdict.segment == dest-leaf", "verdict.segment", "==", "dest-leaf"),
        ("verdict.segment==null", "verdict.segment", "==", None),
        ("fidelity.valid != false", "fidelity.valid", "!=", False),
        ("transfers.slowdown.p99 <= 1.05", "transfers.slowdown.p99", "<=", 1.05),
        ("transfers.count>=8", "transfers.count", ">=", 8.0),
        ("transfers.bytes > 1mib", "transfers.bytes", ">", 1_048_576.0),
        ("links.leaf3-d1.queue_bytes.max < 2mb", "links.leaf3-d1.queue_bytes.max", "<", 2_000_000.0),
        ("transfers.fct_ms.p99 <= 1500us", "transfers.fct_ms.p99", "<=", 1.5),
        ("links.leaf3-d1.rate_bps == 100gbit", "links.leaf3-d1.rate_bps", "==", 1e11),
        ("ttft_ms.by_pair.p1->d1.p99 < 1s", "ttft_ms.by_pair.p1->d1.p99", "<", 1000.0),
        ("scenario == '10 us'", "scenario", "==", "10 us"),
    ],
)
def test_parsed(text: str, path: str, op: str, literal: object) -> None:
    parsed = parse_expectation(text)
    assert (".".join(parsed.path), parsed.op, parsed.literal, parsed.text) == (path, op, literal, text)


VALUES = "write a number, a quantity, a word, true, false or null"
SHAPE = "is no expectation; write path op value, as in verdict.segment == dest-leaf"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", SHAPE),
        ("verdict.segment", SHAPE),
        ("verdict.segment is dest-leaf", SHAPE),
        ("a.p1->d1.p99<3", SHAPE),
        ("a = 3", "has a single '='; write =="),
        ("a..b == 3", "has the malformed path 'a..b'; write keys of summary.json joined by dots"),
        ("f(x) == 3", "has the malformed path 'f(x)'; write keys of summary.json joined by dots"),
        ("a ==", f"has no value; {VALUES}"),
        ("a == b c", f"has the malformed value 'b c'; {VALUES}"),
        ("a == f('os')", f"has the malformed value \"f('os')\"; {VALUES}"),
        ("a.count < 3ms", "compares a.count, which has no unit, with '3ms'; write a number"),
        ("a.fct_ms.p99 < 3kb", "has the unknown unit 'kb'; the units are ns, us, ms, s, min"),
        ("a < dest-leaf", "orders a against a word; use == or !=, or a number"),
        ("a <= null", "orders a against a word; use == or !=, or a number"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_expectation(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "expected", "measured", "ok"),
    [
        ("verdict.segment == dest-leaf", "== dest-leaf", "dest-leaf", True),
        ("verdict.segment == spine", "== spine", "dest-leaf", False),
        ("verdict.segment != spine", "!= spine", "dest-leaf", True),
        ("verdict.segment == null", "== null", "dest-leaf", False),
        ("verdict.link == null", "== null", "null", True),
        ("transfers.slowdown.p99 <= 1.05", "<= 1.05", "1.04", True),
        ("transfers.slowdown.p99 < 1.04", "< 1.04", "1.04", False),
        ("transfers.count == 8", "== 8", "8", True),
        ("transfers.count > 8", "> 8", "8", False),
        ("links.leaf3-d1.queue_bytes.max <= 400kb", "<= 400000", "400000", True),
        ("links.leaf3-d1.rate_bps >= 101gbit", ">= 101000000000", "100000000000", False),
        ("ttft_ms.by_pair.p1->d1.p99 < 13ms", "< 13", "12.5", True),
        ("fidelity.valid == true", "== true", "true", True),
        ("seed == true", "== true", "1", False),
        ("fidelity.valid == 1", "== 1", "true", False),
        ("fidelity.valid >= 1", ">= 1", "true", False),
        ("verdict.link <= 3", "<= 3", "null", False),
        ("verdict.segment <= 3", "<= 3", "dest-leaf", False),
        ("verdict.segmnt == x", "== x", "verdict has no key 'segmnt'; did you mean 'segment'?", False),
        ("verdct.segment != x", "!= x", "the summary has no key 'verdct'; did you mean 'verdict'?", False),
        (
            "links.leaf3-d2.rate_bps != 3",
            "!= 3",
            "links has no key 'leaf3-d2'; did you mean 'leaf3-d1'?",
            False,
        ),
        ("seed.x == 1", "== 1", "seed is 1 and has no key 'x'", False),
        ("verdict != null", "!= null", "verdict is not a single value; its keys are segment, link", False),
        ("fidelity.reasons == null", "== null", "fidelity.reasons is not a single value", False),
    ],
)
def test_evaluated(text: str, expected: str, measured: str, ok: bool) -> None:
    assert evaluate([text], SUMMARY) == [Result(text, expected, measured, ok)]


def test_results_keep_the_order() -> None:
    texts = ["transfers.count == 8", "seed == 2"]
    assert [result.ok for result in evaluate(texts, SUMMARY)] == [True, False]
    assert evaluate([], SUMMARY) == []


@given(st.text())
def test_any_text_parses_or_is_refused(text: str) -> None:
    # Anything but ValueError would fail the test.
    with contextlib.suppress(ValueError):
        evaluate([text], SUMMARY)
