"""Signatures after Standard Webhooks 1.0. It never shows any part of a key."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

# Standard Webhooks: a secret is `whsec_` and the base64 of 24 to 64 random bytes.
PREFIX: Final = "whsec_"
PROPER_LENGTH: Final = 24
_MAX_KEYS: Final = 2


class KeyFormatError(ValueError):
    """The text is not a signing key; the message describes a key, and does not show the text."""


@dataclass(frozen=True, slots=True)
class SharedSecret:
    """The bytes of one shared secret."""

    octets: bytes = field(repr=False)

    @property
    def is_short(self) -> bool:
        """Whether the secret is shorter than the standard demands."""
        return len(self.octets) < PROPER_LENGTH


def read_keys(text: str) -> tuple[SharedSecret, ...]:
    """Return one key, or two that are separated by a space during a rotation. Raises
    `KeyFormatError`.
    """
    words = text.split()
    if not 1 <= len(words) <= _MAX_KEYS:
        raise KeyFormatError(
            f"a secret is one key, or two separated by a space; this is {len(words)}"
        )
    return tuple(_read_key(word, f"{n} of {len(words)}") for n, word in enumerate(words, 1))


def _read_key(word: str, which: str) -> SharedSecret:
    marked = word.startswith(PREFIX)
    encoded = word.removeprefix(PREFIX).rstrip("=")
    padding = "=" * (-len(encoded) % 4)
    try:
        octets = base64.b64decode(encoded + padding, validate=True)
    except (binascii.Error, ValueError):  # ValueError: signs that are not ASCII
        octets = b""
    # Without the prefix, a short text is more likely a password that looks like base64: it would
    # give signatures that no receiver can verify.
    if not octets or (not marked and len(octets) < PROPER_LENGTH):
        raise KeyFormatError(
            f"key {which} is not {PREFIX} and base64, as Standard Webhooks has it;"
            f" make one with: echo {PREFIX}$(openssl rand -base64 32)"
        )
    return SharedSecret(octets)


def signature_headers(
    keys: Sequence[SharedSecret], *, message_id: str, timestamp: int, body: bytes
) -> dict[str, str]:
    """Return the three headers of Standard Webhooks; `timestamp` in seconds since 1970."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    digests = (hmac.digest(key.octets, signed, hashlib.sha256) for key in keys)
    signatures = " ".join("v1," + base64.b64encode(digest).decode() for digest in digests)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signatures,
    }
