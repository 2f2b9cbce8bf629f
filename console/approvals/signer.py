"""Signs commands. Only this module reads the private key; it never keeps or logs a token."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from console.config.settings import Settings
from console.fleet.values import Command
from sinks.shared.errors import ConfigurationError, SebError
from wire.command import Command as WireCommand
from wire.command import sign
from wire.keys import MAX_FILE_BYTES, KeyFileError, parse_jwk, parse_private, public


class SigningError(SebError):
    """The command cannot be signed now. The message says why, and shows nothing of the key."""


class Signer(Protocol):
    """A key that the bridges trust."""

    def sign(self, command: Command, now: float) -> bytes:
        """Return the token of a command, valid until it expires; `now` in seconds since 1970.
        Raises `SigningError`.
        """

    def public_key(self) -> dict[str, Any]:
        """Return the public half, in the form that the bridges' SEB_APPROVAL__TRUST has. Raises
        `SigningError`.
        """


class FileSigner:
    """Signs with the key in a file. The file is read each time, so a new key needs no restart."""

    def __init__(self, file: Path) -> None:
        """Raises `ConfigurationError` if the file holds no private key."""
        self._file = file
        try:
            parse_private(_content(file), name=file)
        except KeyFileError as error:
            raise ConfigurationError(f"SEB_CONSOLE_KEY: {error}") from None

    def sign(self, command: Command, now: float) -> bytes:
        """See `Signer`."""
        try:
            key = parse_private(_content(self._file), name=self._file)
            return sign(
                wire_command(command),
                key,
                vm_id=command.vm_id,
                now=moment_of(now),
                lifetime=int(command.expires_at) - int(now),
            )
        except (KeyFileError, ValueError) as error:
            raise SigningError(f"SEB_CONSOLE_KEY: {error}") from None

    def public_key(self) -> dict[str, Any]:
        """See `Signer`."""
        try:
            return public(parse_jwk(_content(self._file), name=self._file))
        except KeyFileError as error:
            raise SigningError(f"SEB_CONSOLE_KEY: {error}") from None


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise KeyFileError(f"{file} cannot be read: {error.strerror}") from None


def moment_of(now: float) -> datetime:
    """Return seconds since 1970 as a UTC datetime."""
    return datetime.fromtimestamp(now, UTC)


def wire_command(command: Command) -> WireCommand:
    """Return the command as its token states it."""
    return WireCommand(
        subject=command.subject,
        event_id=command.event_id,
        fingerprint=command.fingerprint,
        why=command.reason,
        jti=command.jti,
        act=command.act,
    )


def signer_of(settings: Settings) -> Signer | None:
    """Return the signer that the settings name, or None: then nothing can be approved. Raises
    `ConfigurationError` if its key cannot be used.
    """
    if settings.key_vault.key is not None:
        from console.approvals.vault import VaultSigner  # noqa: PLC0415  # an optional extra

        return VaultSigner(settings.key_vault)
    return None if settings.key is None else FileSigner(settings.key)
