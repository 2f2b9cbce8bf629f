"""Lists and objects as values of settings."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import BeforeValidator


def _from_json(value: object) -> object:
    """Return the value of JSON text: environment variables carry lists and objects in this form."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except ValueError as error:
            raise ValueError(f"this is not valid JSON ({error})") from None
    return value


JsonList = Annotated[tuple[str, ...], BeforeValidator(_from_json)]
"""A list of strings; from the environment, a JSON list."""
JsonDict = Annotated[dict[str, str], BeforeValidator(_from_json)]
"""An object of strings; from the environment, a JSON object."""
