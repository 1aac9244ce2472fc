"""The scenario as one YAML file: what was read, with `extends` merged and `--set` applied.

The text goes into the record, so that a run can be repeated from it alone. The paths in it are absolute.
"""

from __future__ import annotations

import os
from dataclasses import replace

import yaml
from yaml.resolver import Resolver

from testbed.scenario.kinds import File
from testbed.scenario.models import Scenario
from testbed.scenario.schema import option_at
from testbed.scenario.tree import Items, Leaf, Node, Path, Table, named_file

_TAG = "tag:yaml.org,2002:"


def scenario_yaml(scenario: Scenario) -> str:
    """Return the YAML text of a scenario; reading it again gives the same scenario."""
    tree = _with_absolute_paths(scenario.tree, ())
    return yaml.serialize(_node(tree, Resolver()), Dumper=yaml.SafeDumper, width=100)


def _with_absolute_paths(node: Node, path: Path) -> Node:
    if isinstance(node, Table):
        entries = {key: _with_absolute_paths(entry, (*path, key)) for key, entry in node.entries.items()}
        return Table(entries, node.place)
    option = option_at(Scenario, path)
    if isinstance(node, Leaf) and not node.null and option and isinstance(option.kind, File):
        return replace(node, text=os.path.abspath(named_file(node)))
    return node


def _node(node: Node, resolver: Resolver) -> yaml.Node:
    if isinstance(node, Leaf):
        # What YAML would read as another kind of value keeps its text: units are read from it.
        tag = _TAG + "null" if node.null else _plain_tag(node.text, resolver)
        return yaml.ScalarNode(tag, node.text or "null" if node.null else node.text)
    if isinstance(node, Items):
        return yaml.SequenceNode(_TAG + "seq", [_node(item, resolver) for item in node.items])
    pairs = [
        (yaml.ScalarNode(_TAG + "str", key), _node(value, resolver)) for key, value in node.entries.items()
    ]
    return yaml.MappingNode(_TAG + "map", pairs)


def _plain_tag(text: str, resolver: Resolver) -> str:
    tag: str = resolver.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    # A text such as `null` was quoted, and must be again.
    return _TAG + "str" if tag == _TAG + "null" else tag
