"""The control plane's part: keys and tokens. It never shows a private key."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeGuard

import jwt

# PyJWT does its cryptography with this package and brings it along ("pyjwt[crypto]").
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from bridge import system
from bridge.approval.trusted_keys import ALGORITHMS, MAX_FILE_BYTES
from bridge.approval.verification import MAX_LIFETIME_SECONDS, TYPE
from bridge.strictjson import JsonError, load_json

PUBLIC_MEMBERS: Final = ("kty", "crv", "x", "y", "kid", "alg", "use", "iss")
_THUMBPRINT_MEMBERS: Final = {"OKP": ("crv", "kty", "x"), "EC": ("crv", "kty", "x", "y")}
_MAX_TEXT: Final = 200


class KeyFileError(Exception):
    """The file holds no private key that could sign commands; the message names it and says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """A private key with its names."""

    kid: str
    alg: str
    issuer: str
    key: Any = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a token is to say: an approval, or, without an event, a ping."""

    vm_id: str
    subject: str
    """Who gives it."""
    event_id: str | None = None
    fingerprint: str | None = None
    why: str | None = None
    jti: str = field(default_factory=lambda: str(uuid.uuid4()))


def generate(*, issuer: str, kid: str | None, alg: str) -> dict[str, str]:
    """A new private JWK (RFC 7517, 8037); `kid` or its thumbprint. Raises `ValueError`."""
    for name, text in (("issuer", issuer), ("kid", kid)):
        if text is not None and not _is_name(text):
            raise ValueError(f"{name} must be one line of at most {_MAX_TEXT} characters")
    jwk: Mapping[Any, Any]
    if alg == "EdDSA":
        pair = ed25519.Ed25519PrivateKey.generate()
        jwk = jwt.algorithms.OKPAlgorithm.to_jwk(pair, as_dict=True)
    else:
        curve = ec.generate_private_key(ec.SECP256R1())
        jwk = jwt.algorithms.ECAlgorithm.to_jwk(curve, as_dict=True)
    made = {str(name): str(jwk[name]) for name in ("kty", "crv", "x", "y", "d") if name in jwk}
    return {**made, "kid": kid or thumbprint(made), "alg": alg, "use": "sig", "iss": issuer}


def public(jwk: Mapping[str, Any]) -> dict[str, Any]:
    """The public members of a key, and no others."""
    return {name: jwk[name] for name in PUBLIC_MEMBERS if name in jwk}


def thumbprint(jwk: Mapping[str, Any]) -> str:
    """The SHA-256 thumbprint of a key (RFC 7638). Raises `KeyError` on a key of another type."""
    members = {name: jwk[name] for name in _THUMBPRINT_MEMBERS[jwk["kty"]]}
    text = json.dumps(members, sort_keys=True, separators=(",", ":"))
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def write_private(jwk: Mapping[str, str], path: Path) -> None:
    """Write a private key that only its owner may read. Raises `FileExistsError`, or `OSError`."""
    text = json.dumps(dict(jwk), indent=2) + "\n"
    with os.fdopen(system.create_private(path), "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


def read_jwk(path: Path) -> dict[str, Any]:
    """The JSON object in a key file. Raises `KeyFileError`, which shows nothing of it."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        loaded = load_json(content) if len(content) <= MAX_FILE_BYTES else None
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}") from None
    except JsonError:
        loaded = None
    if not isinstance(loaded, dict):
        raise KeyFileError(f"{path} holds no JSON object; `seb keys generate` writes one")
    return loaded


def read_private(path: Path) -> SigningKey:
    """The private key in a file. Raises `KeyFileError`."""
    jwk = read_jwk(path)
    if "keys" in jwk or "d" not in jwk:
        raise KeyFileError(
            f"{path} holds no private key; give the file that `seb keys generate` wrote"
        )
    kid, alg, issuer = jwk.get("kid"), jwk.get("alg"), jwk.get("iss")
    if not (_is_name(kid) and _is_name(alg) and _is_name(issuer)):
        raise KeyFileError(f"{path} needs kid, alg and iss; `seb keys generate` writes all three")
    if ALGORITHMS.get(alg) != (jwk.get("kty"), jwk.get("crv")):
        raise KeyFileError(f"{path} is neither EdDSA on Ed25519 nor ES256 on P-256")
    try:
        key = jwt.PyJWK(jwk, algorithm=alg).key
    except (jwt.PyJWTError, ValueError, KeyError, TypeError):
        raise KeyFileError(f"{path} holds no valid key") from None
    return SigningKey(kid=kid, alg=alg, issuer=issuer, key=key)


def _is_name(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= _MAX_TEXT and value.isprintable()


def sign(order: Order, key: SigningKey, *, now: datetime, lifetime: int) -> bytes:
    """The token, a compact JWS, valid for `lifetime` seconds. Raises `ValueError` if too long."""
    payload = _claims(order, key, now, lifetime)
    return (
        jwt.PyJWS()
        .encode(payload, key.key, algorithm=key.alg, headers={"kid": key.kid, "typ": TYPE})
        .encode()
    )


def signing_input(order: Order, key: SigningKey, *, now: datetime, lifetime: int) -> bytes:
    """What a service signs that alone has the private key; a dot and the signature make it the
    token. Raises as `sign`.
    """
    header = json.dumps({"alg": key.alg, "kid": key.kid, "typ": TYPE}).encode()
    parts = (header, _claims(order, key, now, lifetime))
    return b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)


def _claims(order: Order, key: SigningKey, now: datetime, lifetime: int) -> bytes:
    if not 0 < lifetime <= MAX_LIFETIME_SECONDS:
        raise ValueError(f"a command lives for 1 to {MAX_LIFETIME_SECONDS} seconds")
    issued = int(now.timestamp())
    claims = {
        "iss": key.issuer,
        "sub": order.subject,
        "aud": f"urn:seb:vm:{order.vm_id}",
        "iat": issued,
        "nbf": issued,
        "exp": issued + lifetime,
        "jti": order.jti,
        "act": "ping" if order.event_id is None else "approve",
        "evt": order.event_id,
        "evh": order.fingerprint,
        "rsn": order.why,
    }
    return json.dumps({name: each for name, each in claims.items() if each is not None}).encode()
