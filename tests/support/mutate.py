"""Changes valid input as a hand, a broken disk or somebody hostile would: values, structure, text, bytes.

Everything is drawn from one `random.Random`, so that a case is its seed. Called by `tests.support.hostile`.
"""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import yaml

Path = tuple[str | int, ...]

NUMBERS = (
    *(
        0,
        -1,
        1,
        2,
        3,
        7,
        255,
        65_536,
        2**31,
        2**32,
        2**53,
        2**63 - 1,
        2**63,
        2**64,
        10**18,
        -(10**18),
        10**30,
    ),
    *(0.0, -0.0, 0.5, 1e-300, 5e-324, 1e9, 1e18, 1e300, float("inf"), float("-inf"), float("nan")),
)
TEXTS = (
    *(
        "",
        " ",
        "0",
        "-1",
        "1",
        "010",
        "1e7",
        "1e999",
        "1:30",
        "0x10",
        "1_000",
        ".5",
        "5.",
        "+5",
        "nan",
        "inf",
    ),
    *("null", "~", "true", "no", "on", "2001-01-01", "=1+1", "@SUM(A1)", "-2+3", "NaN", "\u0663", "\u00bd"),
    *("100gbit", "1bit", "1tbit", "-1gbit", "1.5us", "0us", "1ns", "60min", "64mib", "1b", "1tib", "0.1b"),
    *("p1", "d1", "p0", "p99999", "leaf1", "leaf1-spine1", "p1-leaf1", "incast", "mooncake", "nixl", "roce"),
    *(
        "<script>alert(1)</script>",
        "</script>",
        "]]>",
        "<!--",
        "&lt;",
        "'\"`|",
        "$(id)",
        "; id",
        "`id`",
        "%s%n",
    ),
    *("\x00", "\x1b[31m", "\r", "\n", "\t", "\u202e", "\u200b", "\ufeff", "\ud800", "\U0001f600", "\u00e9"),
    *("../../etc/passwd", "/etc/passwd", "/dev/zero", "/dev/full", "/proc/self/environ", "/proc/kmsg", "."),
    *(
        "..",
        "/",
        "~",
        "//",
        "a" * 300,
        "a" * 70_000,
        "a.b.c",
        "!!python/object/apply:os.system [id]",
        "*a",
        "&a",
    ),
)
WORDS = (
    *(
        ": ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "#",
        "&a ",
        "*a",
        "<<: *a",
        "!!python/name:os.system ",
        "!!binary ",
    ),
    *(
        "? ",
        "| ",
        "> ",
        "%YAML 9.9\n",
        "---\n",
        "...\n",
        "\t",
        "\x00",
        "\x1b]0;x\x07",
        "\ufeff",
        "'",
        '"',
        "\\",
    ),
    *(
        "\r\n",
        "\n",
        "\x85",
        "\u2028",
        "=",
        "==",
        "(",
        ")",
        "+",
        "-",
        "*",
        "/",
        "%",
        "1e999",
        "9" * 5000,
        "ideal",
    ),
)


def deep(levels: int) -> Any:
    """A list in a list, and so on."""
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


def odd_value(rng: Random) -> Any:
    """Something that nobody expects."""
    kind = rng.randrange(12)
    if kind < 4:
        return rng.choice(NUMBERS)
    if kind < 8:
        return rng.choice(TEXTS)
    return rng.choice((None, True, False, [], {}, [[]], [{}], [1, "a", None], {"a": 1}, {"": ""}, deep(30)))


