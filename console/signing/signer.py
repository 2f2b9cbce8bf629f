"""What a signer of commands is. It never keeps or logs a token."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Protocol

from console.fleet.values.decision import VmCommand
from sinks.shared.errors import SebError
from wire.command import Command


class SigningError(SebError):
    """The command cannot be signed now. The message says why, and shows nothing of the key."""


class Signer(Protocol):
    """A key that the bridges trust."""

    def sign(self, command: VmCommand, now: float) -> bytes:
        """Return the token of a command, valid until it expires; `now` in seconds since 1970.
        Raises `SigningError`.
        """

    def public_key(self) -> dict[str, Any]:
        """Return the public half, in the form that the bridges' SEB_APPROVAL__TRUST has. Raises
        `SigningError`.
        """


def moment_of(now: float) -> datetime:
    """Return seconds since 1970 as a UTC datetime."""
    return datetime.fromtimestamp(now, UTC)


def wire_command(command: VmCommand) -> Command:
    """Return the command as its token states it."""
    return Command(
        subject=command.subject,
        event_id=command.event_id,
        fingerprint=command.fingerprint,
        person_reason=command.reason,
        jti=command.jti,
        act=command.act,
    )
