"""The settings that every sink has."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr

from sinks.errors import SinkError
from sinks.record_choice import RecordChoice
from sinks.shared.json_values import JsonList
from sinks.shared.section import Section


class SinkSettings(Section):
    """The settings of every sink. A kind adds its own fields in a frozen subclass."""

    kind: str = Field(description="What the sink is; the sink's name unless given")
    types: JsonList | None = Field(
        default=None,
        description="JSON list of globs of record types that the sink gets; all unless given",
    )
    affects_this_vm_only: bool = Field(
        default=False,
        description="Leave out events that do not name this VM, but not the record by which an "
        "event stops naming it, nor its end",
    )

    @property
    def choice(self) -> RecordChoice:
        """The records that the sink takes."""
        return RecordChoice(types=self.types, affects_this_vm_only=self.affects_this_vm_only)


class PreparingSettings(SinkSettings):
    """The settings of a kind that can prepare this VM."""

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
    """Return the secret from the setting or its file, which is read each time. Raises
    `SinkError`.
    """
    if file is None:
        return value.get_secret_value() if value is not None else None
    try:
        # Editors on Windows put a byte order mark in front, which is not part of the secret.
        return file.read_text(encoding="utf-8-sig").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise SinkError(f"the secret file {file} cannot be read: {reason}") from None
