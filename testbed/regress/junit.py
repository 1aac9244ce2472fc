"""The outcome of a check as JUnit XML, the form that CI systems show.

A test case for the run itself, one for each expectation, one for the golden. What could not be measured is
an error: nothing is skipped. Called by `testbed check --junit`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from xml.etree import ElementTree

from testbed.regress.check import FAILED, NOT_VALID, PASSED, Judged
from testbed.regress.text import golden_lines
from testbed.screen import printable

_Element = ElementTree.Element


def junit(judged: Sequence[Judged]) -> str:
    """Return the XML document: a suite for each scenario and seed."""
    suites = [_suite(one) for one in judged]
    root = ElementTree.Element("testsuites", {"name": "testbed check", **_totals(suites)})
    root.extend(suites)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, "unicode")}\n'


def _suite(one: Judged) -> _Element:
    suite = ElementTree.Element("testsuite", {"name": one.case.name, "time": f"{one.seconds:.1f}"})
    suite.extend([_run(one), *_expectations(one), *_golden(one)])
    counts = {
        "tests": str(len(suite)),
        "failures": str(len(suite.findall("testcase/failure"))),
        "errors": str(len(suite.findall("testcase/error"))),
        "skipped": "0",
    }
    suite.attrib.update(counts)
    return suite


def _totals(suites: Iterable[_Element]) -> dict[str, str]:
    listed = list(suites)
    names = ("tests", "failures", "errors", "skipped")
    return {name: str(sum(int(suite.attrib[name]) for suite in listed)) for name in names}


def _case(one: Judged, name: str, place: str = "") -> _Element:
    # XML has no way to write a control character.
    attributes = {"classname": one.case.name, "name": printable(name)}
    file, _, line = place.rpartition(":")
    if file:
        attributes |= {"file": printable(file), "line": line}
    return ElementTree.Element("testcase", attributes)


def _add(case: _Element, kind: str, message: str, text: str = "") -> None:
    ElementTree.SubElement(case, kind, {"message": printable(message)}).text = printable(text)


def _run(one: Judged) -> _Element:
    case = _case(one, "the run ends and its measurement is valid")
    if one.outcome not in (PASSED, FAILED):
        _add(case, "failure" if one.outcome == NOT_VALID else "error", f"{one.outcome}: {one.reason}")
    return case


def _expectations(one: Judged) -> Iterator[_Element]:
    results = dict(zip(one.case.places, one.results, strict=False))
    for place, text in zip(one.case.places, one.case.plan.expectations, strict=True):
        case, result = _case(one, text, place), results.get(place)
        if result is None:
            _add(case, "error", f"{one.outcome}: not measured")
        elif not result.ok:
            _add(case, "failure", f"expected {text}, measured {result.measured}", place)
        yield case


def _golden(one: Judged) -> Iterator[_Element]:
    if one.case.golden is None:
        return
    case = _case(one, "golden", f"{one.case.golden.path}:1")
    if one.golden is None:
        _add(case, "error", f"{one.outcome}: not measured")
    elif not one.golden.same:
        lines = golden_lines(one.golden)
        _add(case, "failure", lines[0], "\n".join(lines))
    yield case
