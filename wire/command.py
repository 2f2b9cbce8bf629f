"""The command: a compact JWS that asks one VM for one thing.

It is signed and read here, and the shape of its claims is checked. Whether it is carried out is for
the bridge to decide.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from wire.keys import SigningKey
from wire.line import is_line
from wire.strictjson import parse_json

MAX_TOKEN_BYTES: Final = 8192
"""The largest signed command. A channel cuts a longer one to one byte more than this, which still
shows that it is too long.
"""
MAX_LIFETIME_SECONDS: Final = 900
TYPE: Final = "seb-command+jwt"
ABOUT_AN_EVENT: Final = ("approve", "prepare")
ACTS: Final = (*ABOUT_AN_EVENT, "ping")
HEADERS: Final = frozenset({"alg", "kid", "typ"})
"""The fields that a header may have: no `crit`, no `b64`, and no key."""
TEXT_CLAIMS: Final = ("iss", "sub", "jti", "act")
TIME_CLAIMS: Final = ("iat", "nbf", "exp")
_MAX_TEXT: Final = 512
_MAX_TIME: Final = 1 << 40
"""Seconds since 1970 that every clock and every reader of JSON can hold."""
_PARTS: Final = 3  # header, claims, signature
_BASE64URL: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_MAX_BRACKETS: Final = 64
"""The most opening brackets in a command. A command is not nested, and how deep Python can read
differs from version to version.
"""


class SignatureInvalidError(Exception):
    """The bytes were not signed with this key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command to a VM: an approval, a preparation, or a ping, which is about no event."""

    subject: str
    """The person or program that asks."""
    act: str
    """One of `ACTS`."""
    event_id: str | None = None
    fingerprint: str | None = None
    person_reason: str | None = None
    """Why, in the words of who asks; the claim `rsn`."""
    jti: str = field(default_factory=lambda: str(uuid.uuid4()))


def sign(command: Command, key: SigningKey, *, vm_id: str, now: datetime, lifetime: int) -> bytes:
    """Return the token: a compact JWS, valid for `lifetime` seconds. Raises `ValueError` if it is
    too long.
    """
    import jwt  # noqa: PLC0415  # as in `signed_bytes`

    payload = _claims(command, key, vm_id, now, lifetime)
    return (
        jwt.PyJWS()
        .encode(payload, key.key, algorithm=key.alg, headers={"kid": key.kid, "typ": TYPE})
        .encode()
    )


def signing_input(
    command: Command, key: SigningKey, *, vm_id: str, now: datetime, lifetime: int
) -> bytes:
    """Return the bytes to sign, for a service that keeps the private key to itself; a dot and the
    signature are appended to get the token. Raises `ValueError` as `sign` does.
    """
    header = json.dumps({"alg": key.alg, "kid": key.kid, "typ": TYPE}).encode()
    parts = (header, _claims(command, key, vm_id, now, lifetime))
    return b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)


def _claims(command: Command, key: SigningKey, vm_id: str, now: datetime, lifetime: int) -> bytes:
    if not 0 < lifetime <= MAX_LIFETIME_SECONDS:
        raise ValueError(f"a command lives for 1 to {MAX_LIFETIME_SECONDS} seconds")
    issued = int(now.timestamp())
    claims = {
        "iss": key.issuer,
        "sub": command.subject,
        "aud": f"urn:seb:vm:{vm_id}",
        "iat": issued,
        "nbf": issued,
        "exp": issued + lifetime,
        "jti": command.jti,
        "act": command.act,
        "evt": command.event_id,
        "evh": command.fingerprint,
        "rsn": command.person_reason,
    }
    return json.dumps({name: each for name, each in claims.items() if each is not None}).encode()


def header_of(token: bytes) -> bytes:
    """Return the header's bytes. Raises `ValueError` if they are not in strict base64: a lenient
    reader would accept one token in many spellings.
    """
    parts = token.split(b".")
    if len(parts) != _PARTS or not all(_is_base64url(part) for part in parts):
        raise ValueError("not three parts of base64url")
    return base64.urlsafe_b64decode(parts[0] + b"==")


def read_object(text: bytes) -> dict[str, Any]:
    """Read a JSON object: no key twice, no NaN, no nesting. Raises `ValueError`."""
    if text.count(b"[") + text.count(b"{") > _MAX_BRACKETS:
        raise ValueError("nested")
    loaded = parse_json(text.decode())
    if not isinstance(loaded, dict):
        raise ValueError("not an object")  # noqa: TRY004  # to the caller it is one error
    return loaded


def signed_bytes(token: bytes, key: Any, alg: str) -> bytes:
    """Return the claims that were signed with the key. Raises `SignatureInvalidError` or
    `ValueError`.
    """
    import jwt  # noqa: PLC0415  # slow to import, and most bridges take no commands

    try:
        payload: bytes = jwt.PyJWS(algorithms=[alg]).decode(token, key=key, algorithms=[alg])
    except jwt.InvalidSignatureError:
        raise SignatureInvalidError from None
    except (jwt.PyJWTError, TypeError):
        raise ValueError("not a token") from None
    return payload


def is_well_typed(claims: Mapping[str, Any]) -> bool:
    """Check whether each claim is of its type; PyJWT would accept text for a time."""
    if not all(is_text(claims.get(name)) for name in TEXT_CLAIMS):
        return False
    if not all(is_moment(claims.get(name)) for name in TIME_CLAIMS):
        return False
    about = [claims.get("evt"), claims.get("evh")]
    if claims["act"] in ABOUT_AN_EVENT:
        right = all(is_text(each) for each in about)
    elif claims["act"] == "ping":
        right = about == [None, None]
    else:
        right = all(each is None or is_text(each) for each in about)
    return right and (claims.get("rsn") is None or is_text(claims["rsn"]))


def is_text(value: object) -> bool:
    """Check whether a claim is text that may be shown in a receipt and in a log."""
    return is_line(value, max_length=_MAX_TEXT)


def is_moment(value: object) -> bool:
    """Check whether a claim is a time in whole seconds. A bool is refused, although it is an int in
    Python.
    """
    return type(value) is int and 0 <= value < _MAX_TIME


def _is_base64url(part: bytes) -> bool:
    if not part or len(part) % 4 == 1 or set(part) - _BASE64URL:
        return False
    again = base64.urlsafe_b64encode(base64.urlsafe_b64decode(part + b"=="))
    return again.rstrip(b"=") == part
