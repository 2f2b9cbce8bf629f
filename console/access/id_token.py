"""Checks ID tokens of OpenID Connect before they identify a person.

Authlib and joserfc check the signature and the claims. This module says which signatures and claims
the console accepts, and gives each refusal one reason of a closed list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import (
    BadSignatureError,
    ClaimError,
    ExpiredTokenError,
    InvalidKeyIdError,
    JoseError,
    UnsupportedAlgorithmError,
)
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

from wire.record import JsonObject

ALGORITHMS: Final = frozenset(
    f"{family}{bits}" for family in ("RS", "PS", "ES") for bits in (256, 384, 512)
) | {"EdDSA"}
"""Accepted signatures, all with a public key: not `none`, and not HS256, whose key would
be public.
"""
_SKEW_SECONDS: Final = 120
_MAX_CHARACTERS: Final = 100_000
_WRONG_CLAIM: Final = {
    "iss": "wrong_issuer",
    "aud": "wrong_audience",
    "azp": "wrong_authorized_party",
    "nonce": "wrong_nonce",
    "exp": "no_time_in_exp",
    "iat": "from_the_future",
    "nbf": "from_the_future",
    "sub": "no_subject",
}
"""The reason for each wrong claim."""

_REGISTRY: Final = JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
# Providers put a chain of certificates into the header, which does not fit into 512 bytes.
_REGISTRY.max_header_length = 16_384


class IdTokenError(Exception):
    """An ID token is not accepted. The message is one of a few reasons, without the token's
    content.
    """


class UnknownKeyError(IdTokenError):
    """No published key of the provider fits; the provider may have a newer one."""


def verified(
    text: object, *, keys: KeySet, issuer: str, client_id: str, nonce: str, now: float
) -> JsonObject:
    """Return the claims of an ID token of that issuer, for that client and that login. `keys` are
    the provider's; `now` in seconds since 1970. Raises `IdTokenError`.
    """
    if not isinstance(text, str) or len(text) > _MAX_CHARACTERS:
        raise IdTokenError("no_ID_token")
    # Each claim is essential: without that, Authlib accepts a token for another audience.
    expected = {"iss": issuer, "aud": client_id, "nonce": nonce}
    options: Any = {name: {"essential": True, "value": each} for name, each in expected.items()}
    try:
        token = jwt.decode(text, keys, registry=_REGISTRY)
        params = {"nonce": nonce, "client_id": client_id}
        claims = CodeIDToken(token.claims, token.header, options | {"sub": {}}, params)
        claims.validate(now=int(now), leeway=_SKEW_SECONDS)
    except (JoseError, ValueError, TypeError) as error:
        raise _refusal(error) from None
    return dict(claims)


def _refusal(error: Exception) -> IdTokenError:
    # A provider may make a new key with an old name: then its keys have to be read again too.
    if isinstance(error, BadSignatureError):
        return UnknownKeyError("bad_signature")
    if isinstance(error, InvalidKeyIdError):
        return UnknownKeyError("unknown_key")
    if isinstance(error, UnsupportedAlgorithmError):
        return IdTokenError("forbidden_algorithm")
    if isinstance(error, ExpiredTokenError):
        return IdTokenError("expired")
    if isinstance(error, ClaimError):
        return IdTokenError(_WRONG_CLAIM.get(error.claim, "wrong_claim"))
    return IdTokenError("not_a_signed_token")


def groups_in(claims: Mapping[str, Any], claim: str) -> tuple[str, ...] | None:
    """Return the groups that a claim names; None if the claim is missing."""
    found = claims.get(claim)
    if isinstance(found, str):
        return (found,)
    if not isinstance(found, list):
        return None
    return tuple(each for each in found if isinstance(each, str))


def has_too_many_groups(claims: Mapping[str, Any], claim: str) -> bool:
    """Check whether Entra ID has left the groups out because they are too many for a token."""
    elsewhere = claims.get("_claim_names")
    return (isinstance(elsewhere, dict) and claim in elsewhere) or "hasgroups" in claims
