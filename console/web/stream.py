"""`/api/v1/stream`: server-sent events for every open page; nobody is waited for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from console.fleet import view
from console.fleet.contact import Ears, contact
from console.fleet.values import Event, Receipt, Sighting, Vm
from console.web.answers import refuse
from console.web.desk import Desk

_QUEUE: Final = 1000
"""Messages that a slow page may be behind; then it is told to read everything again."""
_MOST_PAGES: Final = 500
_COMMENT_SECONDS: Final = 15.0
_HELLO: Final = b"retry: 2000\n: connected\n\n"
_COMMENT: Final = b": still here\n\n"
_RELOAD: Final = b"event: reload\ndata: {}\n\n"
_END: Final = b""

Shape = tuple[object, ...]


class Stream:
    """Who listens, and what they were told last."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._pages: set[asyncio.Queue[bytes]] = set()
        self._told: dict[str, Shape] = {}
        """What each VM's last message said, its time aside."""
        self._decisions: dict[str, str] = {}
        """How the decision on each open event stood when it was told last."""
        self._sources: dict[str, Any] = {}
        self._closed = False

    async def listen(self, request: Request) -> Response:
        """One page's stream."""
        del request
        if self._closed or len(self._pages) >= _MOST_PAGES:
            raise refuse(503, "too many pages are open; close some")
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(self._messages(), headers=headers, media_type="text/event-stream")

    def close(self) -> None:
        """End every stream, so that the server can end."""
        self._closed = True
        for page in self._pages:
            _put(page, _END)

    def vms_changed(self, vms: Iterable[Vm]) -> None:
        """Rows of VMs were committed; what differs but in its time is told."""
        fleet, now, ears = self._desk.fleet, self._desk.now(), self._desk.ears()
        for vm in vms:
            shape = (contact(vm, now, ears), vm.name, vm.site, vm.version, vm.missing, vm.commands)
            whole = (*shape, *fleet.condition(vm.vm_id))
            if self._told.get(vm.vm_id) != whole:
                self._told[vm.vm_id] = whole
                if self._pages:
                    self._tell("vm", view.vm_item(fleet, vm, now, ears))
                    self._decisions_changed(fleet.condition(vm.vm_id)[1], now, ears)

    def event_changed(
        self, event: Event, witnesses: dict[str, Sighting], receipts: list[Receipt]
    ) -> None:
        """An event, its witnesses or its receipts were committed."""
        if event.state == "ended":
            self._decisions.pop(event.event_id, None)
        if not self._pages or event.shown_by not in witnesses:
            return
        desk = self._desk
        item = view.event_item(
            desk.fleet, event, witnesses, receipts, now=desk.now(), ears=desk.ears()
        )
        if event.state != "ended":
            self._decisions[event.event_id] = item["decision"]["state"]
        self._tell("event", item)

    def _decisions_changed(self, event_ids: Iterable[str], now: float, ears: Ears) -> None:
        """A VM that falls silent, or takes commands, may make a decision due, or not due."""
        fleet = self._desk.fleet
        for event_id in event_ids:
            event = fleet.events[event_id]
            state = view.open_decision(fleet, event, now, ears).state
            if self._decisions.get(event_id) != state:
                self.event_changed(
                    event, fleet.sightings[event_id], fleet.receipts.get(event_id, [])
                )

    def time_passed(self) -> None:
        """Turning late or silent is told too, and what became of the sources. Once a second."""
        self.vms_changed(self._desk.fleet.vms.values())
        for item in self._desk.source_items():
            shape = (item["connected"], item["trouble"])
            if self._sources.get(item["name"]) != shape:
                self._sources[item["name"]] = shape
                self._tell("source", item)

    def _tell(self, kind: str, item: dict[str, Any]) -> None:
        text = json.dumps(item, ensure_ascii=False, separators=(",", ":"))
        message = f"event: {kind}\ndata: {text}\n\n".encode()
        for page in self._pages:
            _put(page, message)

    async def _messages(self) -> AsyncIterator[bytes]:
        page: asyncio.Queue[bytes] = asyncio.Queue(_QUEUE)
        self._pages.add(page)
        try:
            yield _HELLO
            while True:
                try:
                    message = await asyncio.wait_for(page.get(), _COMMENT_SECONDS)
                except TimeoutError:
                    yield _COMMENT
                    continue
                if message is _END:
                    return
                yield message
                if message is _RELOAD:
                    return
        finally:
            self._pages.discard(page)


def _put(page: asyncio.Queue[bytes], message: bytes) -> None:
    """Queue a message; a page that is too far behind starts again instead."""
    try:
        page.put_nowait(message)
    except asyncio.QueueFull:
        while not page.empty():
            page.get_nowait()
        page.put_nowait(_END if message is _END else _RELOAD)
