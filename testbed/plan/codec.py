"""A plan as JSON text and back, exactly; and the short hash that names it. Light to import.

Generic over frozen dataclasses of int, float, str, bool, None and tuples: a field added to the model
needs nothing here. One whose default is None is left out while it is None, and read so: a plan that does
without it stays as it was. Called where the plan is handed to the lab and where a record is written or read.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from testbed.errors import InputError
from testbed.plan.model import FORMAT_VERSION, Plan


def to_json(plan: Plan) -> str:
    """Return `plan` as JSON with two spaces of indent and a final newline; keys in the model's order."""
    return json.dumps(_plain(plan), indent=2, allow_nan=False) + "\n"


def from_json(text: str) -> Plan:
    """Return the plan `to_json` wrote; InputError names the key that is missing, unknown or mistyped."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"plan: is not valid JSON: {error}") from None
    version = data.get("format_version") if isinstance(data, dict) else None
    if version != FORMAT_VERSION:
        raise InputError(f"plan: format_version is {version!r}; this testbed reads {FORMAT_VERSION}")
    plan: Plan = value_of(Plan, data, "plan")
    return plan


def plan_hash(plan: Plan) -> str:
    """Return 8 hex digits of the SHA-256 of the plan's canonical JSON, backend and clock included."""
    canonical = json.dumps(_plain(plan), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:8]


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        named = ((field, getattr(value, field.name)) for field in fields(value))
        return {field.name: _plain(item) for field, item in named if not (item is None is field.default)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


@cache
def _hints(model: type) -> dict[str, Any]:
    return get_type_hints(model)


def value_of(kind: Any, data: Any, path: str) -> Any:
    """Return `data`, as JSON has it, as a value of `kind`; InputError names the place under `path`."""
    if is_dataclass(kind):
        return _dataclass(kind, data, path)
    origin = get_origin(kind)
    if origin is tuple:
        _expect(isinstance(data, list), path, "a list", data)
        item_kind = get_args(kind)[0]
        return tuple(value_of(item_kind, item, f"{path}[{number}]") for number, item in enumerate(data))
    if origin is UnionType:
        return None if data is None else value_of(_not_none(kind), data, path)
    return _scalar(kind, data, path)


def _not_none(kind: Any) -> Any:
    return next(option for option in get_args(kind) if option is not NoneType)


def _dataclass(kind: Any, data: Any, path: str) -> Any:
    _expect(isinstance(data, dict), path, "a mapping", data)
    hints = _hints(kind)
    data = {**{field.name: None for field in fields(kind) if field.default is None}, **data}
    if hints.keys() != data.keys():
        missing, unknown = sorted(hints.keys() - data.keys()), sorted(data.keys() - hints.keys())
        raise InputError(f"{path}: the keys differ: missing {missing}, unknown {unknown}")
    return kind(**{name: value_of(hint, data[name], f"{path}.{name}") for name, hint in hints.items()})


def _scalar(kind: Any, data: Any, path: str) -> Any:
    # JSON has one kind of number: a float that is whole may come back as an int.
    if kind is float and type(data) is int:
        return float(data)
    _expect(type(data) is kind, path, kind.__name__, data)
    return data


def _expect(fits: bool, path: str, wanted: str, data: Any) -> None:
    if not fits:
        raise InputError(f"{path}: is {type(data).__name__}; expected {wanted}")
