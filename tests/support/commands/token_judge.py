"""A judge of commands beside the bridge's: the one reason why a token is refused, or none.

Written from the design's list alone, over `cryptography` and without PyJWT; it shares no code with
the bridge.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from support.commands.control_plane import Signer, b64, unb64

_TEXTS: Final = ("iss", "sub", "jti", "act")
_TIMES: Final = ("iat", "nbf", "exp")
_WORD: Final = re.compile(rb"[A-Za-z0-9_-]+", re.ASCII)
Claims = Mapping[str, Any]


class BadTokenError(Exception):
    """The token is refused; `reason` is the design's word."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a token is judged by."""

    signers: tuple[Signer, ...]
    vm_id: str
    events: Mapping[str, Mapping[str, Any]]
    """The latest record's `data` of every event that is pending, by its id without case."""
    used: frozenset[tuple[str, str]] = frozenset()
    """Issuer and jti of the commands that were accepted."""


def reason_against(token: bytes, facts: Facts, *, now: float, retained: bool = False) -> str | None:
    """Why a token is refused at that moment (seconds since 1970); None where it is good."""
    try:
        _judge(token, facts, now=now, retained=retained)
    except BadTokenError as refused:
        return refused.reason
    return None


def _judge(token: bytes, facts: Facts, *, now: float, retained: bool) -> None:
    _require(len(token) <= 8192, "too_large")
    _require(not retained, "retained")
    signer = _signer(token, facts)
    claims = _claims(token)
    _require(claims["iss"] == signer.issuer, "not_allowed")
    _require(claims.get("aud") == f"urn:seb:vm:{facts.vm_id}", "wrong_audience")
    _require(now < claims["exp"], "expired")
    first = max(claims["iat"], claims["nbf"])
    _require(first <= now + 5 and first < claims["exp"], "not_yet_valid")
    times = [claims[name] for name in _TIMES]
    _require(max(times) - min(times) <= 900, "lifetime_too_long")
    _require(claims["act"] in ("approve", "ping"), "not_allowed")
    known = facts.events.get((claims.get("evt") or "").casefold())
    _require(known is None or known["affectsThisVm"], "not_allowed")
    _require((signer.issuer, claims["jti"]) not in facts.used, "replayed")
    if claims["act"] == "approve":
        if known is None:
            raise BadTokenError("unknown_event")
        _require(known["event"]["eventStatus"] == "Scheduled", "already_started")
        _require(known["fingerprint"] == claims["evh"], "event_changed")


def _signer(token: bytes, facts: Facts) -> Signer:
    """Whose key has signed the token."""
    parts = token.split(b".")
    _require(len(parts) == 3 and all(map(_is_canonical, parts)), "malformed")
    header = _object(unb64(parts[0].decode()))
    _require(header.keys() == {"alg", "kid", "typ"}, "malformed")
    _require(all(isinstance(each, str) for each in header.values()), "malformed")
    _require(header["typ"] == "seb-command+jwt", "malformed")
    _require(header["alg"] in ("EdDSA", "ES256"), "malformed")
    for signer in facts.signers:
        if (signer.kid, signer.alg) == (header["kid"], header["alg"]):
            _verify(signer, b".".join(parts[:2]), unb64(parts[2].decode()))
            return signer
    raise BadTokenError("unknown_key")


def _verify(signer: Signer, signed: bytes, signature: bytes) -> None:
    public = signer.key.public_key()
    _require(len(signature) == 64, "bad_signature")
    try:
        if isinstance(public, EllipticCurvePublicKey):
            numbers = (int.from_bytes(signature[:32]), int.from_bytes(signature[32:]))
            public.verify(encode_dss_signature(*numbers), signed, ECDSA(SHA256()))
        else:
            public.verify(signature, signed)
    except InvalidSignature:
        raise BadTokenError("bad_signature") from None


def _claims(token: bytes) -> Claims:
    """The claims, each of its type."""
    claims = _object(unb64(token.split(b".")[1].decode()))
    _require(all(_is_text(claims.get(name)) for name in _TEXTS), "malformed")
    _require(all(_is_time(claims.get(name)) for name in _TIMES), "malformed")
    about = [claims.get("evt"), claims.get("evh")]
    match claims["act"]:
        case "approve":
            fits = all(map(_is_text, about))
        case "ping":
            fits = about == [None, None]
        case _:
            fits = all(map(_is_text_or_none, about))
    _require(fits and _is_text_or_none(claims.get("rsn")), "malformed")
    return claims


def _object(text: bytes) -> dict[str, Any]:
    try:
        read = json.loads(text.decode("utf-8"), object_pairs_hook=_once, parse_constant=_none)
    except (ValueError, RecursionError):
        raise BadTokenError("malformed") from None
    if not isinstance(read, dict):
        raise BadTokenError("malformed")
    return read


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("twice")
    return dict(pairs)


def _none(name: str) -> None:
    raise ValueError(name)


def _is_canonical(part: bytes) -> bool:
    """Whether these are the signs that base64url has for some bytes, and no others."""
    if not _WORD.fullmatch(part) or len(part) % 4 == 1:
        return False
    return b64(unb64(part.decode())).encode() == part


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= 512 and value.isprintable()


def _is_text_or_none(value: object) -> bool:
    return value is None or _is_text(value)


def _is_time(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**40


def _require(holds: bool, reason: str) -> None:
    if not holds:
        raise BadTokenError(reason)
