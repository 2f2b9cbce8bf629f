"""`/api/v1/stream`: server-sent events for every open page; a slow page does not delay others.

It says what has changed, from the rows that later transactions wrote; then a page requests it.
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
from console.db.connection.transactions import newest_change_number
from console.db.decisions import decision_rows
from console.db.events.changed_events import changed_event_ids
from console.db.events.named_vms import named_vm_ids
from console.db.snapshot import Snapshot, Snapshots
from console.db.vms.expectations import expectations_of
from console.fleet import event_view, fleet_view
from console.fleet.commands import command_item
from console.fleet.contact import Listening
from console.fleet.values.vm import HeardVm
from console.web.answers import refuse
from console.web.api.vms import vm_items
from console.web.caller import identity_of

_QUEUE: Final = 1000
"""How many messages a page may be behind; then it has to read everything again."""
_MAX_PAGES: Final = 500
_MAX_OF_ONE: Final = 30
"""The limit for one person or program, so that one cannot crowd out the others."""
_MAX_CHANGES: Final = 500
"""Up to so many changed events and VMs have a message each; with more, pages read
everything again.
"""
_TIME_SECONDS: Final = 1.0
"""The time between two checks for changes by time alone: each reads every VM."""
_BEAT_SECONDS: Final = 5.0
"""A page that receives nothing for a few of these knows that the console hangs."""
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
    """The sites whose readers get it; None: everybody."""

    def encode(self) -> bytes:
        """Return the bytes that are sent."""
        text = self.item.model_dump_json(by_alias=True)
        return f"event: {self.kind}\ndata: {text}\n\n".encode()


class ChangeMessages:
    """Makes the messages for open pages: what has changed in the database since the last call. Used
    on one thread.
    """

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._change_number: int | None = None
        self._then = 0.0
        self._listening = Listening()

    def skip(self) -> None:
        """Leave out what has changed so far: no page is open. Raises `DatabaseFailedError`."""
        with self._snapshots.open() as snapshot:
            self._change_number = newest_change_number(snapshot.connection)
            self._then = snapshot.now
            self._listening = snapshot.listening

    def messages(self) -> list[StreamMessage] | None:
        """Return what has changed since the last call; None: pages have to read everything again.
        Raises `DatabaseFailedError`; then the next call returns it.
        """
        found: list[StreamMessage] | None = []
        with self._snapshots.open() as snapshot:
            change_number = newest_change_number(snapshot.connection)
            since = self._change_number
            vms = [] if since is None else snapshot.vms.changed_vms(since)
            has_passed = abs(snapshot.now - self._then) >= _TIME_SECONDS
            if since is not None and has_passed:
                vms += snapshot.vms.vms_changed_by_time(self._then, self._listening)
            # The database was restored: it is not known what has changed.
            if since is not None and change_number < since:
                found = None
            elif since is not None and (change_number != since or vms):
                found = self._since(snapshot, since, {each.vm.vm_id: each for each in vms})
        self._change_number = change_number
        if has_passed:
            self._then = snapshot.now
            self._listening = snapshot.listening
        return found

    def _since(
        self, snapshot: Snapshot, since: int, vms: dict[str, HeardVm]
    ) -> list[StreamMessage] | None:
        event_ids = set(changed_event_ids(snapshot.connection, since))
        if len(event_ids) + len(vms) > _MAX_CHANGES:
            return None
        # A VM's condition depends on events, and the status of a decision depends on VMs.
        named = named_vm_ids(snapshot.connection, event_ids) - set(vms)
        expected = expectations_of(snapshot.connection, vms)
        event_ids |= {event_id for each in expected.values() for event_id in each.events}
        heard = [*vms.values(), *snapshot.vms.vms_with_ids(named)]
        messages = [
            StreamMessage(
                kind="event",
                item=event_view.event_item(
                    known, snapshot.now, snapshot.listening, shows_other_scopes=False
                ),
                sites=known.event.sites,
            )
            for known in snapshot.events.events_with_ids(sorted(event_ids))
        ]
        commands = decision_rows.commands_changed(snapshot.connection, since)
        sites = {
            each.vm.vm_id: each.vm.site
            for each in snapshot.vms.vms_with_ids({command.vm_id for command, _ in commands})
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
    """The open streams; used on the event loop's thread."""

    def __init__(self) -> None:
        self._pages: dict[asyncio.Queue[bytes], Identity] = {}
        self._sources: dict[str, Any] = {}
        self._closed = False

    async def listen(self, request: Request) -> Response:
        """Answer with a page's stream."""
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
        """Check whether a person or program has as many streams open as allowed."""
        name = identity.person.name
        return sum(each.person.name == name for each in self._pages.values()) >= _MAX_OF_ONE

    def close(self) -> None:
        """End every stream, so that the server can stop."""
        self._closed = True
        for page in self._pages:
            _queue(page, _END)

    @property
    def has_listeners(self) -> bool:
        """Whether any page has a stream open."""
        return bool(self._pages)

    def listeners(self) -> set[Identity]:
        """Return the identities whose streams are open."""
        return set(self._pages.values())

    def end(self, identities: Collection[Identity]) -> None:
        """End the streams of these identities."""
        for page, identity in self._pages.items():
            if identity in identities:
                _queue(page, _END)

    def send(self, messages: Iterable[StreamMessage] | None) -> None:
        """Send each page the messages that it may see; None: it has to read everything again."""
        if messages is None:
            for page in self._pages:
                _reload(page)
            return
        for message in messages:
            encode = message.encode()
            for page, identity in self._pages.items():
                site = identity.person.site
                if site is None or message.sites is None or site in message.sites:
                    _queue(page, encode)

    def send_sources(self, items: Iterable[fleet_view.Source]) -> None:
        """Send the state of the sources that have changed."""
        for item in items:
            shape = (item.connected, item.trouble)
            if self._sources.get(item.name) != shape:
                self._sources[item.name] = shape
                self.send([StreamMessage(kind="source", item=item)])

    async def _messages(self, identity: Identity) -> AsyncIterator[bytes]:
        if self._has_many(identity):  # several requests may have come at once
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


def _queue(page: asyncio.Queue[bytes], message: bytes) -> None:
    """Queue a message; a page that is too far behind has to read everything again instead."""
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
