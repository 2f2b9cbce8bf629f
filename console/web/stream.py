"""`/api/v1/stream`: server-sent events for every open page; no slow page is waited for.

It says what has changed, from the rows that later transactions wrote, and a page asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from console.access.identity import Identity
from console.db import decisions
from console.db.batches import newest_number
from console.db.snapshot import Snapshot, Snapshots
from console.fleet import view
from console.fleet.commands import command_item
from console.fleet.contact import Listening
from console.fleet.values import HeardVm
from console.web.answers import refuse
from console.web.security import identity_of
from console.web.vms import vm_items

_QUEUE: Final = 1000
"""Messages that a slow page may be behind; then it is told to read everything again."""
_MAX_PAGES: Final = 500
_MAX_OF_ONE: Final = 30
"""Of one person or program, so that one cannot take the places of all others."""
_MAX_CHANGES: Final = 500
"""Events and VMs that are told one by one; of more, pages read everything again."""
_TIME_SECONDS: Final = 1.0
"""From one look at what time alone has changed to the next: it looks at every VM."""
_BEAT_SECONDS: Final = 5.0
"""A page that hears nothing for some of these knows that the console hangs."""
_HELLO: Final = b"retry: 2000\n: connected\n\n"
_BEAT: Final = b"event: beat\ndata: {}\n\n"
_RELOAD: Final = b"event: reload\ndata: {}\n\n"
_END: Final = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamMessage:
    """One message of the stream."""

    kind: str
    item: BaseModel
    sites: Collection[str] | None = None
    """Whose readers are told; None: everybody."""

    def encoded(self) -> bytes:
        """As it is sent."""
        text = self.item.model_dump_json(by_alias=True)
        return f"event: {self.kind}\ndata: {text}\n\n".encode()


class ChangeMessages:
    """What has changed from one look to the next; used on one thread."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._number: int | None = None
        self._then = 0.0
        self._listening = Listening()

    def skip(self) -> None:
        """No page asks what is new; the next look begins here. Raises `StoreError`."""
        with self._snapshots.open() as snapshot:
            self._number = newest_number(snapshot.connection)
            self._then, self._listening = snapshot.now, snapshot.listening

    def look(self) -> list[StreamMessage] | None:
        """What is new since the last look; None: so much that everything is to be read again.

        Raises `StoreError`; then the next look finds it.
        """
        found: list[StreamMessage] | None = []
        with self._snapshots.open() as snapshot:
            number, since = newest_number(snapshot.connection), self._number
            vms = [] if since is None else snapshot.vms.changed_since(since)
            has_passed = abs(snapshot.now - self._then) >= _TIME_SECONDS
            if since is not None and has_passed:
                vms += snapshot.vms.passed_since(self._then, self._listening)
            if since is not None and number < since:  # restored: what is newer cannot be known
                found = None
            elif since is not None and (number != since or vms):
                found = self._found(snapshot, since, {each.vm.vm_id: each for each in vms})
        self._number = number
        if has_passed:
            self._then, self._listening = snapshot.now, snapshot.listening
        return found

    def _found(
        self, snapshot: Snapshot, since: int, vms: dict[str, HeardVm]
    ) -> list[StreamMessage] | None:
        event_ids = set(snapshot.events.changed_since(since))
        if len(event_ids) + len(vms) > _MAX_CHANGES:
            return None
        # A VM's condition follows from events, and whether a decision is due from VMs.
        named = snapshot.events.named_by(event_ids) - set(vms)
        expected = snapshot.vms.expectations(vms)
        event_ids |= {event_id for each in expected.values() for event_id in each.events}
        heard = [*vms.values(), *snapshot.vms.some(named)]
        messages = [
            StreamMessage(
                kind="event",
                item=view.event_item(known, snapshot.now, snapshot.listening, names_scopes=False),
                sites=known.event.sites,
            )
            for known in snapshot.events.some(sorted(event_ids))
        ]
        commands = decisions.commands_changed(snapshot.connection, since)
        sites = {
            each.vm.vm_id: each.vm.site
            for each in snapshot.vms.some({command.vm_id for command, _ in commands})
        }
        messages += [
            StreamMessage(
                kind="command",
                item=command_item(command, receipts),
                sites=(sites.get(command.vm_id, ""),),
            )
            for command, receipts in commands
        ]
        for each, item in zip(heard, vm_items(snapshot, heard), strict=True):
            messages.append(StreamMessage(kind="vm", item=item, sites=(each.vm.site,)))
        return messages


class StreamHub:
    """Who listens; used on the event loop's thread."""

    def __init__(self) -> None:
        self._pages: dict[asyncio.Queue[bytes], Identity] = {}
        self._sources: dict[str, Any] = {}
        self._closed = False

    async def listen(self, request: Request) -> Response:
        """One page's stream."""
        identity = identity_of(request)
        if self._has_many(identity):
            raise refuse(429, f"{_MAX_OF_ONE} pages or streams of yours are open; close some")
        if self._closed or len(self._pages) >= _MAX_PAGES:
            raise refuse(503, "too many pages are open; close some")
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(
            self._messages(identity), headers=headers, media_type="text/event-stream"
        )

    def _has_many(self, identity: Identity) -> bool:
        """Whether a person or program has as many streams as it may have."""
        name = identity.person.name
        return sum(each.person.name == name for each in self._pages.values()) >= _MAX_OF_ONE

    def close(self) -> None:
        """End every stream, so that the server can end."""
        self._closed = True
        for page in self._pages:
            _put(page, _END)

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens."""
        return bool(self._pages)

    def listeners(self) -> set[Identity]:
        """Whose streams are open."""
        return set(self._pages.values())

    def end(self, identities: Collection[Identity]) -> None:
        """End the streams of some."""
        for page, identity in self._pages.items():
            if identity in identities:
                _put(page, _END)

    def tell(self, messages: Iterable[StreamMessage] | None) -> None:
        """Tell every page what it may see; None: it is to read everything again."""
        if messages is None:
            for page in self._pages:
                _reload(page)
            return
        for message in messages:
            encoded = message.encoded()
            for page, identity in self._pages.items():
                site = identity.person.site
                if site is None or message.sites is None or site in message.sites:
                    _put(page, encoded)

    def tell_sources(self, items: Iterable[view.Source]) -> None:
        """Tell what became of the sources, if it is new."""
        for item in items:
            shape = (item.connected, item.trouble)
            if self._sources.get(item.name) != shape:
                self._sources[item.name] = shape
                self.tell([StreamMessage(kind="source", item=item)])

    async def _messages(self, identity: Identity) -> AsyncIterator[bytes]:
        if self._has_many(identity):  # of requests that came at once
            return
        page: asyncio.Queue[bytes] = asyncio.Queue(_QUEUE)
        self._pages[page] = identity
        try:
            yield _HELLO
            while True:
                try:
                    message = await asyncio.wait_for(page.get(), _BEAT_SECONDS)
                except TimeoutError:
                    yield _BEAT
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
        _empty(page)
        page.put_nowait(_END if message is _END else _RELOAD)


def _reload(page: asyncio.Queue[bytes]) -> None:
    _empty(page)
    page.put_nowait(_RELOAD)


def _empty(page: asyncio.Queue[bytes]) -> None:
    while not page.empty():
        page.get_nowait()
