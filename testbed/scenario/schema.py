"""The models seen as a list of options: for the reference table and for naming keys in errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from testbed.scenario.kinds import Kind
from testbed.scenario.sections import Section
from testbed.scenario.tree import Path


@dataclass(frozen=True)
class Option:
    """One key: its path as documented, its field, and its kind or the model of its mapping."""

    path: str
    field: FieldInfo
    kind: Kind | None
    model: type[Section] | None
    listed: bool


def options(model: type[Section], prefix: str = "") -> Iterator[Option]:
    """Yield every option of `model` and below it, in the order of declaration."""
    for field in model.model_fields.values():
        option = _option(field, prefix)
        yield option
        if option.model is not None:
            yield from options(option.model, option.path + ("[]." if option.listed else "."))


def keys(model: type[Section]) -> tuple[str, ...]:
    """Return the keys of one mapping."""
    return tuple(str(field.alias) for field in model.model_fields.values())


@cache
def shorthands(model: type[Section]) -> Mapping[tuple[str, ...], str]:
    """Return the places of mappings that a single value may stand for, and whose value it then is."""
    named = ((option.path, option.model.shorthand) for option in options(model) if option.model is not None)
    return {tuple(path.split(".")): key for path, key in named if key}


def option_at(model: type[Section], path: Path) -> Option | None:
    """Return the option a scenario's `path` leads to; a list's index stands for the list."""
    option: Option | None = None
    current: type[Section] | None = model
    for key in path:
        if isinstance(key, int):
            continue
        fields = current.model_fields.values() if current else ()
        field = next((field for field in fields if field.alias == key), None)
        if field is None:
            return None
        option = _option(field, "")
        current = option.model
    return option


def _option(field: FieldInfo, prefix: str) -> Option:
    kind = next((item for item in field.metadata if isinstance(item, Kind)), None)
    annotation: Any = field.annotation
    listed = get_origin(annotation) is tuple
    if listed:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is Annotated:
        kind = next(item for item in annotation.__metadata__ if isinstance(item, Kind))
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(item for item in get_args(annotation) if item is not type(None))
    is_model = isinstance(annotation, type) and issubclass(annotation, Section)
    return Option(f"{prefix}{field.alias}", field, kind, annotation if is_model else None, listed)