def places(value: Any, at: Path = ()) -> Iterator[Path]:
    """The path of every value below `value`."""
    items: Sequence[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, below in items:
        yield (*at, key)
        yield from places(below, (*at, key))


def at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def mutated(value: Any, rng: Random, most: int = 3) -> Any:
    """A copy of plain values with a few changes anywhere in it."""
    value = copy.deepcopy(value)
    for _ in range(rng.randint(1, most)):
        paths = list(places(value))
        if not paths:
            return odd_value(rng)
        path = rng.choice(paths)
        _change(at(value, path[:-1]), path[-1], value, paths, rng)
    return value


def _change(holder: Any, key: Any, whole: Any, paths: list[Path], rng: Random) -> None:
    kind = rng.randrange(10)
    if kind < 4:
        holder[key] = odd_value(rng)
    elif kind < 6:
        holder[key] = nudged(holder[key], rng)
    elif kind == 6:
        del holder[key]
    elif kind == 7:
        holder[key] = copy.deepcopy(at(whole, rng.choice(paths)))
    elif isinstance(holder, dict):
        holder[rng.choice(TEXTS)] = holder[key] if kind == 8 else holder.pop(key)
    else:
        holder.extend(copy.deepcopy(holder[key:]) if kind == 8 else [odd_value(rng)])


def nudged(value: Any, rng: Random) -> Any:
    """A value a little beside what it was."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return rng.choice(
            (value + 1, value - 1, -value, value * 10, value * 10**9, value // 2, float(value), str(value))
        )
    if isinstance(value, str):
        return text_nudged(value, rng)
    return rng.choice(([value], {"a": value}, json.dumps(value, default=str)))


def text_nudged(text: str, rng: Random) -> str:
    """A text with one place changed."""
    cut = rng.randint(0, len(text))
    return rng.choice(
        (
            text[:cut],
            text[cut:],
            text[:cut] + rng.choice(WORDS) + text[cut:],
            text[:cut] + rng.choice(TEXTS) + text[cut:],
            text[:cut] + text[cut + 1 :],
            text[:cut] + chr(rng.choice((rng.randrange(128), rng.randrange(0xD7FF)))) + text[cut + 1 :],
            text * 2,
            text.upper(),
        )
    )


def lines_mutated(text: str, rng: Random, most: int = 3) -> str:
    """A text with a few lines taken away, doubled, exchanged or changed."""
    for _ in range(rng.randint(1, most)):
        lines = text.splitlines(keepends=True) or [""]
        here, there = rng.randrange(len(lines)), rng.randrange(len(lines))
        kind = rng.randrange(6)
        if kind == 0:
            del lines[here]
        elif kind == 1:
            lines.insert(there, lines[here])
        elif kind == 2:
            lines[here], lines[there] = lines[there], lines[here]
        elif kind == 3:
            lines[here] = lines[here][: rng.randint(0, len(lines[here]))] + rng.choice(TEXTS) + "\n"
        else:
            lines[here] = text_nudged(lines[here], rng)
        text = "".join(lines)
    return text


def bytes_mutated(raw: bytes, rng: Random) -> bytes:
    """The bytes of a file, damaged or packed."""
    kind, cut = rng.randrange(9), rng.randint(0, len(raw))
    if kind == 0:
        return raw[:cut]
    if kind == 1:
        return raw[:cut] + bytes([rng.randrange(256)]) + raw[cut + 1 :]
    if kind == 2:
        return gzip.compress(raw, 1)
    if kind == 3:
        return gzip.compress(raw, 1)[: max(2, cut)]
    if kind == 4:
        return raw.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n", b"\x00")))
    if kind == 5:
        return rng.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\x1f\x8b", b"#", b"\n")) + raw
    if kind == 6:
        return (
            raw[:cut] + rng.choice((b"\x00", b"\xff", b"\xc3\x28", b" " * 70_000, b"9" * 70_000)) + raw[cut:]
        )
    return raw


def yaml_text(value: Any, rng: Random) -> str:
    """A value as one of the many YAML texts there are of it."""
    try:
        return yaml.safe_dump(
            value, default_flow_style=rng.choice((None, True, False)), allow_unicode=rng.random() < 0.5
        )
    except (yaml.YAMLError, UnicodeEncodeError, ValueError):
        return json.dumps(value, default=str)


def encoded(text: str) -> bytes:
    """A text as bytes, whatever is in it."""
    return text.encode("utf-8", "surrogatepass")
