"""JSON that somebody else may have written: refused where Python would read more or less than stands there.

Python takes NaN, numbers of any length, and the last of two equal keys. Called wherever a file that was
written once is read again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

WHOLE_MAX = 2**64
"""Nothing that is counted or measured is larger."""


def loads(text: str | bytes) -> Any:
    """Return the value of a JSON text; ValueError says what is wrong with it."""
    try:
        text = text.decode() if isinstance(text, bytes) else text
        value = json.loads(
            text, parse_constant=_decimal, parse_float=_decimal, parse_int=_whole, object_pairs_hook=_mapping
        )
        if "\\ud" in text or "\\uD" in text:
            # Half of a pair is no character: what holds one can be read and not be written.
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None
    except UnicodeEncodeError:
        raise ValueError("has half of a character") from None
    except RecursionError:
        raise ValueError("is nested too deep") from None


def _decimal(word: str) -> float:
    value = float(word)
    if not math.isfinite(value):
        raise ValueError(f"{word[:20]} is no finite number")
    return value


def _whole(word: str) -> int:
    if len(word) > 20 or abs(int(word)) > WHOLE_MAX:
        raise ValueError(f"{word[:20]} is too large a number")
    return int(word)


def _mapping(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:40]!r} is there twice")
    return found
