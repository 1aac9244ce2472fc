"""Whether two records have the same results, and where they first differ. Reads files; runs nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from testbed.record import layout

RESULTS = (layout.SUMMARY, layout.TRANSFERS, layout.REQUESTS_TABLE)
"""What must be byte-identical for the same scenario, seed and kernel. Only some scenarios have requests."""

SHOWN_CHARACTERS = 60
COMPARED = ("kernel", "packages", "git", "framework", "machine")
"""What of an environment may make a difference; a folder, a date and a command do not."""


@dataclass(frozen=True)
class Difference:
    """The first place at which a file of two records differs, with both values as text."""

    file: str
    where: str
    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.file}: {self.where} was {self.first} and is {self.second}"


def results_of(*folders: Path) -> tuple[str, ...]:
    """Return the names of the results that any of the records has."""
    return tuple(name for name in RESULTS if any((folder / name).is_file() for folder in folders))


def differences(first: Path, second: Path) -> list[Difference]:
    """Return the first difference of each result file of two records; none when all bytes are the same."""
    found = []
    for name in results_of(first, second):
        then, now = (_bytes(folder / name) or b"" for folder in (first, second))
        if then != now:
            locate = _in_json if name == layout.SUMMARY else _in_lines
            found.append(Difference(name, *locate(then.decode(), now.decode())))
    return found


def raw_differences(first: Path, second: Path) -> list[str]:
    """Return the names of the raw files that differ or that only one of the records has."""
    raw = first / layout.RAW, second / layout.RAW
    names = {file.name for folder in raw for file in folder.iterdir()}
    return sorted(name for name in names if _bytes(raw[0] / name) != _bytes(raw[1] / name))


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _in_json(first: str, second: str) -> tuple[str, str, str]:
    for where, then, now in _walk(json.loads(first), json.loads(second), ""):
        return where or "the whole", _short(then), _short(now)
    return "the layout of the text", "other bytes", "other bytes"


_NOTHING = object()


def _walk(first: Any, second: Any, where: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield each value that differs, by its dotted path, in the order of the keys."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in sorted(first.keys() | second.keys()):
            path = f"{where}.{key}" if where else key
            yield from _walk(first.get(key, _NOTHING), second.get(key, _NOTHING), path)
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for number, (then, now) in enumerate(zip(first, second, strict=True)):
            yield from _walk(then, now, f"{where}[{number}]")
    elif first != second:
        yield where, first, second


def _in_lines(first: str, second: str) -> tuple[str, str, str]:
    """Name line and column of the first cell that differs in two comma-separated texts."""
    names = first.partition("\n")[0].split(",")
    pairs = zip_longest(first.splitlines(), second.splitlines())
    for number, (then, now) in enumerate(pairs, 1):
        if then is None or now is None:
            return f"line {number}", _short(_or_nothing(then)), _short(_or_nothing(now))
        cells = list(zip_longest(then.split(","), now.split(",")))
        for column, (old, new) in enumerate(cells):
            if old != new:
                name = names[column] if column < len(names) else f"column {column + 1}"
                return f"line {number}, {name}", _short(_or_nothing(old)), _short(_or_nothing(new))
    return "the line ends", "other bytes", "other bytes"


def _or_nothing(value: str | None) -> Any:
    return _NOTHING if value is None else value


def _short(value: Any) -> str:
    if value is _NOTHING:
        return "not there"
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."


@dataclass(frozen=True)
class Changed:
    """What of the environment is not as it was."""

    name: str
    then: str
    now: str

    def __str__(self) -> str:
        return f"{self.name} was {self.then} and is {self.now}"


def changed_environment(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[Changed]:
    """Return what differs between two `environment.json` that a result may depend on."""
    pairs = ((key, then.get(key, _NOTHING), now.get(key, _NOTHING)) for key in COMPARED)
    return [
        Changed(where, _short(old), _short(new))
        for key, first, second in pairs
        for where, old, new in _walk(first, second, key)
    ]
