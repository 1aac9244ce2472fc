"""How the models declare their keys: each once, with default, range and meaning. Called by them alone."""

from __future__ import annotations

from typing import Any

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


class Section(BaseModel):
    """Base of every mapping: unknown keys are refused, defaults are read like written values."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True)


def section(key: str, model: type[Section], meaning: str) -> Any:
    """Declare a mapping all of whose keys have defaults."""
    return Field(default_factory=model, alias=key, description=meaning)
