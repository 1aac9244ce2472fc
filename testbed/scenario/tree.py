"""A scenario file as a tree of texts that remember where they stand.

Read from PyYAML's node tree, never from its values: the nodes have positions, show repeated keys, and
keep `1:30`, `010`, `1e7` and `on` as they are written. Also merges trees (`extends`) and changes single
values (`--set`). It knows nothing of which keys exist; the loader calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any

import yaml

from testbed.errors import InputError

DEPTH_MAX = 20
"""Deeper nesting than any scenario has; a bound on recursion."""

NODES_MAX = 150_000
"""Keys and values of a file: ten thousand transfers written out have 120,000."""

_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = {
    _TAG + name for name in ("null", "bool", "int", "float", "str", "timestamp", "value", "map", "seq")
}

Path = tuple[str | int, ...]


@dataclass(frozen=True, order=True)
class Place:
    """Where a node stands: `rank` orders files (a base after the file that extends it, --set last)."""

    rank: int
    line: int
    label: str = field(compare=False)

    def __str__(self) -> str:
        return f"{self.label}:{self.line}" if self.line else self.label


@dataclass(frozen=True)
class Leaf:
    """A scalar as its text; `null` where YAML reads a plain scalar as nothing."""

    text: str
    null: bool
    place: Place


@dataclass(frozen=True)
class Items:
    """A list."""

    items: tuple[Node, ...]
    place: Place


@dataclass(frozen=True)
class Table:
    """A mapping. The place of each entry is that of its key."""

    entries: dict[str, Node]
    place: Place


Node = Leaf | Items | Table


@lru_cache(maxsize=8)  # a sweep reads the same file for each of its settings
def read_tree(text: str, label: str, rank: int) -> Node | None:
    """Return the tree of a YAML document, None of an empty one; InputError names `label` and the line."""
    try:
        node = _compose(text)
        return None if node is None else _convert(node, Place(rank, _line(node), label))
    except _Refused as refused:
        raise InputError(f"{label}:{refused.line}: {refused.message}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{label}:{mark.line + 1}" if mark else label
        raise InputError(f"{where}: is not valid YAML: {_what(error)}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, int(error.position)) + 1
        raise InputError(f"{label}:{line}: is not valid YAML: {error.reason}") from None


def read_value(text: str, place: Place) -> Node:
    """Return the tree of one value given on the command line: a scalar or a flow list or mapping.

    What is neither is taken as the text it is: `Hello: world` is a description, not a mapping.
    """
    try:
        node = _compose(text)
        if node is None:
            return Leaf("", True, place)
        if isinstance(node, yaml.CollectionNode) and not node.flow_style:
            return Leaf(text, False, place)
        return _moved(_convert(node, place), place)
    except _Refused as refused:
        raise InputError(f"{place}: {refused.message}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{place}: the value is not valid YAML: {_what(error)}") from None


def merge(base: Node, over: Node) -> Node:
    """Return `base` changed by `over`: mappings are merged key by key, anything else is replaced."""
    if not (isinstance(base, Table) and isinstance(over, Table)):
        return over
    entries = dict(base.entries)
    for key, node in over.entries.items():
        entries[key] = merge(entries[key], node) if key in entries else node
    return Table(entries, over.place)


def put(root: Node, path: Sequence[str], value: Node) -> Node:
    """Return `root` with the node at `path` replaced, making mappings on the way; InputError if it cannot."""
    if not path:
        return value
    key, rest = path[0], path[1:]
    if isinstance(root, Leaf):
        if not root.null:
            raise InputError(f"{value.place}: {key!r} is looked for below a single value (found {root.text})")
        root = Table({}, value.place)
    if isinstance(root, Table):
        below = root.entries.get(key, Leaf("", True, value.place))
        return replace(root, entries={**root.entries, key: put(below, rest, value)})
    if not (key.isascii() and key.isdigit() and int(key) < len(root.items)):
        raise InputError(f"{value.place}: there is no item {key}; the list has {len(root.items)}, from 0")
    number = int(key)
    changed = put(root.items[number], rest, value)
    return replace(root, items=(*root.items[:number], changed, *root.items[number + 1 :]))


def find(root: Node, path: Path) -> Node | None:
    """Return the node at `path`, None where nothing is written."""
    node: Node | None = root
    for key in path:
        node = _child(node, key) if node is not None else None
    return node


def nearest_place(root: Node, path: Path) -> Place:
    """Return the place of the deepest node that is written on the way to `path`."""
    node = root
    for key in path:
        below = _child(node, key)
        if below is None:
            break
        node = below
    return node.place


def to_data(node: Node) -> object:
    """Return the tree as dicts, tuples, texts and None."""
    if isinstance(node, Leaf):
        return None if node.null else node.text
    if isinstance(node, Items):
        return tuple(to_data(item) for item in node.items)
    return {key: to_data(entry) for key, entry in node.entries.items()}


def named_file(leaf: Leaf) -> FilePath:
    """Return the file that a text names: relative to the file it stands in, or to here after --set."""
    folder = FilePath(leaf.place.label).parent if leaf.place.line else FilePath()
    return folder / leaf.text


def dotted(path: Path) -> str:
    """Return the path as a person writes it after --set."""
    return ".".join(map(str, path))


def _child(node: Node, key: str | int) -> Node | None:
    if isinstance(node, Table):
        return node.entries.get(str(key))
    if isinstance(node, Items) and isinstance(key, int) and key < len(node.items):
        return node.items[key]
    return None


class _Refused(Exception):
    """Valid YAML that no scenario may hold; `path` is that of the key, where there is one."""

    def __init__(self, line: int, message: str, path: Path = ()) -> None:
        self.line = line
        self.message = f"{dotted(path)}: {message}" if path else message
        super().__init__(self.message)


class _Loader(yaml.SafeLoader):
    """Composes nodes only. Aliases are refused: a few of them expand to gigabytes."""

    depth = 0
    nodes = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise _Refused(line, "aliases (*name) are not supported; write the value out or use extends")
        if self.depth > DEPTH_MAX:
            raise _Refused(line, f"is nested more than {DEPTH_MAX} deep")
        self.nodes += 1
        if self.nodes > NODES_MAX:
            raise _Refused(line, f"is beyond {NODES_MAX} keys and values; no scenario has so many")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _what(error: yaml.YAMLError) -> str:
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", ""))
    # PyYAML sometimes begins the sentence in the context: "expected .. in the stream", "but found ..".
    context = getattr(error, "context", None) if problem.startswith("but") else None
    return f"{context}, {problem}" if context else problem


def _compose(text: str) -> yaml.Node | None:
    loader = _Loader(text)
    try:
        node: yaml.Node | None = loader.get_single_node()
        return node
    finally:
        loader.dispose()


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _convert(node: yaml.Node, place: Place, path: Path = ()) -> Node:
    if node.tag not in _PLAIN_TAGS:
        raise _Refused(_line(node), f"has a tag (found {node.tag}); write a plain value", path)
    if isinstance(node, yaml.MappingNode):
        return _table(node, place, path)
    if isinstance(node, yaml.SequenceNode):
        return _items(node, place, path)
    return Leaf(node.value, node.tag == f"{_TAG}null", place)


def _items(node: yaml.SequenceNode, place: Place, path: Path) -> Items:
    items = (
        _convert(item, replace(place, line=_line(item)), (*path, number))
        for number, item in enumerate(node.value)
    )
    return Items(tuple(items), place)


def _table(node: yaml.MappingNode, place: Place, path: Path) -> Table:
    entries: dict[str, Node] = {}
    for key, value in node.value:
        line = _line(key)
        if not isinstance(key, yaml.ScalarNode):
            raise _Refused(line, "has a list or a mapping as a key; keys are names", path)
        if key.tag == f"{_TAG}merge":
            raise _Refused(line, "has a merge key (found <<), which is not supported; use extends", path)
        below = (*path, key.value)
        if key.value in entries:
            first = entries[key.value].place.line
            raise _Refused(line, f"is repeated (first on line {first}); write each key once", below)
        entries[key.value] = _convert(value, replace(place, line=line), below)
    return Table(entries, place)


def _moved(node: Node, place: Place) -> Node:
    if isinstance(node, Leaf):
        return replace(node, place=place)
    if isinstance(node, Items):
        return Items(tuple(_moved(item, place) for item in node.items), place)
    return Table({key: _moved(entry, place) for key, entry in node.entries.items()}, place)
