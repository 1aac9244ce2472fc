"""YAML that somebody else wrote, as plain values: mappings, lists, texts, numbers, nothing.

For lists of patterns of any length, where the scenario's own reader, which keeps places, would be slow.
Called by `testbed.plan.requests`.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

DEPTH_MAX = 20
"""Deeper nesting than any such file has; a bound on recursion, also that of a parser in C."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_WHOLE = re.compile(r"[-+]?[0-9]{1,18}")
_DECIMAL = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")


def load_yaml(text: str) -> Any:
    """Return the value of a YAML text; ValueError where it is none, or has what a plain list needs not.

    Numbers are those written in decimal; anything else that YAML would make of a scalar stays a text.
    """
    try:
        _check(text)
        node = yaml.compose(text, Loader=_LOADER)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())[:200]) from None
    return None if node is None else _value(node)


def _check(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"{_line(event)} has an alias; write the value out")
        if getattr(event, "tag", None) is not None:
            raise ValueError(f"{_line(event)} has a tag; write a plain value")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX:
            raise ValueError(f"{_line(event)} is nested more than {DEPTH_MAX} deep")


def _line(part: yaml.Event | yaml.Node) -> str:
    mark = part.start_mark
    return f"line {mark.line + 1}" if mark else "it"


def _value(node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return _mapping(node)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item) for item in node.value]
    return _scalar(node.tag.removeprefix(_TAG), str(node.value))


def _scalar(kind: str, text: str) -> Any:
    if kind == "null":
        return None
    if kind == "int" and _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if kind == "float" and _DECIMAL.fullmatch(text) else text


def _mapping(node: yaml.MappingNode) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in node.value:
        where = _line(key)
        if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
            raise ValueError(f"{where} has a key that is no name")
        if key.value in found:
            raise ValueError(f"{where} repeats the key {key.value[:40]!r}")
        found[key.value] = _value(value)
    return found
