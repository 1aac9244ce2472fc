"""What is shown to a person: text in which no character moves the cursor, sets colours or hides another, and
cells of a table that are no formulas.

Names and sentences may come from a scenario, a trace or a record of somebody else. Called by the commands,
and where tables are written.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import sys

SHOWN_MAX = 200
"""A name of a file that is longer is cut in a message."""

_BLANKS = "\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}"
_PLAIN = f"\n\t{_BLANKS}"

_FORMULA = re.compile(r"[=+\-@\t]")
_NUMBER = re.compile(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?[a-z%]*")


def printable(text: str) -> str:
    """Return `text` with every control or invisible character spelt out, as `\\x1b`; lines stay lines."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in _PLAIN else _spelt(letter) for letter in text)


def _spelt(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def open_streams() -> None:
    """Give the program three standard streams, whatever it was started with; called once, by the program.

    One that was closed leads nowhere: else its number goes to the next file that is opened, into which the
    programs of a lab would write. What an encoding lacks is spelt out.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115
    codecs.register_error("spelt", _spelt_out)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="spelt")


def _spelt_out(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(" " if letter in _BLANKS else _spelt(letter) for letter in lacking), error.end


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
