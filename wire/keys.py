"""Keys that sign commands, as JSON Web Keys: created, read, and shown without their
private part.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from wire.line import is_line
from wire.strictjson import JsonError, load_json

PUBLIC_MEMBERS: Final = ("kty", "crv", "x", "y", "kid", "alg", "use", "iss")
_THUMBPRINT_MEMBERS: Final = {"OKP": ("crv", "kty", "x"), "EC": ("crv", "kty", "x", "y")}
_MAX_TEXT: Final = 200


ALGORITHMS: Final = {"EdDSA": ("OKP", "Ed25519"), "ES256": ("EC", "P-256")}
"""The signature algorithms, and the key type and curve of each."""
MAX_FILE_BYTES: Final = 1 << 20


class KeyFileError(Exception):
    """The file has no private key that could sign commands; the message names the file and the
    reason.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """A private key with its issuer, id and algorithm."""

    kid: str
    alg: str
    issuer: str
    key: Any = field(repr=False)


def generate(*, issuer: str, kid: str | None, alg: str) -> dict[str, str]:
    """Return a new private JWK (RFC 7517, 8037); its id is `kid`, or else its thumbprint. Raises
    `ValueError`.
    """
    for name, text in (("issuer", issuer), ("kid", kid)):
        if text is not None and not _is_name(text):
            raise ValueError(f"{name} must be one line of at most {_MAX_TEXT} characters")
    import jwt  # noqa: PLC0415  # slow to import, and most bridges have no keys

    # PyJWT does its cryptography with this package and brings it along ("pyjwt[crypto]").
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519  # noqa: PLC0415  # as above

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
    """Return the public members of a key, and no others."""
    return {name: jwk[name] for name in PUBLIC_MEMBERS if name in jwk}


def thumbprint(jwk: Mapping[str, Any]) -> str:
    """Return the SHA-256 thumbprint of a key (RFC 7638). Raises `KeyError` on a key of another
    type.
    """
    members = {name: jwk[name] for name in _THUMBPRINT_MEMBERS[jwk["kty"]]}
    text = json.dumps(members, sort_keys=True, separators=(",", ":"))
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def parse_jwk(content: bytes, *, name: object) -> dict[str, Any]:
    """Return the JSON object of a key file called `name`. Raises `KeyFileError`, which never shows
    the content.
    """
    try:
        loaded = load_json(content) if len(content) <= MAX_FILE_BYTES else None
    except JsonError:
        loaded = None
    if not isinstance(loaded, dict):
        raise KeyFileError(f"{name} holds no JSON object; `seb keys generate` writes one")
    return loaded


def parse_private(content: bytes, *, name: object) -> SigningKey:
    """Return the private key of a key file called `name`. Raises `KeyFileError`."""
    jwk = parse_jwk(content, name=name)
    if "keys" in jwk or "d" not in jwk:
        raise KeyFileError(
            f"{name} holds no private key; give the file that `seb keys generate` wrote"
        )
    kid = jwk.get("kid")
    alg = jwk.get("alg")
    issuer = jwk.get("iss")
    if not (_is_name(kid) and _is_name(alg) and _is_name(issuer)):
        raise KeyFileError(f"{name} needs kid, alg and iss; `seb keys generate` writes all three")
    if ALGORITHMS.get(alg) != (jwk.get("kty"), jwk.get("crv")):
        raise KeyFileError(f"{name} is neither EdDSA on Ed25519 nor ES256 on P-256")
    import jwt  # noqa: PLC0415  # as in `generate`

    try:
        key = jwt.PyJWK(jwk, algorithm=alg).key
    except (jwt.PyJWTError, ValueError, KeyError, TypeError):
        raise KeyFileError(f"{name} holds no valid key") from None
    return SigningKey(kid=kid, alg=alg, issuer=issuer, key=key)


def public_key(jwk: Mapping[str, Any]) -> Any:
    """Return the public key of a JWK, for `command.signed_bytes`. Raises `ValueError`."""
    import jwt  # noqa: PLC0415  # as in `generate`

    try:
        return jwt.PyJWK(dict(jwk), algorithm=jwk["alg"]).key
    except (jwt.PyJWTError, ValueError, KeyError, TypeError):
        raise ValueError("not a valid public key") from None


def _is_name(value: object) -> TypeGuard[str]:
    return is_line(value, max_length=_MAX_TEXT)
