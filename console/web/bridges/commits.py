"""Gives records to the writer, and waits for their commits on the event loop."""

from __future__ import annotations

import asyncio
import queue
import threading
from contextlib import suppress
from typing import Final

from console.ingest.delivery import Delivery, QuarantinedMessage
from console.ingest.writer import Writer
from console.records.incoming import IncomingRecord
from console.records.parse import ForeignError
from console.web.bridges.record_body import RequestError

_COMMIT_SECONDS: Final = 15.0
_SAMPLE: Final = 2000
"""How many bytes are kept of a body that is not a record."""
_MAX_WAITING: Final = 100
"""How many deliveries may wait for the writer; beyond that only records are added."""


class Commits:
    """The requests that wait for the commit of their record."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._lock = threading.Lock()
        self._over: list[tuple[asyncio.Future[bool], bool]] = []
        """Answers of the writer that the event loop has not seen yet."""

    async def commit(self, record: IncomingRecord) -> None:
        """Return once the record is in the database. Raises `RequestError` if that takes
        too long.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[bool] = loop.create_future()

        def done(stored: bool) -> None:  # noqa: FBT001  # as Delivery.done
            with self._lock:
                self._over.append((answer, stored))
                is_first = len(self._over) == 1
            if is_first:  # the loop is woken once for many
                loop.call_soon_threadsafe(self._answer)

        try:
            delivery = Delivery(
                source=record.source, items=[record], done=done, size=len(record.body)
            )
            self._writer.put(delivery, timeout=0)
            async with asyncio.timeout(_COMMIT_SECONDS):
                stored = await answer
        except (queue.Full, TimeoutError):
            stored = False
        if not stored:
            raise RequestError(503, "the database does not take records now")

    def quarantine(
        self, source: str, error: ForeignError, body: bytes, *, vm_id: str, at: float
    ) -> None:
        """Quarantine a body that a VM has signed and that is not a record of ours; under load, only
        count it.
        """
        refused = QuarantinedMessage(
            reason=error.reason, message=f"{vm_id}: {error}", sample=body[:_SAMPLE], at=at
        )
        delivery = Delivery(source=source, items=[refused], done=_nothing)
        if self._writer.waiting <= _MAX_WAITING:
            with suppress(queue.Full):
                self._writer.put(delivery, timeout=0)
                return
        self._writer.progress.quarantined[(source, error.reason)] += 1

    def _answer(self) -> None:
        with self._lock:
            over = self._over
            self._over = []
        for answer, stored in over:
            if not answer.done():
                answer.set_result(stored)


def _nothing(_stored: bool) -> None:  # noqa: FBT001  # as Delivery.done
    pass
