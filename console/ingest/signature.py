"""Verifies signatures by Standard Webhooks 1.0; never shows a key or a valid signature."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

TOLERANCE_SECONDS: Final = 300
"""How many seconds the sender's clock may differ; Standard Webhooks recommends five minutes."""


class UnsignedError(ValueError):
    """The request is not signed by the VM that it names."""


def require_signature(
    headers: Mapping[str, str], body: bytes, *, secret: bytes, now: float
) -> None:
    """Raise `UnsignedError` unless one of the signatures is the secret's and the time is right."""
    message_id = headers.get("webhook-id", "")
    timestamp = headers.get("webhook-timestamp", "")
    given = headers.get("webhook-signature", "")
    if not (message_id and timestamp and given):
        raise UnsignedError("webhook-id, webhook-timestamp or webhook-signature is missing")
    if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) <= 12):  # noqa: PLR2004
        raise UnsignedError("webhook-timestamp is not a number of seconds")
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.digest(secret, signed, hashlib.sha256)
    expected = b"v1," + base64.b64encode(digest)
    found = [hmac.compare_digest(expected, each.encode()) for each in given.split(" ")[:10]]
    if not any(found):
        raise UnsignedError(
            "the signature is not that of this VM's secret; see `seb console enroll`"
        )
    late = now - int(timestamp)
    if abs(late) > TOLERANCE_SECONDS:
        raise UnsignedError(
            f"webhook-timestamp is {late:.0f} s behind this console's clock; the limit is "
            f"{TOLERANCE_SECONDS} s: set the clock of the VM"
        )
