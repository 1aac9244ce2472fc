"""From a name or a path, and --set overrides, to a checked Scenario; every refusal names its place.

The steps: find the file, read its tree, merge it over what it extends, apply the overrides, validate
every value (models), check across keys (rules). Called by the command line and by tests.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from testbed.errors import InputError
from testbed.scenario import rules
from testbed.scenario.inherited import OVERRIDE_RANK, without_stale
from testbed.scenario.kinds import REFUSED
from testbed.scenario.models import Scenario
from testbed.scenario.problems import Problem, input_error, nearest, shown
from testbed.scenario.schema import Option, keys, option_at, shorthands
from testbed.scenario.sections import Section
from testbed.scenario.transport import without_other_kind
from testbed.scenario.tree import (
    Leaf,
    Node,
    Path,
    Place,
    Table,
    find,
    merge,
    put,
    read_tree,
    read_value,
    to_data,
)
from traffic.plain_file import open_plain

SHIPPED = FilePath(__file__).resolve().parent.parent / "scenarios"
FILE_BYTES_MAX = 1_000_000
"""Far above any scenario; a larger file is something else."""

EXTENDS_MAX = 10
"""Longest chain of files that extend one another."""


def load_scenario(name_or_path: str, overrides: Sequence[str] = ()) -> Scenario:
    """Return the scenario called or stored as `name_or_path`, changed by `overrides`.

    An override is `path.to.key=value`, the value read as in a file. Raises InputError with file, line
    and path (or the override), what is allowed, and the nearest name.
    """
    tree = _read_with_bases(_locate(name_or_path, FilePath()), ())
    for number, override in enumerate(overrides):
        tree = _written_out(_overridden(tree, override, OVERRIDE_RANK + number))
    return _checked(without_stale(_with_layer_queues(tree)))


def shipped_scenarios() -> list[tuple[str, str]]:
    """Return name and description of every shipped scenario, sorted by name."""
    return [(name, load_scenario(name).description) for name in _shipped_names()]


def _shipped_names() -> list[str]:
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def _locate(name_or_path: str, folder: FilePath) -> FilePath:
    """Return the file of a scenario; a path is taken relative to `folder`."""
    names = _shipped_names()
    if name_or_path in names:
        return SHIPPED / f"{name_or_path}.yaml"
    if "\0" in name_or_path:
        raise InputError(f"{shown(name_or_path)}: is no path; it holds a null byte")
    path = folder / name_or_path
    looks_like_path = os.sep in name_or_path or name_or_path.endswith((".yaml", ".yml"))
    if looks_like_path or (name_or_path and os.path.lexists(path)):
        return path
    raise InputError(
        f"{shown(name_or_path) or 'an empty name'}: is neither a shipped scenario nor a file; "
        f"shipped are {', '.join(names)}{nearest(name_or_path, names)}"
    )


def _label(path: FilePath) -> str:
    """Return `path` as short as it can be named from here."""
    try:
        return str(path.relative_to(FilePath.cwd()))
    except ValueError:
        return os.path.normpath(path)


def _read_file(path: FilePath) -> str:
    label = _label(path)
    try:
        with open_plain(path) as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InputError(f"{label}: cannot be read: {error.strerror}") from None
    if len(raw) > FILE_BYTES_MAX:
        raise InputError(f"{label}: is larger than {FILE_BYTES_MAX} bytes; no scenario is")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(f"{label}:{line}: is not UTF-8 text; save the file as UTF-8") from None


def _read_with_bases(path: FilePath, extending: tuple[str, ...]) -> Node:
    label = _label(path)
    tree = read_tree(_read_file(path), label, rank=len(extending))
    if tree is None or (isinstance(tree, Leaf) and tree.null):
        raise InputError(f"{label}:1: is empty; a scenario is a mapping that begins with name")
    if not isinstance(tree, Table):
        raise InputError(f"{tree.place}: is not a mapping; a scenario is a mapping that begins with name")
    entries = dict(tree.entries)
    base = entries.pop("extends", None)
    own = _written_out(replace(tree, entries=entries))
    if base is None:
        return own
    inherited = _read_base(base, path, (*extending, os.path.realpath(path)))
    return merge(without_other_kind(inherited, find(own, ("transport", "kind"))), own)


def _read_base(node: Node, path: FilePath, extending: tuple[str, ...]) -> Node:
    if not isinstance(node, Leaf) or node.null:
        raise InputError(f"{node.place}: extends: is no name; write a shipped scenario or a path")
    try:
        base = _locate(node.text, path.parent)
    except InputError as error:
        raise InputError(f"{node.place}: extends: {error}") from None
    if os.path.realpath(base) in extending:
        raise InputError(f"{node.place}: extends: comes back to {_label(base)}; remove one of the two")
    if len(extending) > EXTENDS_MAX:
        raise InputError(f"{node.place}: extends: is a chain of more than {EXTENDS_MAX} files")
    if not base.is_file():
        raise InputError(f"{node.place}: extends: is no file (found {_label(base)})")
    return _read_with_bases(base, extending)


def _overridden(tree: Node, override: str, rank: int) -> Node:
    place = Place(rank, 0, f"--set {shown(override)}")
    path, equals, text = override.partition("=")
    steps = path.strip().split(".")
    if not equals or not all(steps):
        raise InputError(f"{place}: is no assignment; write path.to.key=value")
    if steps == ["extends"]:
        raise InputError(f"{place}: extends: cannot be set; write it in a file")
    value = read_value(text.strip(), place)
    if steps == ["transport", "kind"]:
        tree = without_other_kind(tree, value)
    return put(tree, steps, value)


def _with_layer_queues(tree: Node) -> Node:
    """Complete each layer's queue by fabric.queue, so that a person writes only what differs."""
    common = find(tree, ("fabric", "queue"))
    for layer in ("host_link", "fabric_link"):
        own = find(tree, ("fabric", layer, "queue"))
        if isinstance(common, Table) and isinstance(own, Table):
            tree = put(tree, ("fabric", layer, "queue"), merge(common, own))
    return tree


