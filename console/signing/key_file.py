"""Signs with the private key in a file. Only this module reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from console.fleet.values.decision import VmCommand
from console.signing.signer import SigningError, moment_of, wire_command
from sinks.shared.errors import ConfigurationError
from wire.command import sign
from wire.keys import MAX_FILE_BYTES, KeyFileError, parse_jwk, parse_private, public


class KeyFileSigner:
    """Signs with the key in a file. The file is read each time, so a new key needs no restart."""

    def __init__(self, file: Path) -> None:
        """Raises `ConfigurationError` if the file holds no private key."""
        self._file = file
        try:
            parse_private(_content(file), name=file)
        except KeyFileError as error:
            raise ConfigurationError(f"SEB_CONSOLE_KEY: {error}") from None

    def sign(self, command: VmCommand, now: float) -> bytes:
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
