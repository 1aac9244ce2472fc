"""Fills the templates of this package: offline pages without a script, in the report's style."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from testbed.regress.flat import Scalar, number
from testbed.report import numbers
from testbed.scenario.expression import Key, unit_of

_FORMATS = {"bytes": numbers.format_bytes, "ms": numbers.format_ms, "bps": numbers.format_rate}


def render(template: str, **values: Any) -> str:
    """Return a page as HTML. A name that the template has not been given is an error."""
    style = _asset("testbed.report", "report.css") + _asset("testbed.regress", "regress.css")
    return _environment().get_template(template).render(style=Markup(style), **values)


def written(key: str, value: Scalar) -> str:
    """Return a value of the summary as a reader wants it: by the unit in its key."""
    found = number(value)
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if found is None:
        return str(value)
    unit = unit_of(Key(tuple(key.split("."))))
    if unit in _FORMATS:
        return _FORMATS[unit](found)
    return numbers.format_count(round(found)) if found == round(found) else numbers.significant(found, 4)


@cache
def _asset(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: _asset("testbed.regress", name)),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["written"] = written
    return environment
