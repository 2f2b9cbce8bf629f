"""JSON of the wire: read strictly, so that it has only what a record can have, and written in one
form.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

MAX_DEPTH: Final = 64
"""How deep it may be nested: Azure's documents have three levels."""


class JsonError(ValueError):
    """The text is not JSON, or parsers read it in different ways."""


def load_json(body: bytes) -> Any:
    """Read strict JSON; half surrogate pairs become U+FFFD. Raises `JsonError`."""
    if not body.strip():
        raise JsonError("the answer is empty")
    try:
        text = body.decode("utf-8-sig")
        loaded = parse_json(text)
        if "\\ud" in text or "\\uD" in text:  # an escape that may be half a surrogate pair
            whole = json.dumps(loaded, ensure_ascii=False)
            loaded = parse_json(whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    except UnicodeDecodeError:
        raise JsonError("the answer is not UTF-8") from None
    except RecursionError:
        raise JsonError("the JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise JsonError(f"the answer is not JSON: {error}") from None
    return loaded


def canonical_json(value: object) -> bytes:
    """Write a JSON value in its one form: sorted keys, no white space. Raises `ValueError`."""
    return _CANONICAL.encode(value).encode()


def same_json(one: object, other: object) -> bool:
    """Check whether two values are the same JSON: in Python 1 equals True, in JSON it does not."""
    if one != other or isinstance(one, bool) is not isinstance(other, bool):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return all(same_json(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return all(map(same_json, one, other))
    return True


def parse_json(text: str) -> Any:
    """Read strict JSON from exactly this text. Raises `JsonError`, `JSONDecodeError`,
    `RecursionError`.
    """
    try:
        loaded = _DECODER.decode(text)
    except (JsonError, json.JSONDecodeError):
        raise
    except ValueError:  # Python reads no integer of more than 4,300 digits
        raise JsonError("a number is too large") from None
    _require_shallow(loaded, text, MAX_DEPTH)
    return loaded


def _require_shallow(loaded: object, text: str, depth: int) -> None:
    if text.count("[") + text.count("{") <= depth:
        return
    level = [loaded]
    for _ in range(depth):
        level = [
            child
            for each in level
            if isinstance(each, (dict, list))
            for child in (each.values() if isinstance(each, dict) else each)
            if isinstance(child, (dict, list))
        ]
    if level:
        raise JsonError("the JSON is nested too deeply")


def _constant(name: str) -> float:
    raise JsonError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise JsonError("a number is too large")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    loaded = dict(pairs)
    if len(loaded) != len(pairs):
        raise JsonError("an object has the same key twice")
    return loaded


_CANONICAL: Final = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, sort_keys=True
)
_DECODER: Final = json.JSONDecoder(
    parse_constant=_constant, parse_float=_finite, object_pairs_hook=_unique
)
