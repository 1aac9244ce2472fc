"""Which switches have confirmed their rules: bookkeeping only, no socket, no clock, no framework.

`controller.app` tells it of connections and barrier replies, `controller.main` writes its report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from controller.errors import SwitchError
from controller.rules import SwitchRules


class Installation:
    """The switches of one fabric and the barriers each has yet to answer."""

    def __init__(self, wanted: Mapping[int, SwitchRules]) -> None:
        self._wanted = dict(wanted)
        self._waiting: dict[int, set[int]] = {}

    def rules_for(self, dpid: int) -> SwitchRules:
        """Return the rules of the switch that connected; SwitchError when the fabric has none such."""
        if dpid not in self._wanted:
            known = ", ".join(f"{rules.name} ({dpid:#x})" for dpid, rules in self._wanted.items())
            raise SwitchError(f"a switch with the unknown dpid {dpid:#x} connected; expected {known}")
        return self._wanted[dpid]

    def sent(self, dpid: int, barriers: Iterable[int]) -> None:
        """Note that `barriers` (transaction ids) went to a switch, forgetting those of before."""
        self._waiting[dpid] = set(barriers)

    def confirmed(self, dpid: int, barrier: int) -> bool:
        """Note a barrier's reply; return whether it is the one that made the fabric complete."""
        waiting = self._waiting.get(dpid, set())
        if barrier not in waiting:
            return False
        waiting.discard(barrier)
        return self.complete

    @property
    def complete(self) -> bool:
        """Whether every switch has answered every barrier."""
        return all(self._waiting.get(dpid) == set() for dpid in self._wanted)

    def missing(self) -> str:
        """Return a sentence on the switches that have not confirmed, empty when all have."""
        absent = [r.name for dpid, r in self._wanted.items() if dpid not in self._waiting]
        silent = [r.name for dpid, r in self._wanted.items() if self._waiting.get(dpid)]
        parts = ((absent, "did not connect"), (silent, "did not confirm the rules"))
        return "; ".join(f"{', '.join(names)} {what}" for names, what in parts if names)

    def report(self) -> dict[str, dict[str, int]]:
        """Return how many groups and rules each switch has, by its dpid in decimal."""
        return {
            str(dpid): {"groups": len(rules.groups), "rules": len(rules.rules)}
            for dpid, rules in self._wanted.items()
        }


def ready_document(installation: Installation, framework: str, version: str) -> dict[str, Any]:
    """Return ready.json of a complete installation."""
    return {"framework": framework, "version": version, "switches": installation.report()}
