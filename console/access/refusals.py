"""Refused attempts in the audit: each kind at once, then at most once a minute, whatever the flood.

What is not written is counted, and the next row says how many.
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

from console.audit import log
from console.errors import ConsoleError
from console.store.opening import Database
from console.store.transactions import write_to

UNKNOWN: Final = "unknown"
"""The actor of an attempt whose author is not known."""
_LOG: Final = logging.getLogger("console")
_SAME_SECONDS: Final = 60.0
"""Between two rows of one actor for one reason."""
_BURST: Final = 60
_PER_SECOND: Final = 1 / 30
"""Rows of all actors together, after the burst: a megabyte a day."""
_KINDS: Final = 1000
_LONGEST: Final = 200
_ABOUT_EVENT: Final = re.compile(r"(?:/api/v1)?/events/([^/]+)(?:/approve|/leave)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What was refused; `peer` is the address of the connection."""

    actor: str
    reason: str
    peer: str
    method: str
    path: str
    event_id: str | None = None


def attempt_at(scope: Scope, *, reason: str, actor: str = UNKNOWN) -> Attempt:
    """What the request of an ASGI scope attempted."""
    # The door refuses before any route has read the path.
    about = _ABOUT_EVENT.fullmatch(scope["path"])
    return Attempt(
        actor=actor,
        reason=reason,
        peer=peer_of(scope),
        method=scope["method"],
        path=scope["path"],
        event_id=None if about is None else about[1][:_LONGEST],
    )


def peer_of(scope: Scope) -> str:
    """The address of the connection's other end, never one that a header names."""
    return str((scope.get("client") or ("", 0))[0])


class Refusals:
    """Writes refused attempts; on the event loop."""

    def __init__(
        self,
        database: Database,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._clock = clock
        self._monotonic = monotonic
        self._kinds: dict[tuple[str, str, str], float] = {}
        """When a row of each kind was written last, the oldest first."""
        self._rows = float(_BURST)
        self._filled_at = monotonic()
        self._unwritten = 0

    async def note(self, attempt: Attempt) -> None:
        """Write it down, or count it. It never raises: the attempt is refused in any case."""
        if not self._may_write(attempt):
            self._unwritten += 1
            return
        unwritten, self._unwritten = self._unwritten, 0
        try:
            await asyncio.to_thread(self._write, attempt, unwritten)
        except ConsoleError as error:
            self._unwritten += unwritten + 1
            _LOG.warning("%s", error, extra={"action": "refusal_not_audited"})

    def _may_write(self, attempt: Attempt) -> bool:
        now = self._monotonic()
        self._rows = min(_BURST, self._rows + (now - self._filled_at) * _PER_SECOND)
        self._filled_at = now
        kind = (attempt.actor, attempt.reason, attempt.peer)
        if now - self._kinds.get(kind, float("-inf")) < _SAME_SECONDS or self._rows < 1:
            return False
        self._rows -= 1
        self._kinds.pop(kind, None)
        self._kinds[kind] = now
        if len(self._kinds) > _KINDS:
            del self._kinds[next(iter(self._kinds))]
        return True

    def _write(self, attempt: Attempt, unwritten: int) -> None:
        with write_to(self._database) as (connection, _):
            log.append(
                connection,
                at=self._clock(),
                actor=attempt.actor,
                action="refused",
                event_id=attempt.event_id,
                reason=attempt.reason,
                peer=attempt.peer,
                method=attempt.method,
                path=attempt.path[:_LONGEST],
                unwritten=unwritten or None,
            )
