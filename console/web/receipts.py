"""`POST /pull/v1/commands/receipts`: the receipt of a command, from a VM that polls for commands
here.
"""

from __future__ import annotations

import time

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from console.fleet.candidates import PULL
from console.records.parse import ForeignError, parse_record, vm_of
from console.web.bodies import RequestError
from console.web.pull import bearer, not_its_token
from console.web.receiving import Commits, refused, require_ready
from console.web.state import AppState
from wire.record import APPROVAL


class Receipts:
    """Receives receipts, and stores them like any other record."""

    def __init__(self, state: AppState) -> None:
        self._state = state
        self._commits = Commits(state.writer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 204 after the commit; 400 not a receipt, 401 not this VM's token, 413 too large,
        429 too much from this VM.
        """
        try:
            response = await self._take(scope, receive)
        except RequestError as why:
            response = refused(why)
        await response(scope, receive, send)

    async def _take(self, scope: Scope, receive: Receive) -> Response:
        token = bearer(scope)
        if not token:
            return not_its_token()
        require_ready(self._state)
        body = await self._state.bodies.read(Headers(scope=scope), receive)
        vm_id = vm_of(body)
        now = self._state.now()
        if vm_id is None:
            raise RequestError(400, "not a record: partitionkey is missing")
        if not self._state.enrolments.opens(vm_id, token):
            return not_its_token()
        wait = self._state.bounds.wait(vm_id, len(body), now=time.monotonic())
        if wait:
            raise RequestError(
                429, "this VM sends too much; it may continue later", retry_after=wait
            )
        try:
            record = parse_record(body, source=PULL, received_at=now, vm_id=vm_id)
        except ForeignError as error:
            self._commits.set_aside(PULL, error, body, vm_id=vm_id, at=now)
            raise RequestError(400, f"not a record: {error}") from None
        if record.type != APPROVAL:
            raise RequestError(400, f"not a receipt: its type is not {APPROVAL}")
        await self._commits.commit(record)
        return Response(status_code=204)
