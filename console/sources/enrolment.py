"""The secrets of a VM: derived from the console's key and the vmId, so none has to be stored."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from pathlib import Path
from typing import Final

from console.errors import ConfigurationError

_LEAST_BYTES: Final = 32
_VARIABLE: Final = "SEB_CONSOLE_ENROLL_KEY_FILE"


def read_key(file: Path) -> bytes:
    """The key that VM secrets are derived from. Raises `ConfigurationError`."""
    try:
        text = file.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise ConfigurationError(f"{_VARIABLE}: {file} cannot be read ({why})") from None
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) < _LEAST_BYTES:
        raise ConfigurationError(
            f"{_VARIABLE}: {file} must hold at least {_LEAST_BYTES} random bytes in base64; "
            "make one with: openssl rand -base64 32"
        )
    return key


def webhook_secret(key: bytes, vm_id: str) -> bytes:
    """The bytes that this VM signs its webhooks with."""
    return _derived(key, "webhook", vm_id)


def pull_token(key: bytes, vm_id: str) -> str:
    """The bearer token that opens this VM's own queue of commands."""
    return base64.urlsafe_b64encode(_derived(key, "pull", vm_id)).decode().rstrip("=")


def secret_text(secret: bytes) -> str:
    """A webhook secret as Standard Webhooks writes it."""
    return "whsec_" + base64.b64encode(secret).decode()


def _derived(key: bytes, purpose: str, vm_id: str) -> bytes:
    # The generation stands in the text so that a later key schedule can revoke one VM alone.
    return hmac.digest(key, f"seb-console/1/{purpose}/{vm_id}".encode(), hashlib.sha256)
