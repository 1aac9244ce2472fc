"""Goldens: summaries that were looked at once and stored, one JSON file for each scenario and seed.

On the virtual clock a run must give the same values to the last digit; on the real clock, those of the keys
that the golden declares a tolerance for. Only keys that the golden has are held against it: a summary may
gain keys, and these are reported. Beside the values stand the settings and the toolchain they came from, so
that a difference can be told from a change of either. Called by `testbed.regress.check`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from testbed import strict_json
from testbed.errors import InputError
from testbed.record.files import write_whole
from testbed.regress.flat import WORDING, Change, Scalar, changes, flatten, in_order, number
from testbed.regress.toolchain import Toolchain, differing
from testbed.scenario.models import Scenario
from testbed.scenario.tree import to_data
from traffic.plain_file import open_plain

FORMAT_VERSION = 1
LINE_VALUES = 24
"""A mapping of so many values at most stands in one line, so that a review shows a link as a line."""

UPDATE = "make it with --update"


@dataclass(frozen=True)
class Tolerance:
    """Values of keys that match `keys` may differ by `absolute` and the share `relative` of the golden's."""

    keys: str
    relative: float
    absolute: float


REAL_CLOCK = (
    Tolerance("verdict.segment", 0.0, 0.0),
    Tolerance("transfers.completed", 0.0, 0.0),
    Tolerance("transfers.bytes", 0.0, 0.0),
    Tolerance("transfers.fct_ms.p50", 0.25, 0.5),
    Tolerance("transfers.slowdown.p50", 0.25, 0.1),
    Tolerance("transfers.last_end_ms", 0.25, 0.5),
)
"""What a new golden of the real clock declares: the answer, and the middle of the times within a quarter.
A team that knows how much its machines differ writes narrower ones into the file; --update keeps them."""


@dataclass(frozen=True)
class Golden:
    """A stored summary, flat, and what it came from. No `tolerances`: every value is exact."""

    path: Path
    scenario: str
    seed: int
    backend: str
    clock: str
    toolchain: Toolchain
    settings: Mapping[str, Scalar]
    tolerances: tuple[Tolerance, ...]
    summary: Mapping[str, Scalar]


@dataclass(frozen=True)
class Difference:
    """What a summary has otherwise than its golden. `new` keys do not count against it."""

    golden: Path
    changes: tuple[Change, ...]
    missing: tuple[str, ...]
    new: tuple[str, ...]
    settings: tuple[Change, ...]
    toolchain: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether the golden holds."""
        return not self.changes and not self.missing


def golden_path(folder: Path, scenario: str, seed: int) -> Path:
    """Return the golden's file of a scenario and seed."""
    return folder / f"{scenario}-{seed}.json"


def settings_of(scenario: Scenario) -> dict[str, Scalar]:
    """Return what a scenario sets, by key as after --set, without its words and expectations."""
    data: Any = to_data(scenario.tree)
    return flatten({key: value for key, value in data.items() if key not in ("description", "expect")})


def read_golden(path: Path, scenario: str, seed: int, clock: str) -> Golden:
    """Return the golden in `path`. InputError when it is none, or of another scenario, seed or clock."""
    try:
        found = _golden(path, _read(path))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no golden of {scenario} with seed {seed}; {UPDATE}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: is no golden: {error!r}; {UPDATE}") from None
    asked = {"scenario": scenario, "seed": seed, "clock": clock}
    for name, value in asked.items():
        if getattr(found, name) != value:
            has = getattr(found, name)
            raise InputError(f"{path}: is a golden for {name} {has}, this is {name} {value}; {UPDATE}")
    return found


def _read(path: Path) -> Any:
    with open_plain(path) as file:
        return strict_json.loads(file.read())


def _golden(path: Path, data: Any) -> Golden:
    if data["format_version"] != FORMAT_VERSION:
        version = data["format_version"]
        raise InputError(
            f"{path}: has format_version {version!r}; this testbed reads {FORMAT_VERSION}; {UPDATE}"
        )
    return Golden(
        path=path,
        toolchain=dict(data["toolchain"]),
        settings=flatten(dict(data["settings"])),
        tolerances=tuple(_declared(one) for one in data["tolerances"]),
        summary=flatten(dict(data["summary"])),
        **{name: data[name] for name in ("scenario", "seed", "backend", "clock")},
    )


def _declared(one: Mapping[str, Any]) -> Tolerance:
    return Tolerance(str(one["keys"]), float(one["relative"]), float(one["absolute"]))


def write_golden(
    path: Path, summary: Mapping[str, Any], settings: Mapping[str, Scalar], tools: Toolchain
) -> None:
    """Write a summary as a golden, with the tolerances an older one declares. InputError if it cannot."""
    kept = [asdict(one) for one in _tolerances(path)] if summary["clock"] == "real" else []
    document = {
        "format_version": FORMAT_VERSION,
        **{name: summary[name] for name in ("scenario", "seed", "backend", "clock")},
        "toolchain": tools,
        "settings": settings,
        "tolerances": kept,
        "summary": _without_wording(summary),
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, _text(document, "") + "\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


def _tolerances(path: Path) -> Iterable[Tolerance]:
    try:
        return _golden(path, _read(path)).tolerances or REAL_CLOCK
    except (OSError, ValueError, KeyError, TypeError, InputError):
        return REAL_CLOCK


def _without_wording(value: Any, at: str = "") -> Any:
    if not isinstance(value, Mapping):
        return value
    named = {key: (f"{at}.{key}" if at else key, below) for key, below in sorted(value.items())}
    return {key: _without_wording(below, name) for key, (name, below) in named.items() if name not in WORDING}


def _text(value: Any, indent: str) -> str:
    """Return JSON with one line for each small mapping."""
    if not isinstance(value, Mapping) or (len(flatten(value)) <= LINE_VALUES and indent):
        return json.dumps(value, sort_keys=True, allow_nan=False)
    inner = indent + " "
    lines = [f"{inner}{json.dumps(key)}: {_text(below, inner)}" for key, below in value.items()]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def difference(
    golden: Golden, summary: Mapping[str, Any], settings: Mapping[str, Scalar], tools: Toolchain
) -> Difference:
    """Return what a summary has otherwise than its golden."""
    flat = flatten(summary)
    held = {key: value for key, value in golden.summary.items() if _tolerance(golden, key) is not None}
    found = [change for change in changes(held, flat) if not _within(golden, change)]
    written = {**dict.fromkeys(settings), **golden.settings}
    return Difference(
        golden=golden.path,
        changes=tuple(in_order(found)),
        missing=tuple(sorted(held.keys() - flat.keys())),
        new=tuple(sorted(flat.keys() - golden.summary.keys())),
        settings=tuple(changes(written, {**dict.fromkeys(written), **settings})),
        toolchain=tuple(differing(golden.toolchain, tools)),
    )


def _tolerance(golden: Golden, key: str) -> Tolerance | None:
    """Return how exactly a key is held: to the last digit without tolerances; None where it is not held."""
    if not golden.tolerances:
        return Tolerance(key, 0.0, 0.0)
    return next((one for one in golden.tolerances if fnmatchcase(key, one.keys)), None)


def _within(golden: Golden, change: Change) -> bool:
    allowed = _tolerance(golden, change.key)
    before, after = number(change.before), number(change.after)
    if allowed is None or before is None or after is None:
        return False
    return abs(after - before) <= allowed.absolute + allowed.relative * abs(before)
