"""The secrets of a VM: derived from the console's key, a generation and the vmId. None is
stored.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sinks.shared.errors import ConfigurationError

_MIN_BYTES: Final = 32
_VARIABLE: Final = "SEB_CONSOLE_ENROLL_KEY_FILE"
KEY_IS_MISSING: Final = f"{_VARIABLE}: this must be given; make a key with: openssl rand -base64 32"
EVERY_VM: Final = "*"
"""Stands for all VMs in the table of generations; it is not a vmId."""
_MAX_ID: Final = 128
"""In characters, as in a record; Azure's vmIds have 36."""
_NEVER_IN_IDS: Final = frozenset(" /+#")


def read_key(file: Path) -> bytes:
    """Read the key from which VM secrets are derived. Raises `ConfigurationError`."""
    try:
        text = file.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigurationError(f"{_VARIABLE}: {file} cannot be read ({reason})") from None
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) < _MIN_BYTES:
        raise ConfigurationError(
            f"{_VARIABLE}: {file} must hold at least {_MIN_BYTES} random bytes in base64; "
            "make one with: openssl rand -base64 32"
        )
    return key


class Enrolments:
    """The current generation of each VM's secrets.

    A VM that was enrolled only once has the first generation, or the least one of all VMs if that
    is higher.
    """

    def __init__(self, key: bytes | None) -> None:
        self._key = key
        self._generations: dict[str, int] = {}
        self._least = 1

    @property
    def has_key(self) -> bool:
        """Whether VMs can be recognised by secrets."""
        return self._key is not None

    def put(self, generations: Mapping[str, int]) -> set[str]:
        """Note generations as committed, by vmId; that of `EVERY_VM` is the least one of all. May
        be called from any thread. Return the VMs whose secrets are no longer valid.
        """
        before = {vm_id: self._generation(vm_id) for vm_id in generations}
        merged = {**self._generations, **generations}
        self._least = merged.pop(EVERY_VM, self._least)
        self._generations = merged
        return {vm_id for vm_id, known in before.items() if self._generation(vm_id) != known}

    def webhook_secret(self, vm_id: str) -> bytes:
        """Return the secret with which this VM signs its webhooks. Needs a key."""
        return webhook_secret(self._known_key(), vm_id, self._generation(vm_id))

    def opens(self, vm_id: str, token: str) -> bool:
        """Check whether a bearer token is this VM's own. The check of a wrong token takes the same
        time.
        """
        if self._key is None:
            return False
        own = pull_token(self._key, vm_id, self._generation(vm_id))
        return hmac.compare_digest(own.encode(), token.encode("utf-8", "replace"))

    def _generation(self, vm_id: str) -> int:
        return max(self._generations.get(vm_id, 1), self._least)

    def _known_key(self) -> bytes:
        if self._key is None:
            raise ConfigurationError(KEY_IS_MISSING)
        return self._key


def webhook_secret(key: bytes, vm_id: str, generation: int = 1) -> bytes:
    """Return the bytes with which this VM signs its webhooks."""
    return _derive(key, generation, "webhook", vm_id)


def pull_token(key: bytes, vm_id: str, generation: int = 1) -> str:
    """Return the bearer token for this VM's own queue of commands."""
    derived = _derive(key, generation, "pull", vm_id)
    return base64.urlsafe_b64encode(derived).decode().rstrip("=")


def secret_text(secret: bytes) -> str:
    """Return a webhook secret in the form of Standard Webhooks."""
    return "whsec_" + base64.b64encode(secret).decode()


def is_vm_id(text: str) -> bool:
    """Check whether a text can be a VM's id in a topic and in a URL."""
    fits = 0 < len(text) <= _MAX_ID and text.isprintable() and text != EVERY_VM
    return fits and not set(text) & _NEVER_IN_IDS


def _derive(key: bytes, generation: int, purpose: str, vm_id: str) -> bytes:
    text = f"seb-console/{generation}/{purpose}/{vm_id}"
    return hmac.digest(key, text.encode(), hashlib.sha256)
