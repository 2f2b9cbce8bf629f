"""The times at which VMs polled the HTTPS command channel, until they are written to the
VMs' rows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from console.db.connection.errors import DatabaseFailedError
from console.db.connection.opening import Database
from console.db.connection.transactions import write_to
from console.db.vms.vm_updates import write_polls

_LOG: Final = logging.getLogger("console")
_WRITE_SECONDS: Final = 1.0
_REWRITE_SECONDS: Final = 20.0
"""The time between two writes of a VM's polls; a poll counts for a minute."""
_UNKNOWN_SECONDS: Final = 60.0
"""How long a poll waits for the first record of its VM."""


class PollTimes:
    """Polls that are not written yet; used on the event loop's thread. Only the rows count."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: dict[str, float] = {}
        self._written: dict[str, float] = {}

    def note_poll(self, vm_id: str, now: float) -> None:
        """Note that a VM polls at this moment, in seconds since 1970."""
        if now - self._written.get(vm_id, 0.0) >= _REWRITE_SECONDS:
            self._waiting[vm_id] = now

    async def write(self, now: float) -> None:
        """Write the polls that wait, in one transaction; after a failure they are tried again."""
        polls = {vm_id: at for vm_id, at in self._waiting.items() if now - at < _UNKNOWN_SECONDS}
        self._waiting = {}
        self._written = {
            vm_id: at for vm_id, at in self._written.items() if now - at < _REWRITE_SECONDS
        }
        if not polls:
            return
        try:
            known = await asyncio.to_thread(self._write, polls)
        except DatabaseFailedError as error:
            _LOG.debug("%s", error, extra={"action": "polls_not_written"})
            known = set()
        self._written |= {vm_id: polls[vm_id] for vm_id in known}
        self._waiting = {
            vm_id: at for vm_id, at in polls.items() if vm_id not in known
        } | self._waiting

    async def write_regularly(self, now: Callable[[], float]) -> None:
        """Write once a second, until cancelled; `now` returns the time."""
        while True:
            await asyncio.sleep(_WRITE_SECONDS)
            await self.write(now())

    def _write(self, polls: dict[str, float]) -> set[str]:
        with write_to(self._database) as (connection, change_number):
            return write_polls(connection, polls, change_number)
