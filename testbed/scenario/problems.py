"""What is wrong with a scenario, as values, and the one-line error made of them.

The line is `FILE:LINE: path.to.key: what is wrong (found ...); what is allowed; did you mean 'nearest'?`.
The loader, the cross-key rules and the plan builder report through it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from testbed.errors import InputError
from testbed.scenario.tree import Items, Leaf, Node, Path, Place, dotted, find, nearest_place

SHOWN_MAX = 60


@dataclass(frozen=True)
class Problem:
    """One thing wrong at `path`: `wrong` continues the key's name, `allowed` is what to write.

    The nearest of `options` to `sought` (default: the text found at `path`) is proposed. `show` tells
    whether the text found there is quoted. Where nothing is written at `path`, its `default` is quoted
    and the place is that of the first of the `beside` keys that is written.
    """

    path: Path
    wrong: str
    allowed: str = ""
    options: tuple[str, ...] = ()
    sought: str | None = None
    show: bool = True
    default: str = ""
    beside: tuple[Path, ...] = ()


def input_error(tree: Node, problems: Iterable[Problem]) -> InputError:
    """Return the error of the first problem in order of files and lines; it counts the others."""
    # A queue's keys hold for several layers: one wrong value is one problem, not three.
    distinct: dict[tuple[Place, object, str], Problem] = {}
    for problem in problems:
        place = _place(tree, problem)
        distinct.setdefault((place, problem.path[-1:], problem.wrong), problem)
    first = min(distinct, key=lambda key: key[0])
    others = len(distinct) - 1
    more = f" (and {others} more problem{'s' if others > 1 else ''})" if others else ""
    return InputError(_line(tree, distinct[first]) + more)


def nearest(sought: str, options: Sequence[str]) -> str:
    """Return the question about the nearest of `options`, nothing when none is near."""
    near = difflib.get_close_matches(sought, options, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def shown(text: str) -> str:
    """Return `text` on one line, shortened, with anything that cannot be printed escaped."""
    flat = text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
    return flat if len(flat) <= SHOWN_MAX else flat[: SHOWN_MAX - 3] + "..."


def _place(tree: Node, problem: Problem) -> Place:
    paths = (problem.path, *problem.beside)
    written = next((path for path in paths if find(tree, path) is not None), problem.path)
    return nearest_place(tree, written)


def _line(tree: Node, problem: Problem) -> str:
    node = find(tree, problem.path)
    sought = problem.sought or (node.text if isinstance(node, Leaf) else "")
    near = nearest(sought, problem.options)
    allowed = f"; {problem.allowed}" if problem.allowed else ""
    at = f"{shown(dotted(problem.path))}: " if problem.path else ""
    return f"{_place(tree, problem)}: {at}{problem.wrong}{_found(node, problem)}{allowed}{near}"


def _found(node: Node | None, problem: Problem) -> str:
    if node is None:
        return f" (default {problem.default})" if problem.default else ""
    return f" (found {_named(node)})" if problem.show else ""


def _named(node: Node) -> str:
    if isinstance(node, Items):
        return f"a list of {len(node.items)}"
    if isinstance(node, Leaf):
        return shown(node.text) or "nothing"
    return f"a mapping of {len(node.entries)}"
