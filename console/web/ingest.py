"""`POST /ingest/v1/records`: one signed record per request, answered once it is committed."""

from __future__ import annotations

import time

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from console.ingest.enrolment import KEY_IS_MISSING
from console.ingest.signature import UnsignedError, verify
from console.records.parse import ForeignError, parse_record, vm_of
from console.web.bodies import RequestError
from console.web.receiving import Commits, refused, require_ready
from console.web.state import AppState


class Ingest:
    """Receives the records of the webhook source."""

    def __init__(self, state: AppState, source: str) -> None:
        self._state = state
        self._source = source
        self._commits = Commits(state.writer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 204 after the commit; 400 not a record, 401 not signed, 413 too large, 429 too
        much from this VM, 503 not possible now.
        """
        try:
            await self._take(Headers(scope=scope), receive)
        except RequestError as why:
            response = refused(why)
        else:
            response = Response(status_code=204)
        await response(scope, receive, send)

    async def _take(self, headers: Headers, receive: Receive) -> None:
        require_ready(self._state)
        body = await self._state.bodies.read(headers, receive)
        now = self._state.now()
        vm_id = vm_of(body)
        if vm_id is None:
            raise RequestError(400, "not a record: partitionkey is missing")
        enrolments = self._state.enrolments
        if not enrolments.has_key:
            raise RequestError(503, KEY_IS_MISSING)
        try:
            verify(
                headers, body, secret=enrolments.webhook_secret(vm_id), now=self._state.own_clock()
            )
        except UnsignedError as error:
            raise RequestError(401, str(error)) from None
        wait = self._state.bounds.wait(vm_id, len(body), now=time.monotonic())
        if wait:
            raise RequestError(
                429, "this VM sends too much; it may continue later", retry_after=wait
            )
        # Only a body that a VM has signed is parsed.
        try:
            record = parse_record(body, source=self._source, received_at=now, vm_id=vm_id)
        except ForeignError as error:
            self._commits.set_aside(self._source, error, body, vm_id=vm_id, at=now)
            raise RequestError(400, f"not a record: {error}") from None
        self._state.bounds.charge(vm_id, record, now=time.monotonic())
        await self._commits.commit(record)
