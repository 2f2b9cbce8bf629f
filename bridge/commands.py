"""Whether a signed command may be carried out: read it from top to bottom; closed on failure.

It approves nothing itself, and fetches nothing because a token says so.
"""

from __future__ import annotations

import base64
import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import jwt

from bridge.known import KnownEvent
from bridge.trust import ALGORITHMS, Trust, TrustedKey

MAX_TOKEN_BYTES: Final = 8192
MAX_LIFETIME_SECONDS: Final = 900
MAX_COMMANDS: Final = 30
RATE_SECONDS: Final = 60.0
SKEW_SECONDS: Final = 5
"""How far ahead of this VM's clock a control plane's may be."""
TYPE: Final = "seb-command+jwt"
ACTS: Final = ("approve", "ping")
_HEADERS: Final = {"alg", "kid", "typ"}
_TEXTS: Final = ("iss", "sub", "jti", "act")
_TIMES: Final = ("iat", "nbf", "exp")
_MAX_TEXT: Final = 512


class RefusedError(Exception):
    """The command is not carried out; `reason` is the one word that says why.

    `command` is what was asked, once the signature is known to be good: only then is there
    somebody to answer. Before that, refusals are counted.
    """

    def __init__(self, reason: str, command: Command | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.command = command


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What a good signature asks for. Times are seconds since 1970."""

    issuer: str
    subject: str
    jti: str
    act: str
    event_id: str | None
    fingerprint: str | None
    why: str | None
    expires: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a command is checked against."""

    vm_id: str
    now: datetime
    known: Mapping[str, KnownEvent]
    used: Callable[[Command], bool]
    """Whether this jti of this issuer has been used."""


class Rate:
    """At most so many a minute."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._times: deque[float] = deque()

    def allows(self, now: float) -> bool:
        """Whether one more is within the limit; if so, it counts."""
        while self._times and not now - RATE_SECONDS < self._times[0] <= now:
            self._times.popleft()
        if len(self._times) >= self._limit:
            return False
        self._times.append(now)
        return True


def verify(
    token: bytes, *, retained: bool, trust: Trust, situation: Situation, rate: Rate
) -> Command:
    """The command in a token, if everything about it is right. Raises `RefusedError`."""
    if len(token) > MAX_TOKEN_BYTES:
        raise RefusedError("too_large")
    if retained:
        raise RefusedError("retained")
    key = _key(_header(token), trust)
    claims = _claims(_signed(token, key))
    command = _command(claims)
    if claims["iss"] != key.issuer:
        raise RefusedError("not_allowed", command)
    if claims.get("aud") != f"urn:seb:vm:{situation.vm_id}":
        raise RefusedError("wrong_audience", command)
    _check_times(claims, situation.now, command)
    if command.act not in ACTS:
        raise RefusedError("not_allowed", command)
    known = situation.known.get((command.event_id or "").casefold())
    if known is not None and known.pending and not known.affects_this_vm:
        # Approving it would release machines that are none of this VM's business.
        raise RefusedError("not_allowed", command)
    if situation.used(command):
        raise RefusedError("replayed", command)
    if command.act == "approve":
        _check_event(known, command)
    if not rate.allows(situation.now.timestamp()):
        raise RefusedError("rate_limited", command)
    return command


def _header(token: bytes) -> Mapping[str, Any]:
    """Shape and header: three parts, and of headers exactly the three that a command has."""
    parts = token.split(b".")
    if len(parts) != 3 or not all(parts):  # noqa: PLR2004  # header, claims, signature
        raise RefusedError("malformed")
    header = _json(parts[0])
    if set(header) != _HEADERS or not all(isinstance(each, str) for each in header.values()):
        raise RefusedError("malformed")
    if header["typ"] != TYPE or header["alg"] not in ALGORITHMS:
        raise RefusedError("malformed")
    return header


def _key(header: Mapping[str, Any], trust: Trust) -> TrustedKey:
    key = trust.find(header["kid"])
    if key is None or key.alg != header["alg"]:
        raise RefusedError("unknown_key")
    return key


def _signed(token: bytes, key: TrustedKey) -> bytes:
    """The bytes that the key has signed: PyJWT does the cryptography."""
    try:
        payload: bytes = jwt.PyJWS(algorithms=[key.alg]).decode(
            token, key=key.key, algorithms=[key.alg]
        )
    except jwt.InvalidSignatureError:
        raise RefusedError("bad_signature") from None
    except (jwt.PyJWTError, ValueError, TypeError):
        raise RefusedError("malformed") from None
    return payload


def _claims(payload: bytes) -> dict[str, Any]:
    """Duplicate keys and types: PyJWT takes the last of two keys and a text for a time."""
    claims = _object(payload)
    texts = [claims.get(name) for name in _TEXTS]
    times = [claims.get(name) for name in _TIMES]
    if not all(_is_text(each) for each in texts):
        raise RefusedError("malformed")
    if not all(type(each) is int and 0 <= each < 1 << 40 for each in times):
        raise RefusedError("malformed")
    about = [claims.get("evt"), claims.get("evh")]
    if claims["act"] == "approve":
        right = all(_is_text(each) for each in about)
    elif claims["act"] == "ping":
        right = about == [None, None]
    else:
        right = all(each is None or _is_text(each) for each in about)
    if not right or not (claims.get("rsn") is None or _is_text(claims["rsn"])):
        raise RefusedError("malformed")
    return claims


def _is_text(value: object) -> bool:
    """Whether a claim is text that may stand in a receipt and in a log."""
    return isinstance(value, str) and 0 < len(value) <= _MAX_TEXT and value.isprintable()


def _command(claims: Mapping[str, Any]) -> Command:
    return Command(
        issuer=claims["iss"],
        subject=claims["sub"],
        jti=claims["jti"],
        act=claims["act"],
        event_id=claims.get("evt"),
        fingerprint=claims.get("evh"),
        why=claims.get("rsn"),
        expires=claims["exp"],
    )


def _check_times(claims: Mapping[str, Any], now: datetime, command: Command) -> None:
    seconds = now.timestamp()
    times = [claims[name] for name in _TIMES]
    if seconds >= claims["exp"]:
        raise RefusedError("expired", command)
    if max(claims["nbf"], claims["iat"]) > seconds + SKEW_SECONDS:
        raise RefusedError("not_yet_valid", command)
    if max(times) - min(times) > MAX_LIFETIME_SECONDS:
        raise RefusedError("lifetime_too_long", command)


def _check_event(known: KnownEvent | None, command: Command) -> None:
    if known is None or not known.pending:
        raise RefusedError("unknown_event", command)
    if known.event.event_status != "Scheduled":
        raise RefusedError("already_started", command)
    if known.fingerprint != command.fingerprint:
        raise RefusedError("event_changed", command)


def _json(part: bytes) -> dict[str, Any]:
    """A part of a token as an object."""
    if set(part) - _BASE64URL:
        raise RefusedError("malformed")
    try:
        return _object(base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    except ValueError:
        raise RefusedError("malformed") from None


def _object(text: bytes) -> dict[str, Any]:
    try:
        loaded = json.loads(text.decode(), object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise RefusedError("malformed") from None
    if not isinstance(loaded, dict):
        raise RefusedError("malformed")
    return loaded


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    loaded = dict(pairs)
    if len(loaded) != len(pairs):
        raise ValueError("duplicate key")
    return loaded


def _refuse(constant: str) -> float:
    raise ValueError(constant)


_BASE64URL: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
