"""The signatures of commands, by PyJWT; loaded with the first trusted key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jwt


class SignatureInvalidError(Exception):
    """The bytes were not signed with this key."""


def read_key(entry: Mapping[str, Any]) -> Any:
    """The public key of a JWK. Raises `ValueError`."""
    try:
        return jwt.PyJWK(dict(entry), algorithm=entry["alg"]).key
    except (jwt.PyJWTError, ValueError, KeyError, TypeError):
        raise ValueError("not a valid public key") from None


def signed_bytes(token: bytes, key: Any, alg: str) -> bytes:
    """The claims that the key has signed. Raises `SignatureInvalidError`, or `ValueError`."""
    try:
        payload: bytes = jwt.PyJWS(algorithms=[alg]).decode(token, key=key, algorithms=[alg])
    except jwt.InvalidSignatureError:
        raise SignatureInvalidError from None
    except (jwt.PyJWTError, TypeError):
        raise ValueError("not a token") from None
    return payload
