"""The keys that expectations may ask for, held against summaries of records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from testbed.analysis import summarise
from testbed.record.reader import Record
from testbed.scenario.summary_keys import ANYTHING, HOST, KEYS, LINK, PAIR, Names, Tree, Unknown, unknown_key
from tests.support.synthetic import CASES, write_record

NAMES = Names(("leaf1-d1", "p1-leaf1"), ("p1", "d1"))


def _keys(tree: Tree | Mapping[str, Any] | None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, below in (tree or {}).items():
        yield (*path, key)
        yield from _keys(below if isinstance(below, Mapping) else None, (*path, key))


@pytest.mark.parametrize("case", sorted(CASES))
def test_a_summary_has_these_keys_and_no_others(case: str, tmp_path: Path) -> None:
    record = Record.open(write_record(tmp_path / "record", CASES[case]()))
    summary = summarise(record)
    hosts = tuple(host.name for host in record.plan.topology.hosts)
    names = Names(tuple(link.name for link in record.plan.topology.all_links), hosts)
    assert [path for path in _keys(summary) if unknown_key(path, names)] == []
    places = {LINK: names.links[0], HOST: "d1", PAIR: next(iter(summary["ttft_ms"]["by_pair"]))}
    for path in _keys(KEYS):
        if {"by_prefill", "nics", "requests", "roce", "workload", ANYTHING} & set(path):
            continue  # what a run may have or not; for requests and roce see the tests of their analysis
        value: Any = summary
        for key in path:
            value = value[places.get(key, key)]


@pytest.mark.parametrize(
    ("path", "unknown"),
    [
        ("verdict.segment", None),
        ("links.leaf1-d1.queue_bytes.max", None),
        ("ttft_ms.by_pair.p1->d1.p99", None),
        ("events.xoff.total_ms", None),
        ("speed", Unknown("speed", "the summary", tuple(KEYS))),
        ("links.leaf9-d1.drops", Unknown("leaf9-d1", "links", ("leaf1-d1", "p1-leaf1"))),
        ("ttft_ms.by_decode.d2.p50", Unknown("d2", "ttft_ms.by_decode", ("p1", "d1"))),
        ("transfers.count.p50", Unknown("p50", "transfers.count", ())),
    ],
)
def test_the_first_key_that_is_not_there_is_named(path: str, unknown: Unknown | None) -> None:
    assert unknown_key(path.split("."), NAMES) == unknown
