"""The small lab whose captures stand in tests/data/lab: its plan, its captures, and a netlink socket that
answers from them. No live call is made."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from testbed.lab.netlink import Netlink
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.scenario import load_scenario

DATA = Path(__file__).resolve().parents[1] / "data" / "lab"


def small_plan(*overrides: str, clock: str = "virtual", backend: str = "uml") -> Plan:
    """The plan of tests/data/lab/small.yaml."""
    scenario = load_scenario(str(DATA / "small.yaml"), overrides)
    return build_plan(scenario, seed=1, backend=backend, clock=clock)


def text(name: str) -> str:
    """A captured text."""
    return (DATA / name).read_text()


def captured(name: str) -> Any:
    """A captured JSON answer."""
    return json.loads(text(name))


def datagrams(stem: str) -> list[bytes]:
    """The datagrams of a captured dump, in order."""
    return [path.read_bytes() for path in sorted(DATA.glob(f"{stem}-*.bin"))]


class FakeNetlink(Netlink):
    """Answers each dump with the next of `dumps`, the last one again and again; keeps what was asked."""

    def __init__(self, *dumps: Sequence[bytes]) -> None:
        self.dumps = list(dumps)
        self.asked: list[bytes] = []

    def request(self, message: bytes) -> Iterator[tuple[memoryview, int]]:
        self.asked.append(message)
        answer = self.dumps.pop(0) if len(self.dumps) > 1 else self.dumps[0]
        for datagram in answer:
            yield memoryview(datagram), len(datagram)

    def close(self) -> None:
        pass
