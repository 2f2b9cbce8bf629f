"""The settings that every sink has, and the types that the settings of a kind are made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from sinks.errors import SinkError


def _from_json(value: object) -> object:
    """Environment variables carry lists and objects as JSON text."""
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


class SinkSettings(BaseModel):
    """The settings of every sink. A kind adds its own fields in a frozen subclass."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    kind: str = Field(description="What the sink is; the sink's name unless given")
    types: JsonList | None = Field(
        default=None,
        description="JSON list of globs of record types that the sink gets; all unless given",
    )
    affects_this_vm_only: bool = Field(
        default=False,
        description="Leave out events that do not name this VM, but not the record by which an "
        "event stops to name it, nor its end",
    )


class PreparingSettings(SinkSettings):
    """The settings of a kind that can be this VM's preparation."""

    prepares: bool = Field(
        default=False,
        description="Prepare this VM: the sink gets an event when it is asked to prepare for it, "
        "and an approval waits until it has; at most one sink does",
    )
    lead: float = Field(
        default=120.0,
        ge=0,
        le=86_400,
        allow_inf_nan=False,
        description="Seconds before notBefore at which the sink prepares, asked or not",
    )


def read_secret(value: SecretStr | None, file: Path | None) -> str | None:
    """The secret, from the setting or its file, read each time. Raises `SinkError`."""
    if file is None:
        return value.get_secret_value() if value is not None else None
    try:
        # Editors on Windows put a byte order mark in front, which is not part of the secret.
        return file.read_text(encoding="utf-8-sig").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise SinkError(f"the secret file {file} cannot be read: {why}") from None
