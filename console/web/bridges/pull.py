"""`GET /pull/v1/commands`: each VM polls for its signed commands, and the poll waits here."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qsl

from starlette.background import BackgroundTask
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from console.fleet.values.decision import VmCommand
from console.web.answers import answer
from console.web.bridges.held_polls import WakeReason
from console.web.bridges.parts import BridgeRequestParts
from sinks.shared.errors import SebError

_LOG: Final = logging.getLogger("console")
_WAIT: Final = "25"
_MAX_WAIT_SECONDS: Final = 60.0
"""In seconds; a longer wait is cut to this."""
_RETRY_SECONDS: Final = (15, 45)
_MAX_TOKENS: Final = 64
"""The limit of one answer; a bridge accepts no more."""
_MAX_FIELDS: Final = 8


class CommandPolls:
    """The long poll. It is an ASGI application by itself, because thousands are held at once."""

    def __init__(self, parts: BridgeRequestParts) -> None:
        self._parts = parts
        self._held = parts.held_polls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 204, or 200 with tokens; 400, 401, or 503 with the seconds until the next try."""
        response = await self._answer(scope, receive)
        if response is not None:
            await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response | None:
        """Return the answer; None if the client is gone."""
        if scope["method"] != "GET":  # HEAD would fetch commands and lose them
            return _text(405, "use GET")
        asked = _question(scope["query_string"])
        if asked is None:
            return _text(400, "ask with ?vm=VMID&wait=SECONDS, each once, and nothing else")
        if not self._parts.is_ready():  # it is not known yet which tokens were revoked
            return _later("the console is reading its database")
        first = await receive()
        if first["type"] == "http.disconnect":
            return None
        if first.get("body") or first.get("more_body"):
            return _text(400, "a poll has no body")
        vm_id, wait = asked
        until = asyncio.get_running_loop().time() + wait
        return await self._wait(vm_id, bearer(scope), until, receive)

    async def _wait(
        self, vm_id: str, token: str, until: float, receive: Receive
    ) -> Response | None:
        """Hold the poll until there is an answer, or until a moment on the loop's clock."""
        held = self._held
        loop = asyncio.get_running_loop()
        while self._parts.enrolments.opens(vm_id, token):
            self._parts.poll_times.note_poll(vm_id, self._parts.clock())
            now = loop.time()
            due = held.due(vm_id)
            if due is not None and due <= now:
                held.note_sent(vm_id, now=now)
                response = await self._tokens(vm_id)
                if response is None:
                    held.note_nothing_for(vm_id, now=now)
                elif self._parts.enrolments.opens(vm_id, token):  # not revoked meanwhile
                    return response
                continue
            if held.closed or now >= until:
                return Response(status_code=204)
            if not held.has_room_for(vm_id):
                return _later("more VMs wait for commands here than this console can hold")
            again = until if due is None else min(until, due)
            woken = await held.hold(vm_id, again - now, receive)
            if woken is WakeReason.GONE:
                return None
            if woken is WakeReason.REPLACED:
                return Response(status_code=204)
        held.refused_polls += 1
        return not_its_token()

    async def _tokens(self, vm_id: str) -> Response | None:
        """Return an answer with the VM's commands, or an error that says why there are none now;
        None if it has none.
        """
        decisions = self._parts.decisions
        try:
            found = await asyncio.to_thread(decisions.commands_for, vm_id)
            commands = found[:_MAX_TOKENS]
            tokens = await asyncio.to_thread(decisions.sign, commands)
        except SebError as error:
            _LOG.warning("%s", error, extra={"action": "commands_not_given"})
            return _later("commands cannot be signed now")
        if not tokens:
            return None
        given = answer([token.decode("ascii") for token in tokens])
        given.background = BackgroundTask(self._note_fetched, commands)  # once it has been sent
        return given

    async def _note_fetched(self, commands: Sequence[VmCommand]) -> None:
        try:
            await asyncio.to_thread(self._parts.decisions.note_fetched, commands)
        except SebError as error:  # the receipt will show that it was fetched
            _LOG.warning("%s", error, extra={"action": "fetch_not_noted"})


def bearer(scope: Scope) -> str:
    """Return the bearer token of a request; empty if there is none, or more than one."""
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
    return token.strip().decode("latin-1") if scheme.lower() == b"bearer" else ""


def not_its_token() -> Response:
    """Return the answer 401, whose text is the same whether or not there is such a VM."""
    refused = _text(401, "this is not the bearer token of that VM; see `seb console enroll`")
    refused.headers["WWW-Authenticate"] = "Bearer"
    return refused


def _question(query: bytes) -> tuple[str, float] | None:
    """Return the VM that polls, and how many seconds it wants to wait; None if the request is not
    valid.
    """
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        return None
    if any(name not in ("vm", "wait") for name, _ in pairs):
        return None
    vms = [value for name, value in pairs if name == "vm"]
    waits = [value for name, value in pairs if name == "wait"] or [_WAIT]
    wait = waits[0]
    good = len(vms) == len(waits) == 1 and wait.isascii() and wait.isdecimal()
    return (vms[0], min(_MAX_WAIT_SECONDS, float(wait[:9]))) if good else None


def _later(message: str) -> Response:
    refused = _text(503, message)
    # Random, so that not all VMs come back at the same moment.
    refused.headers["Retry-After"] = str(random.randint(*_RETRY_SECONDS))  # noqa: S311
    return refused


def _text(status: int, message: str) -> Response:
    return answer({"error": message}, status)
