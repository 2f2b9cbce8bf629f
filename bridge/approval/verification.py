"""Decides whether a signed command may be carried out; any doubt is a refusal."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from bridge.approval.policy import objection
from bridge.approval.trusted_keys import Trust, TrustedKey
from bridge.events.tracked import TrackedEvent
from wire.command import (
    ABOUT_AN_EVENT,
    ACTS,
    HEADERS,
    MAX_LIFETIME_SECONDS,
    MAX_TOKEN_BYTES,
    TIME_CLAIMS,
    TYPE,
    Command,
    SignatureInvalidError,
    header_of,
    is_moment,
    is_text,
    is_well_typed,
    read_object,
    signed_bytes,
)
from wire.keys import ALGORITHMS

MAX_COMMANDS: Final = 30
RATE_SECONDS: Final = 60.0
SKEW_SECONDS: Final = 5
"""How far ahead of this VM's clock a control plane's may be."""


class CommandRefusedError(Exception):
    """The command is not carried out; `reason` is one word. `command` is its content, as far as it
    can be read, once the signature is known to be valid: only then the sender is known and can be
    answered.
    """

    def __init__(self, reason: str, command: SignedCommand | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.command = command


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedCommand(Command):
    """A command with a valid signature; what cannot be read of it is empty or None."""

    issuer: str
    """The owner of the key; never the token's own claim, which may be another's name."""
    issued: int
    """In seconds since 1970."""
    expires: int
    """In seconds since 1970; from then on it is not carried out."""
    key: str
    """The digest of the key that signed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalState:
    """The values that a command is checked against."""

    vm_id: str
    now: datetime
    events: Mapping[str, TrackedEvent]
    used: Callable[[SignedCommand], bool]
    """Whether this jti of this issuer was used before."""
    time_of: Callable[[TrackedEvent], datetime]
    """Returns the time that counts for an event: the wall clock may have been set back since the
    event was first seen.
    """
    prepares: bool = False
    """Whether a sink of this VM prepares."""


class RateLimit:
    """Allows at most so many commands a minute, by the monotonic clock, because the wall clock may
    be set.
    """

    def __init__(self, limit: int, monotonic: Callable[[], float]) -> None:
        self._limit = limit
        self._monotonic = monotonic
        self._times: deque[float] = deque()

    def allows(self) -> bool:
        """Count a command if the limit has room for it; return whether it has."""
        now = self._monotonic()
        while self._times and self._times[0] <= now - RATE_SECONDS:
            self._times.popleft()
        if len(self._times) >= self._limit:
            return False
        self._times.append(now)
        return True

    def uncount(self) -> None:
        """Uncount the last command: it had no effect, and will be tried again."""
        if self._times:
            self._times.pop()


def verify(
    token: bytes, *, retained: bool, trust: Trust, local: LocalState, rate: RateLimit
) -> SignedCommand:
    """Return the command in a token, if it is valid in every respect. Raises
    `CommandRefusedError`.
    """
    if len(token) > MAX_TOKEN_BYTES:
        raise CommandRefusedError("too_large")
    if retained:
        raise CommandRefusedError("retained")
    key = _key(_header(token), trust)
    payload = _signed(token, key)
    # From here on the sender is known, and gets an answer.
    command = _checked(payload, key, local)
    if local.used(command):
        raise CommandRefusedError("replayed", command)
    if command.act in ABOUT_AN_EVENT and (
        reason := objection(_event_of(command, local), command.fingerprint)
    ):
        raise CommandRefusedError(reason, command)
    if not rate.allows():
        raise CommandRefusedError("rate_limited", command)
    return command


def _checked(payload: bytes, key: TrustedKey, local: LocalState) -> SignedCommand:
    """Return the command, if it is valid, meant for this VM, current, and within local policy."""
    try:
        claims = read_object(payload)
    except ValueError:
        raise CommandRefusedError("malformed", _command({}, key)) from None
    command = _command(claims, key)
    if not is_well_typed(claims):
        raise CommandRefusedError("malformed", command)
    if claims["iss"] != key.issuer:
        raise CommandRefusedError("not_allowed", command)
    if claims.get("aud") != f"urn:seb:vm:{local.vm_id}":
        raise CommandRefusedError("wrong_audience", command)
    _check_times(claims, command, local)
    if command.act not in ACTS or (command.act == "prepare" and not local.prepares):
        raise CommandRefusedError("not_allowed", command)
    tracked = _event_of(command, local)
    if (
        tracked is not None
        and tracked.pending
        and not (tracked.affects_this_vm and tracked.event.names_its_vms)
    ):
        # Approving it would release other machines than this VM.
        raise CommandRefusedError("not_allowed", command)
    return command


def _event_of(command: SignedCommand, local: LocalState) -> TrackedEvent | None:
    return local.events.get((command.event_id or "").casefold())


def _header(token: bytes) -> Mapping[str, Any]:
    """Return the header of a token: the three fields of a command, without crit, b64 or a key of
    its own.
    """
    try:
        header = read_object(header_of(token))
    except ValueError:
        raise CommandRefusedError("malformed") from None
    if set(header) != HEADERS or not all(isinstance(each, str) for each in header.values()):
        raise CommandRefusedError("malformed")
    if header["typ"] != TYPE or header["alg"] not in ALGORITHMS:
        raise CommandRefusedError("malformed")
    return header


def _key(header: Mapping[str, Any], trust: Trust) -> TrustedKey:
    key = trust.find(header["kid"])
    if key is None or key.alg != header["alg"]:
        raise CommandRefusedError("unknown_key")
    return key


def _signed(token: bytes, key: TrustedKey) -> bytes:
    try:
        return signed_bytes(token, key.key, key.alg)
    except SignatureInvalidError:
        raise CommandRefusedError("bad_signature") from None
    except ValueError:
        raise CommandRefusedError("malformed") from None


def _command(claims: Mapping[str, Any], key: TrustedKey) -> SignedCommand:
    text = {name: value for name, value in claims.items() if is_text(value)}
    return SignedCommand(
        issuer=key.issuer,
        subject=text.get("sub", ""),
        jti=text.get("jti", ""),
        act=text.get("act", ""),
        event_id=text.get("evt"),
        fingerprint=text.get("evh"),
        person_reason=text.get("rsn"),
        issued=claims["iat"] if is_moment(claims.get("iat")) else 0,
        expires=claims["exp"] if is_moment(claims.get("exp")) else 0,
        key=key.digest,
    )


def _check_times(claims: Mapping[str, Any], command: SignedCommand, local: LocalState) -> None:
    seconds = local.now.timestamp()
    begins = max(claims["nbf"], claims["iat"])
    times = [claims[name] for name in TIME_CLAIMS]
    # A command about an event was signed after that was seen: a clock that was set back since does
    # not make it valid again.
    tracked = _event_of(command, local)
    latest = local.now if tracked is None else max(local.now, local.time_of(tracked))
    if latest.timestamp() >= claims["exp"]:
        raise CommandRefusedError("expired", command)
    if begins > seconds + SKEW_SECONDS or begins >= claims["exp"]:
        raise CommandRefusedError("not_yet_valid", command)
    if max(times) - min(times) > MAX_LIFETIME_SECONDS:
        raise CommandRefusedError("lifetime_too_long", command)
