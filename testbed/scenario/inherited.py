"""Takes away what a scenario inherits and has replaced by something else.

A scenario that extends one of 8 bursts of 64mib and says `kind: trace` means neither the 8 nor the 64mib.
So of keys that exclude one another the ones last written stay: --set goes before a file, a file before what
it extends. Of keys written in one file none is taken away: that is a mistake, and `rules` say so.
"""

from __future__ import annotations

from testbed.scenario.models import Scenario
from testbed.scenario.schema import options
from testbed.scenario.sections import Section, kinds_of
from testbed.scenario.tree import Node, Table, find, put

OVERRIDE_RANK = 1000
"""Ranks overrides (--set) behind all files."""


def without_stale(tree: Node) -> Node:
    """Return the tree without inherited keys of another kind, and without inherited alternatives."""
    for option in options(Scenario):
        path = tuple(option.path.split("."))
        model, table = option.model, find(tree, path)
        if model is not None and not option.listed and isinstance(table, Table):
            kept = _kept(model, table)
            if len(kept) < len(table.entries):
                tree = put(tree, path, Table(kept, table.place))
    return tree


def _kept(model: type[Section], table: Table) -> dict[str, Node]:
    entries = _of_kind(model, table.entries)
    strengths = [max((_strength(entries, key) for key in group), default=0) for group in model.alternatives]
    strongest = max(strengths, default=0)
    weaker = zip(model.alternatives, strengths, strict=True)
    gone = {key for group, strength in weaker if strength < strongest for key in group}
    return {key: node for key, node in entries.items() if key not in gone}


def _of_kind(model: type[Section], entries: dict[str, Node]) -> dict[str, Node]:
    """Return the entries without those that are of another kind and were written before the kind was."""
    kind = getattr(entries.get("kind"), "text", "")
    since = _strength(entries, "kind")
    earlier = {key: mark for key, mark in kinds_of(model).items() if 0 < _strength(entries, key) < since}
    gone = {key for key, mark in earlier.items() if mark.own or kind not in mark.kinds}
    return {key: node for key, node in entries.items() if key not in gone}


def _strength(entries: dict[str, Node], key: str) -> int:
    """Return how late a key was written, 0 where it is not written at all."""
    if key not in entries:
        return 0
    rank = entries[key].place.rank
    return rank + 1 if rank >= OVERRIDE_RANK else OVERRIDE_RANK - rank
