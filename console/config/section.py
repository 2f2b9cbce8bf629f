"""What every part of the settings has in common, and values that are JSON text."""

from __future__ import annotations

import json

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A part of the settings. An unknown name is an error, and no message shows a value."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


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
