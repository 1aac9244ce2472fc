"""The scenario as one YAML file: what was read, with `extends` merged and `--set` applied.

The text goes into the record, so that a run can be repeated from it alone.
"""

from __future__ import annotations

import yaml
from yaml.resolver import Resolver

from testbed.scenario.models import Scenario
from testbed.scenario.tree import Items, Leaf, Node

_TAG = "tag:yaml.org,2002:"


def scenario_yaml(scenario: Scenario) -> str:
    """Return the YAML text of a scenario; reading it again gives the same scenario."""
    return yaml.serialize(_node(scenario.tree, Resolver()), Dumper=yaml.SafeDumper, width=100)


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
