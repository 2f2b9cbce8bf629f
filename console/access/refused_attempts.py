"""Writes refused attempts to the audit: the first of each kind at once, then at most one a minute.
Those that are not written are counted, and the next row has their number.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.types import Scope

from console.audit import audit_log
from console.audit.limiter import AuditLimiter
from console.db.connection.opening import Database
from console.db.connection.transactions import write_to
from sinks.shared.errors import SebError

UNKNOWN: Final = "unknown"
"""The actor of an attempt by an unknown caller."""
_LOG: Final = logging.getLogger("console")
_MAX_CHARACTERS: Final = 200
_MAX_ACTORS: Final = 1000
_ABOUT_EVENT: Final = re.compile(r"(?:/api/v1)?/events/([^/]+)(?:/approve|/leave)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedAttempt:
    """A request that was refused; `peer` is the address of the connection."""

    actor: str
    reason: str
    peer: str
    method: str
    path: str
    event_id: str | None = None


def attempt_at(scope: Scope, *, reason: str, actor: str = UNKNOWN) -> RefusedAttempt:
    """Return the attempt of the request in an ASGI scope."""
    # A request is refused before any route has read the path.
    about = _ABOUT_EVENT.fullmatch(scope["path"])
    return RefusedAttempt(
        actor=actor,
        reason=reason,
        peer=peer_of(scope),
        method=scope["method"],
        path=scope["path"],
        event_id=None if about is None else about[1][:_MAX_CHARACTERS],
    )


def peer_of(scope: Scope) -> str:
    """Return the address of the connection's other end, never one from a header."""
    return str((scope.get("client") or ("", 0))[0])


class RefusedAttempts:
    """Writes refused attempts to the audit; used on the event loop."""

    def __init__(
        self,
        database: Database,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._clock = clock
        self._monotonic = monotonic
        self._limiters: dict[str, AuditLimiter] = {}
        """A budget for each actor. Strangers share one, so that they cannot suppress the rows of
        others.
        """

    async def audit(self, attempt: RefusedAttempt) -> None:
        """Write an attempt, or count it. Never raises: the attempt is refused in any case."""
        limiter = self._limiter_of(attempt.actor)
        unwritten = limiter.passes(attempt.reason, attempt.peer)
        if unwritten is None:
            return
        try:
            await asyncio.to_thread(self._write, attempt, unwritten)
        except SebError as error:
            limiter.count(unwritten + 1)
            _LOG.warning("%s", error, extra={"action": "refusal_not_audited"})

    def _limiter_of(self, actor: str) -> AuditLimiter:
        """Return the budget of an actor; those of the last thousand actors are kept."""
        limiter = self._limiters.pop(actor, None) or AuditLimiter(self._monotonic)
        self._limiters[actor] = limiter
        if len(self._limiters) > _MAX_ACTORS:
            del self._limiters[next(iter(self._limiters))]
        return limiter

    def _write(self, attempt: RefusedAttempt, unwritten: int) -> None:
        with write_to(self._database) as (connection, _):
            audit_log.append(
                connection,
                at=self._clock(),
                actor=attempt.actor,
                action="refused",
                event_id=attempt.event_id,
                reason=attempt.reason,
                peer=attempt.peer,
                method=attempt.method,
                path=attempt.path[:_MAX_CHARACTERS],
                unwritten=unwritten or None,
            )
