"""ID tokens of OpenID Connect: what must hold before one says who somebody is.

The signature is PyJWT's work; claims are checked here, because it takes neither the time as an
argument nor is strict about types. Values in, values out.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jwt

ALGORITHMS: Final = frozenset(
    f"{family}{bits}" for family in ("RS", "PS", "ES") for bits in (256, 384, 512)
) | {"EdDSA"}
"""Signatures with a public key. Without `none`, and without HS256: its key would be public."""
# The signature is verified always; the claims are, in this module.
_OPTIONS: Final[Any] = {"verify_signature": True} | dict.fromkeys(
    ("verify_exp", "verify_nbf", "verify_iat", "verify_aud", "verify_iss", "verify_sub"), False
)
_SKEW_SECONDS: Final = 120
_LONGEST: Final = 100_000
Json = dict[str, Any]


class IdTokenError(Exception):
    """An ID token is not to be believed; the message is one of few words, without its content."""


class UnknownKeyError(IdTokenError):
    """No key that the provider publishes fits; it may have a new one."""


def verified(
    text: object,
    *,
    keys: Sequence[Mapping[str, Any]],
    issuer: str,
    client_id: str,
    nonce: str,
    now: float,
) -> Json:
    """The claims of an ID token of that issuer, for that client and that login.

    `keys` are the provider's JWKs; `now` in seconds since 1970. Raises `IdTokenError`.
    """
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise IdTokenError("no ID token")
    claims = _signed(text, keys)
    if claims.get("iss") != issuer:
        raise IdTokenError("wrong issuer")
    _check_audience(claims, client_id)
    _check_times(claims, now)
    told = claims.get("nonce")
    if not isinstance(told, str) or not hmac.compare_digest(told.encode(), nonce.encode()):
        raise IdTokenError("wrong nonce")
    if not isinstance(claims.get("sub"), str) or not claims["sub"]:
        raise IdTokenError("no subject")
    return claims


def groups_in(claims: Mapping[str, Any], claim: str) -> tuple[str, ...] | None:
    """The groups that a claim names; None if it does not stand there."""
    found = claims.get(claim)
    if isinstance(found, str):
        return (found,)
    if not isinstance(found, list):
        return None
    return tuple(each for each in found if isinstance(each, str))


def has_too_many_groups(claims: Mapping[str, Any], claim: str) -> bool:
    """Whether Entra ID has left the groups out because they are too many for a token."""
    elsewhere = claims.get("_claim_names")
    return (isinstance(elsewhere, dict) and claim in elsewhere) or "hasgroups" in claims


def _signed(text: str, keys: Sequence[Mapping[str, Any]]) -> Json:
    try:
        header = jwt.get_unverified_header(text)
    except jwt.PyJWTError:
        raise IdTokenError("not a signed token") from None
    algorithm = header.get("alg")
    if algorithm not in ALGORITHMS:
        raise IdTokenError("forbidden algorithm")
    fitting = [key for key in keys if _fits(key, header)]
    if not fitting:
        raise UnknownKeyError("unknown key")
    for key in fitting:
        try:
            made = jwt.PyJWK(dict(key), algorithm)
            claims: Json = jwt.decode(text, key=made, algorithms=[algorithm], options=_OPTIONS)
        except (jwt.PyJWTError, TypeError, ValueError):
            continue
        return claims
    # A provider that makes a new key under an old name has to be asked again too.
    raise UnknownKeyError("bad signature")


def _fits(key: Mapping[str, Any], header: Mapping[str, Any]) -> bool:
    """Whether a published key may have made the signature."""
    if key.get("kty") not in ("RSA", "EC", "OKP") or key.get("use", "sig") != "sig":
        return False
    if key.get("alg", header["alg"]) != header["alg"]:
        return False
    return "kid" not in header or key.get("kid") in (None, header["kid"])


def _check_audience(claims: Json, client_id: str) -> None:
    audience = claims.get("aud")
    several = audience if isinstance(audience, list) else [audience]
    if client_id not in several:
        raise IdTokenError("wrong audience")
    party = claims.get("azp")
    if (party is None and len(several) > 1) or party not in (None, client_id):
        raise IdTokenError("wrong authorized party")


def _check_times(claims: Json, now: float) -> None:
    times: dict[str, float] = {}
    for name in ("exp", "iat", "nbf"):
        value = claims.get(name)
        if name == "nbf" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise IdTokenError(f"no time in {name}")
        times[name] = value
    if now >= times["exp"] + _SKEW_SECONDS:
        raise IdTokenError("expired")
    if max(times["iat"], times.get("nbf", 0)) > now + _SKEW_SECONDS:
        raise IdTokenError("from the future")
