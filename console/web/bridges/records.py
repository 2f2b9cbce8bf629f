"""`POST /ingest/v1/records` and `POST /pull/v1/commands/receipts`: a record, or the receipt of a
command, per request; answered once it is committed.

There are thousands a second: each endpoint is an ASGI application by itself.
"""

from __future__ import annotations

import asyncio
import queue
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from math import ceil
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from console.fleet.candidates import PULL
from console.ingest.signature import UnsignedError, require_signature
from console.ingest.source_batch import QuarantinedMessage, SourceBatch
from console.ingest.vm_secrets import KEY_IS_MISSING
from console.records.incoming import IncomingRecord
from console.records.parse import ForeignError, parse_record, vm_of
from console.web.bridges.parts import BridgeRequestParts
from console.web.bridges.pull import bearer, not_its_token
from console.web.bridges.record_body import RequestError
from wire.record import APPROVAL

_COMMIT_SECONDS: Final = 15.0
_RETRY_SECONDS: Final = 5
_SAMPLE_BYTES: Final = 2000
"""How many bytes are kept of a body that is not a record."""
_MAX_WAITING: Final = 100
"""How many deliveries may wait for the writer; beyond that only records are added."""


class _RecordEndpoint(ABC):
    """Receives a record of a VM that proves who it is."""

    def __init__(self, parts: BridgeRequestParts, *, source: str) -> None:
        self._parts = parts
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 204 after the commit; 400 not such a record, 401 not from that VM, 413 too large,
        429 too much from this VM, 503 not possible now.
        """
        try:
            response = await self._answer(scope, receive)
        except RequestError as error:
            response = _refusal_answer(error)
        await response(scope, receive, send)

    @abstractmethod
    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        """Receive a record and return the answer. Raises `RequestError`."""

    async def _body(self, scope: Scope, receive: Receive) -> tuple[str, bytes]:
        """Return the vmId that a body names, and the body. Raises `RequestError`."""
        if not self._parts.is_ready():  # it is not known yet which secrets were revoked
            raise RequestError(503, "the console is reading its database")
        body = await self._parts.bodies.read(Headers(scope=scope), receive)
        vm_id = vm_of(body)
        if vm_id is None:
            raise RequestError(400, "not a record: partitionkey is missing")
        return vm_id, body

    def _parse(self, vm_id: str, body: bytes) -> IncomingRecord:
        """Return the record in a body that this VM has sent. Raises `RequestError`; what is not a
        record of ours goes to quarantine.
        """
        limits = self._parts.vm_limits
        wait = limits.seconds_until_allowed(vm_id, len(body), now=time.monotonic())
        if wait:
            message = "this VM sends too much; it may continue later"
            raise RequestError(429, message, retry_after=wait)
        now = self._parts.clock()
        try:
            record = parse_record(body, source=self._source, received_at=now, vm_id=vm_id)
        except ForeignError as error:
            self._quarantine(error, body, vm_id=vm_id, at=now)
            raise RequestError(400, f"not a record: {error}") from None
        limits.charge(vm_id, record, now=time.monotonic())
        return record

    async def _commit(self, record: IncomingRecord) -> None:
        """Return once the record is in the database. Raises `RequestError` if that takes too
        long.
        """
        loop = asyncio.get_running_loop()
        committed: asyncio.Future[bool] = loop.create_future()

        def answer(stored: bool) -> None:  # noqa: FBT001  # as SourceBatch.on_end
            if not committed.done():
                committed.set_result(stored)

        def on_end(stored: bool) -> None:  # noqa: FBT001  # on the writer's thread
            loop.call_soon_threadsafe(answer, stored)

        delivery = SourceBatch(
            source=record.source, items=[record], on_end=on_end, size=len(record.body)
        )
        try:
            self._parts.writer.put(delivery, timeout=0)
            async with asyncio.timeout(_COMMIT_SECONDS):
                stored = await committed
        except (queue.Full, TimeoutError):
            stored = False
        if not stored:
            raise RequestError(503, "the database does not take records now")

    def _quarantine(self, error: ForeignError, body: bytes, *, vm_id: str, at: float) -> None:
        """Quarantine a body that a VM has signed and that is not a record of ours; under load, only
        count it.
        """
        writer = self._parts.writer
        message = QuarantinedMessage(
            reason=error.reason, message=f"{vm_id}: {error}", sample=body[:_SAMPLE_BYTES], at=at
        )
        delivery = SourceBatch(source=self._source, items=[message], on_end=lambda _stored: None)
        if writer.waiting <= _MAX_WAITING:
            with suppress(queue.Full):
                writer.put(delivery, timeout=0)
                return
        writer.progress.quarantined[(self._source, error.reason)] += 1


class WebhookRecords(_RecordEndpoint):
    """Receives the records of the webhook source, which VMs sign."""

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        vm_id, body = await self._body(scope, receive)
        enrolments = self._parts.enrolments
        if not enrolments.has_key:
            raise RequestError(503, KEY_IS_MISSING)
        secret = enrolments.webhook_secret(vm_id)
        try:
            require_signature(
                Headers(scope=scope), body, secret=secret, now=self._parts.own_clock()
            )
        except UnsignedError as error:
            raise RequestError(401, str(error)) from None
        await self._commit(self._parse(vm_id, body))
        return Response(status_code=204)


class PulledReceipts(_RecordEndpoint):
    """Receives the receipts of VMs that poll for their commands; a VM shows its token."""

    def __init__(self, parts: BridgeRequestParts) -> None:
        super().__init__(parts, source=PULL)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        token = bearer(scope)
        if not token:
            return not_its_token()
        vm_id, body = await self._body(scope, receive)
        if not self._parts.enrolments.opens(vm_id, token):
            return not_its_token()
        record = self._parse(vm_id, body)
        if record.type != APPROVAL:
            raise RequestError(400, f"not a receipt: its type is not {APPROVAL}")
        await self._commit(record)
        return Response(status_code=204)


def _refusal_answer(error: RequestError) -> Response:
    """Return the answer of a `RequestError`, with a sentence for the log of a bridge."""
    wait = _RETRY_SECONDS if error.status == 503 else error.retry_after  # noqa: PLR2004
    headers = {} if wait is None else {"Retry-After": str(ceil(wait))}
    if error.status == 408:  # noqa: PLR2004
        headers["Connection"] = "close"
    return PlainTextResponse(f"{error}\n", error.status, headers)
