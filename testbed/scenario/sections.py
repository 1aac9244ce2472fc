"""How the models declare their keys: each once, with default, range and meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field


def option(key: str, default: str, meaning: str) -> Any:
    """Declare a key with its default, written as in a scenario."""
    return Field(default=default, alias=key, description=meaning)


def required(key: str, meaning: str) -> Any:
    """Declare a key that must be given."""
    return Field(alias=key, description=meaning)


def unset(key: str, meaning: str) -> Any:
    """Declare a key that may be left out and has no default value."""
    return Field(default=None, alias=key, description=meaning)


def several(key: str, meaning: str, default: tuple[str, ...] = ()) -> Any:
    """Declare a key that takes a list."""
    return Field(default=default, alias=key, description=meaning)


@dataclass(frozen=True)
class For:
    """Marks a key that only some `kinds` of its mapping have; `own` where it means another thing in each."""

    kinds: tuple[str, ...]
    own: bool = False


class Section(BaseModel):
    """Base of every mapping: unknown keys are refused, defaults are read like written values.

    A section with a `shorthand` may be written as a single value, which is then that key's. Of the groups of
    keys in `alternatives` a mapping has one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True)
    shorthand: ClassVar[str] = ""
    alternatives: ClassVar[tuple[tuple[str, ...], ...]] = ()


def section(key: str, model: type[Section], meaning: str) -> Any:
    """Declare a mapping all of whose keys have defaults."""
    return Field(default_factory=model, alias=key, description=meaning)


def kinds_of(model: type[Section]) -> dict[str, For]:
    """Return the marks of the keys of a mapping that only some kinds have."""
    marks = ((field.alias, item) for field in model.model_fields.values() for item in field.metadata)
    return {str(key): mark for key, mark in marks if isinstance(mark, For)}
