"""What a compact JWS is made of, read as strictly as a verifier must; it verifies nothing."""

from __future__ import annotations

import base64
from typing import Any, Final

from bridge.strictjson import parse_json

_PARTS: Final = 3  # header, claims, signature
_BASE64URL: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_MAX_BRACKETS: Final = 64
"""Nothing in a command is nested; how deep Python reads differs from version to version."""


def header_of(token: bytes) -> bytes:
    """The header, or `ValueError`; lenient base64 would allow a token in many spellings."""
    parts = token.split(b".")
    if len(parts) != _PARTS or not all(_is_base64url(part) for part in parts):
        raise ValueError("not three parts of base64url")
    return base64.urlsafe_b64decode(parts[0] + b"==")


def read_object(text: bytes) -> dict[str, Any]:
    """A JSON object: no key twice, no NaN, no nesting. Raises `ValueError`."""
    if text.count(b"[") + text.count(b"{") > _MAX_BRACKETS:
        raise ValueError("nested")
    loaded = parse_json(text.decode())
    if not isinstance(loaded, dict):
        raise ValueError("not an object")  # noqa: TRY004  # to the caller it is one error
    return loaded


def _is_base64url(part: bytes) -> bool:
    if not part or len(part) % 4 == 1 or set(part) - _BASE64URL:
        return False
    again = base64.urlsafe_b64encode(base64.urlsafe_b64decode(part + b"=="))
    return again.rstrip(b"=") == part
