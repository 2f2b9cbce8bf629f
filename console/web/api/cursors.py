"""Cursors: where a listing continues, as text in the field `next` of an answer."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final

from console.web.answers import refuse
from console.web.api.operations import is_storable

_FARTHEST: Final = 1e18


def position_in(text: str | None, *kinds: type) -> list[Any] | None:
    """Return where a listing continues, from a text that `cursor` made; it must have values of
    these types.
    """
    if not text:
        return None
    try:
        found = json.loads(base64.urlsafe_b64decode(text.encode() + b"==="))
    except (ValueError, binascii.Error, RecursionError):
        found = None
    fits = isinstance(found, list) and len(found) == len(kinds)
    if not fits or not all(map(isinstance, found, kinds)) or not all(map(_fits, found)):
        raise refuse(422, "cursor is not one that this API gave as `next`")
    return list(found)


def _fits(value: str | float) -> bool:
    """Check whether a database can store a value from JSON, which allows more."""
    if isinstance(value, str):
        return is_storable(value)
    return -_FARTHEST <= value <= _FARTHEST


def cursor(*values: object) -> str:
    """Return these values as text for the field `next` of a listing."""
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")
