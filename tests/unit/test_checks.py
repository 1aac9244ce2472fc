"""Expectations: what parses to what, what is refused how, and what holds against a summary."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.checks import Result, evaluate
from testbed.scenario.expectation import Expectation, parse_expectation
from testbed.scenario.expression import Constant, Key, Operation, Word

SUMMARY: dict[str, Any] = {
    "seed": 1,
    "transfers": {"count": 8, "slowdown": {"p99": 1.04}, "fct_ms": {"p50": 43.6}},
    "ttft_ms": {"by_pair": {"p1->d1": {"p99": 12.5}}},
    "links": {"leaf3-d1": {"queue_bytes": {"max": 400_000}, "rate_bps": 10**11, "segment": "dest-leaf"}},
    "verdict": {"segment": "dest-leaf", "link": None},
    "fidelity": {"valid": True, "reasons": []},
}


def key(path: str) -> Key:
    return Key(tuple(path.split(".")))


QUEUE = "links.leaf3-d1.queue_bytes.max"


@pytest.mark.parametrize(
    ("text", "left", "op", "right"),
    [
        ("verdict.segment == dest-leaf", "verdict.segment", "==", Word("dest-leaf")),
        ("verdict.segment==null", "verdict.segment", "==", Word(None)),
        ("verdict.segment == 'null'", "verdict.segment", "==", Word("null")),
        ("fidelity.valid != false", "fidelity.valid", "!=", Word(False)),
        ("transfers.slowdown.p99 <= 1.05", "transfers.slowdown.p99", "<=", Constant(1.05, None)),
        ("transfers.count>=8", "transfers.count", ">=", Constant(8.0, None)),
        ("transfers.count > -8", "transfers.count", ">", Constant(-8.0, None)),
        ("transfers.count > 1e-3", "transfers.count", ">", Constant(0.001, None)),
        ("transfers.bytes > 1mib", "transfers.bytes", ">", Constant(1_048_576.0, "bytes")),
        (f"{QUEUE} < 2mb", QUEUE, "<", Constant(2_000_000.0, "bytes")),
        (f"{QUEUE} < 2 mb", QUEUE, "<", Constant(2_000_000.0, "bytes")),
        ("transfers.fct_ms.p99 <= 1500us", "transfers.fct_ms.p99", "<=", Constant(1.5, "ms")),
        ("links.leaf3-d1.rate_bps == 100gbit", "links.leaf3-d1.rate_bps", "==", Constant(1e11, "bps")),
        ("ttft_ms.by_pair.p1->d1.p99<1s", "ttft_ms.by_pair.p1->d1.p99", "<", Constant(1000.0, "ms")),
        ("ttft_ms.by_pair.p1->d1.p99>1s", "ttft_ms.by_pair.p1->d1.p99", ">", Constant(1000.0, "ms")),
        ("scenario == '10 us'", "scenario", "==", Word("10 us")),
        ("transfers.count == transfers.completed", "transfers.count", "==", key("transfers.completed")),
    ],
)
def test_parsed(text: str, left: str, op: str, right: object) -> None:
    assert parse_expectation(text) == Expectation(text, key(left), op, right)  # type: ignore[arg-type]


A, B, C = key("a.x"), key("b.x"), Constant(2.0, None)


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("a.x + b.x * 2", Operation("+", A, Operation("*", B, C))),
        ("(a.x + b.x) * 2", Operation("*", Operation("+", A, B), C)),
        ("a.x - b.x - 2", Operation("-", Operation("-", A, B), C)),
        ("a.x / b.x / 2", Operation("/", Operation("/", A, B), C)),
        ("a.x*-2", Operation("*", A, Constant(-2.0, None))),
        ("-a.x", Operation("-", Constant(0.0, None), A)),
        ("a.x-b", key("a.x-b")),  # a name: links and segments have a minus in theirs
        ("a.x -b.x", Operation("-", A, B)),
    ],
)
def test_arithmetic_binds_as_usual(text: str, term: object) -> None:
    assert parse_expectation(f"{text} < 1").left == term


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("transfers.slowdown.p99", Constant(1.0, "")),
        ("transfers.fct_ms.p99", key("transfers.ideal_ms.p99")),
        ("transfers.last_end_ms", key("transfers.ideal_last_end_ms")),
        ("2 * transfers.last_end_ms", key("transfers.ideal_last_end_ms")),
    ],
)
def test_ideal_is_that_of_the_key_on_the_left(left: str, right: object) -> None:
    assert parse_expectation(f"{left} < 1.2 * ideal").right == Operation("*", Constant(1.2, None), right)
    assert parse_expectation(f"{left} < ideal").right == right


VALUES = "write a key, a number, a quantity, a word, true, false or null"
SHAPE = "is no expectation; write path op value, as in verdict.segment == dest-leaf"
IDEALS = (
    "these have one: transfers.slowdown, transfers.fct_ms, transfers.last_end_ms, requests.slowdown, "
    "requests.contended_ms"
)
UNITS = "the units are b, kb, mb, gb, tb, kib, mib, gib, tib, ns, us, ms, s, min, bit, kbit, mbit, gbit, tbit"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", SHAPE),
        ("verdict.segment", SHAPE),
        ("verdict.segment is dest-leaf", SHAPE),
        ("a = 3", "has a single '='; write =="),
        ("a..b == 3", "has the malformed key 'a..b'; write keys of summary.json joined by dots"),
        ("f(x) == 3", SHAPE),
        ("a ==", f"has no value at its end; {VALUES}"),
        ("a == b c", "is not understood from 'c' on; write one comparison of two values"),
        ("1 < a", "has no key of summary.json on the left of <; write path op value"),
        ("a < 1 < 2", "is not understood from '< 2' on; write one comparison of two values"),
        ("a == f('os')", "is not understood from \"( 'os' )\" on; write one comparison of two values"),
        ("a == `id`", f"has '`', which has no meaning here; {VALUES}"),
        ("a < * 3", f"has '*' where a value should stand; {VALUES}"),
        ("a < (3", "has a '(' that is not closed; write ')'"),
        (f"a < {'(' * 21}1{')' * 21}", "is nested more than 20 deep"),
        (f"a < {'1 + ' * 130}1", "is longer than 500 characters"),
        ("a.count < 3ms", f"compares a.count, without a unit, with what is in milliseconds; {VALUES}"),
        ("a.fct_ms.p99 < 3kb", f"compares a.fct_ms.p99, in milliseconds, with what is in bytes; {VALUES}"),
        (
            "a.fct_ms.p99 < a.bytes",
            f"compares a.fct_ms.p99, in milliseconds, with what is in bytes; {VALUES}",
        ),
        ("a.fct_ms.p99 < 3kv", f"has the unknown unit 'kv'; {UNITS}; did you mean 'kb'?"),
        ("a.fct_ms + a.bytes < 3", "adds what is in milliseconds and what is in bytes"),
        ("a.fct_ms * a.bytes < 3", "multiplies what is in milliseconds by what is in bytes"),
        ("a.bytes / a.fct_ms < 3", "divides what is in bytes by what is in milliseconds"),
        ("3 / a.fct_ms < 3 + a", "divides what is without a unit by what is in milliseconds"),
        ("a < dest-leaf", "orders a against a word; use == or !=, or a number"),
        ("a <= null", "orders a against a word; use == or !=, or a number"),
        ("transfers.count < ideal", f"compares transfers.count with an ideal it has not; {IDEALS}"),
        (
            "transfers.slowdown.p99 / transfers.slowdown.p50 < ideal",
            f"compares transfers.slowdown.p99 with an ideal it has not; {IDEALS}",
        ),
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
        (f"{QUEUE} * 2 + 1kb <= 801kb", "<= 801000", "801000", True),
        (f"{QUEUE} / {QUEUE} == 1", "== 1", "1", True),
        ("transfers.slowdown.p99 < 1.01 * ideal", "< 1.01", "1.04", False),
        ("transfers.count - 2 > transfers.count / 2", "> 4", "6", True),
        ("transfers.count / (seed - 1) > 2", "> 2", "it divides by 0", False),
        ("transfers.count > 2 / (seed - 1)", "> ?", "it divides by 0", False),
        ("verdict.link * 2 > 2", "> 2", "verdict.link is null, which is no number", False),
        ("transfers.count > verdict.link", "> null", "8", False),
        ("transfers.fct_ms.p50 < ideal", "< ?", "transfers has no key 'ideal_ms'", False),
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
