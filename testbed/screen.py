"""What is shown to a person: text in which no character moves the cursor, sets colours or hides another, and
cells of a table that are no formulas.

Names and sentences may come from a scenario, a trace or a record of somebody else. Called by the commands,
and where tables are written.
"""

from __future__ import annotations

import re

SHOWN_MAX = 200
"""A name of a file that is longer is cut in a message."""

_PLAIN = "\n\t\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"

_FORMULA = re.compile(r"[=+\-@\t]")
_NUMBER = re.compile(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?[a-z%]*")


def printable(text: str) -> str:
    """Return `text` with every control or invisible character spelt out, as `\\x1b`; lines stay lines."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in _PLAIN else _spelt(letter) for letter in text)


def _spelt(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def say(text: str) -> None:
    """Print `text` on standard output."""
    print(printable(text))


def shortened(text: str, most: int = SHOWN_MAX) -> str:
    """Return a text of any length as a message shows it."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def cell(value: object) -> object:
    """Return a cell of a CSV file: text that a spreadsheet would compute gets an apostrophe before it."""
    if not isinstance(value, str):
        return value
    value = printable(value)
    return f"'{value}" if _FORMULA.match(value) and not _NUMBER.fullmatch(value) else value
