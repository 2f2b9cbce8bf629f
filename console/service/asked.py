"""Writes down which VMs ask the HTTPS channel, many in one transaction."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from console.store.asked import write_asked
from console.store.errors import StoreError
from console.store.opening import Database
from console.store.transactions import write_to
from console.web.desk import Desk

_LOG: Final = logging.getLogger("console")
_LOOK_SECONDS: Final = 1.0


async def keep_written(desk: Desk) -> None:
    """Write what is due once a second, until it is cancelled; what fails is tried again."""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        times = desk.asked.due(desk.now())
        if not times or not desk.loaded:
            continue
        try:
            await asyncio.to_thread(_write, desk.database, times)
        except StoreError as error:
            _LOG.debug("%s", error, extra={"action": "asked_not_written"})
        else:
            desk.asked.written(times)


def _write(database: Database, times: Mapping[str, float]) -> None:
    with write_to(database) as (connection, number):
        write_asked(connection, times, number)
