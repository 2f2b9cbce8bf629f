"""`/api/v1/stream`: server-sent events for every open page; nobody is waited for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Iterable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from console.access.identity import Identity
from console.fleet import view
from console.fleet.commands import command_item
from console.fleet.contact import Ears, contact
from console.fleet.values import UNDECIDED, Command, Decided, Event, Receipt, Sighting, Vm
from console.fleet.witnesses import channel_of
from console.web.answers import refuse
from console.web.desk import Desk
from console.web.security import identity_of

_QUEUE: Final = 1000
"""Messages that a slow page may be behind; then it is told to read everything again."""
_MOST_PAGES: Final = 500
_COMMENT_SECONDS: Final = 15.0
_AT_ONCE: Final = 500
"""VMs that are looked at in one turn of the event loop: some milliseconds."""
_HELLO: Final = b"retry: 2000\n: connected\n\n"
_COMMENT: Final = b": still here\n\n"
_RELOAD: Final = b"event: reload\ndata: {}\n\n"
_END: Final = b""

Shape = tuple[object, ...]


class Stream:
    """Who listens, and what they were told last."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._pages: dict[asyncio.Queue[bytes], Identity] = {}
        self._told: dict[str, Shape] = {}
        """What each VM's last message said, its time aside."""
        self._decisions: dict[str, str] = {}
        """How the decision on each open event stood when it was told last."""
        self._sources: dict[str, Any] = {}
        self._closed = False

    async def listen(self, request: Request) -> Response:
        """One page's stream."""
        if self._closed or len(self._pages) >= _MOST_PAGES:
            raise refuse(503, "too many pages are open; close some")
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(
            self._messages(identity_of(request)), headers=headers, media_type="text/event-stream"
        )

    def close(self) -> None:
        """End every stream, so that the server can end."""
        self._closed = True
        for page in self._pages:
            _put(page, _END)

    def listeners(self) -> set[Identity]:
        """Whose streams are open."""
        return set(self._pages.values())

    def end(self, identities: Collection[Identity]) -> None:
        """End the streams of some."""
        for page, identity in self._pages.items():
            if identity in identities:
                _put(page, _END)

    def vms_changed(self, vms: Iterable[Vm]) -> None:
        """Rows of VMs were committed; what differs but in its time is told."""
        fleet, now, ears = self._desk.fleet, self._desk.now(), self._desk.ears()
        for vm in vms:
            heard = (contact(vm, now, ears), channel_of(fleet, vm, now, ears))
            shape = (*heard, vm.name, vm.site, vm.version, vm.missing)
            whole = (*shape, *fleet.condition(vm.vm_id))
            if self._told.get(vm.vm_id) != whole:
                self._told[vm.vm_id] = whole
                if self._pages:
                    self._tell("vm", view.vm_item(fleet, vm, now, ears), sites=(vm.site,))
                    self._decisions_changed(fleet.condition(vm.vm_id)[1], now, ears)

    def event_changed(
        self,
        event: Event,
        witnesses: dict[str, Sighting],
        receipts: list[Receipt],
        decided: Decided,
    ) -> None:
        """An event, its witnesses, its receipts or what was decided were committed."""
        if event.state == "ended":
            self._decisions.pop(event.event_id, None)
        if not self._pages or event.shown_by not in witnesses:
            return
        desk = self._desk
        item = view.event_item(
            desk.fleet, event, witnesses, receipts, decided, now=desk.now(), ears=desk.ears()
        )
        if event.state != "ended":
            self._decisions[event.event_id] = item["decision"]["state"]
        self._tell("event", item, sites=event.sites)

    def command_changed(self, command: Command, receipts: list[Receipt]) -> None:
        """A command was made, sent, answered, or given up."""
        if self._pages:
            vm = self._desk.fleet.vms.get(command.vm_id)
            sites = () if vm is None else (vm.site,)
            self._tell("command", command_item(command, receipts), sites=sites)

    def _decisions_changed(self, event_ids: Iterable[str], now: float, ears: Ears) -> None:
        """A VM that falls silent, or takes commands, may make a decision due, or not due."""
        fleet = self._desk.fleet
        for event_id in event_ids:
            event = fleet.events[event_id]
            state = view.open_decision(fleet, event, now, ears).state
            if self._decisions.get(event_id) != state:
                self.event_changed(
                    event,
                    fleet.sightings[event_id],
                    fleet.receipts.get(event_id, []),
                    fleet.decided.get(event_id, UNDECIDED),
                )

    async def time_passed(self) -> None:
        """Turning late or silent is told too, and what became of the sources. Once a second.

        Requests get their turn between some VMs and the next.
        """
        vms = self._desk.fleet.vms
        everything = list(vms)
        for start in range(0, len(everything), _AT_ONCE):
            self.vms_changed(vms[vm_id] for vm_id in everything[start : start + _AT_ONCE])
            await asyncio.sleep(0)
        for item in self._desk.source_items():
            shape = (item["connected"], item["trouble"])
            if self._sources.get(item["name"]) != shape:
                self._sources[item["name"]] = shape
                self._tell("source", item, sites=None)

    def _tell(self, kind: str, item: dict[str, Any], *, sites: Collection[str] | None = ()) -> None:
        """Tell those who see every site, and those who see one of `sites`; None is everybody."""
        text = json.dumps(item, ensure_ascii=False, separators=(",", ":"))
        message = f"event: {kind}\ndata: {text}\n\n".encode()
        for page, identity in self._pages.items():
            site = identity.person.site
            if site is None or sites is None or site in sites:
                _put(page, message)

    async def _messages(self, identity: Identity) -> AsyncIterator[bytes]:
        page: asyncio.Queue[bytes] = asyncio.Queue(_QUEUE)
        self._pages[page] = identity
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
            self._pages.pop(page, None)


def _put(page: asyncio.Queue[bytes], message: bytes) -> None:
    """Queue a message; a page that is too far behind starts again instead."""
    try:
        page.put_nowait(message)
    except asyncio.QueueFull:
        while not page.empty():
            page.get_nowait()
        page.put_nowait(_END if message is _END else _RELOAD)