def _written_out(tree: Node) -> Node:
    """Write the mapping for each word that is short for one."""
    for path, key in shorthands(Scenario).items():
        word = find(tree, path)
        if isinstance(word, Leaf) and not word.null:
            tree = put(tree, path, Table({key: word}, word.place))
    return tree


def _checked(tree: Node) -> Scenario:
    try:
        scenario = Scenario.at(to_data(tree), tree)
    except ValidationError as error:
        found = [_problem(detail) for detail in error.errors(include_url=False)]
        raise input_error(tree, found) from None
    problems = list(rules.problems(scenario))
    if problems:
        raise scenario.error(*problems)
    return scenario


def _problem(detail: Any) -> Problem:
    path: Path = tuple(detail["loc"])
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == REFUSED:
        return Problem(path, context["wrong"], context["allowed"], context["options"])
    if kind == "extra_forbidden":
        return _unknown_key(path)
    option = option_at(Scenario, path)
    if kind == "missing":
        return Problem(path, "is missing", _allowed(option))
    # What is left are mappings and lists of the wrong shape.
    listed = option is not None and option.listed and not isinstance(path[-1], int)
    return Problem(path, "is not a list" if listed else "is not a mapping", _allowed(option))


def _unknown_key(path: Path) -> Problem:
    parent = option_at(Scenario, path[:-1]) if len(path) > 1 else None
    model: type[Section] = parent.model if parent and parent.model else Scenario
    known = keys(model)
    if model is Scenario:
        known = (*known, "extends")
    allowed = f"the keys are {', '.join(known)}"
    return Problem(path, "is no known key", allowed, known, str(path[-1]), show=False)


def _allowed(option: Option | None) -> str:
    if option is None:
        return ""
    if option.kind is not None:
        return f"{'a list, each ' if option.listed else ''}{option.kind.allowed()}"
    return f"the keys are {', '.join(keys(option.model))}" if option.model else ""
