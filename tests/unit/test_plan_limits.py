"""Limits of Linux and of the lab's numbering: what cannot be is refused with number, limit and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import InputError
from testbed.plan import limits
from testbed.plan.build import build_plan
from testbed.plan.served import OTHER_FILES, open_files
from testbed.scenario import load_scenario
from tests.support.command import SMALL, write_scenario
from tests.support.lab import small_plan


def refusal(folder: Path, *sets: str) -> str:
    scenario = load_scenario(str(write_scenario(folder)), sets)
    with pytest.raises(InputError) as caught:
        build_plan(scenario, seed=1, backend="uml", clock="virtual")
    return str(caught.value).removeprefix(f"{folder}/")


REQUESTS = len(SMALL.splitlines())


def test_descriptors_of_a_program() -> None:
    # Two transfers; three NICs, each with a queue to watch and a gate to move, at three hosts.
    assert open_files(small_plan()) == OTHER_FILES + 2 * 2 + 2 * 3 + 3


def test_more_descriptors_than_linux_gives_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FILES_MAX", 268)
    assert refusal(tmp_path) == (
        f"scenario.yaml:{REQUESTS}: workload.requests: takes 269 descriptors, of which Linux lets a process "
        "have 268; use fewer transfers"
    )
    monkeypatch.setattr(limits, "FILES_MAX", 269)
    build_plan(load_scenario(str(write_scenario(tmp_path))), seed=1, backend="uml", clock="virtual")


def test_more_background_flows_than_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.BACKGROUND_MAX == 13_000
    monkeypatch.setattr(limits, "BACKGROUND_MAX", 1)
    flow = "{from: p1, to: d1, duration: 1ms}"
    assert refusal(tmp_path, f"workload.background=[{flow}, {flow}]").endswith(
        "workload.background: are 2 flows, each of which has a port of its own; at most 1"
    )


def test_more_queue_pairs_than_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.QUEUE_PAIRS_MAX == 65_279
    monkeypatch.setattr(limits, "QUEUE_PAIRS_MAX", 1)
    assert refusal(tmp_path, "transport={kind: roce}").endswith(
        "workload.requests: gives d1 2 queue pairs, whose numbers have 16 bits; at most 1: use more hosts or "
        "fewer transfers"
    )


@pytest.mark.parametrize("key", ["fabric.queue.limit", "hosts.decode.buffer"])
def test_a_queue_larger_than_the_kernel_can_count(tmp_path: Path, key: str) -> None:
    with pytest.raises(InputError, match=rf"{key}: is out of range \(found 5gb\); (64b|16kb) to 4gb$"):
        load_scenario(str(write_scenario(tmp_path)), [f"{key}=5gb"])
