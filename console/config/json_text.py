"""Values of settings that are JSON text."""

from __future__ import annotations

import json


def from_json(value: object) -> object:
    """Return a list or an object from a variable with JSON text."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError(
                'this is not JSON; a list is ["a", "b"], an object {"a": "b"}'
            ) from None
    return value
