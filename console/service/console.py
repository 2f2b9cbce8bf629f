"""One run of the console: makes every part, runs the server, and ends all of it."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from importlib.metadata import version
from typing import Final, TypeVar

import uvicorn

from console.access.identity import Access
from console.access.roles import note_roles
from console.config.settings import Settings
from console.decisions.service import Decisions
from console.decisions.signer import signer_of
from console.fleet.contact import Ears
from console.fleet.index import Fleet
from console.intake.writer import Writer
from console.notices.notice import Notice
from console.notices.notices import Notices
from console.notices.sinks import SITE, read_sinks
from console.service.asked import keep_written
from console.service.connections import limits, protocol
from console.service.follower import Follower
from console.service.news import apply, apply_beside, commands_to_offer, events_of
from console.service.server import Server, listener
from console.sources.enrolment import Enrolments, read_key
from console.sources.readers import make_readers, publishers
from console.sources.settings import read_sources
from console.sources.state import SourceState
from console.store.errors import StoreError
from console.store.opening import Database, database_url
from console.store.reading import News
from console.web.app import application
from console.web.desk import Desk
from console.web.stream import Stream

T = TypeVar("T")
_LOG: Final = logging.getLogger("console")
_TICK_SECONDS: Final = 1.0
_RETENTION_SECONDS: Final = 3600.0
_SWITCH_SECONDS: Final = 0.0005
_COLLECT_AFTER: Final = 10_000
"""New objects, until those in circles are looked for."""
_LOOP_SECONDS: Final = 10.0


class Console:
    """The parts of a run, wired."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = Database(database_url(settings))
        self.follower = Follower(self.database, deliver=self._deliver)
        self.writer = Writer(self.database, opened=self._opened, committed=self.follower.committed)
        key = None if settings.enroll_key_file is None else read_key(settings.enroll_key_file)
        sources = read_sources(settings.source)
        states = {name: SourceState(name=name, kind=each.kind) for name, each in sources.items()}
        self.readers = make_readers(
            sources,
            states,
            writer=self.writer,
            database=self.database,
            directory=settings.state_dir,
        )
        self.desk = Desk(
            settings=settings,
            fleet=Fleet(),
            database=self.database,
            writer=self.writer,
            sources=states,
            access=Access(settings, self.database),
            started_at=time.time(),
            enrolments=Enrolments(key),
        )
        self.desk.decisions = self.decisions = self._decisions()
        self.stream = Stream(self.desk)
        self.notices = Notices(
            list(read_sinks(settings.sink, version=version("scheduled-events-bridge")).values()),
            database=self.database,
            base=settings.public_url or f"http://{settings.listen}",
            site=SITE,
            look=self._look,
        )
        self.desk.deliveries = self.notices.deliveries
        self._loop: asyncio.AbstractEventLoop | None = None

    def _decisions(self) -> Decisions:
        return Decisions(
            self.database,
            self.desk.fleet,
            signer=signer_of(self.settings),
            publishers=publishers(self.readers),
            offer=self.desk.pull_queue.offer,
            committed=self.follower.wake,
            ears=self.desk.ears,
            on_loop=self._on_loop,
            four_eyes=self.settings.approval.four_eyes,
            clock=self.desk.now,
        )

    def run(self) -> None:
        """Run until SIGTERM or Ctrl-C.

        Raises `ConfigurationError` if the database is another's or of a newer schema; one that is
        away is waited for.
        """
        _set_up_interpreter()
        bounds = limits()
        self.desk.pull_queue.most = bounds.polls
        with suppress(StoreError):
            self.database.open()
        bound = listener(self.settings)
        config = uvicorn.Config(
            application(self.desk, self.stream),
            http=protocol(bounds),
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=3,
            server_header=False,
            proxy_headers=False,
        )
        server = Server(config)
        try:
            asyncio.run(self._serve(server, bound))
        finally:
            self.decisions.stop()
            for reader in self.readers:
                reader.stop()
            self.notices.stop()
            self.writer.stop()
            self.follower.stop()
            self.database.close()

    async def _serve(self, server: uvicorn.Server, listener: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self.desk.pull_queue.start()
        self.follower.start()
        self.writer.start()
        for state in self.desk.sources.values():
            if state.kind == "webhook":
                state.up(time.time())
        for reader in self.readers:
            reader.start()
        self.notices.start()
        tasks = [asyncio.create_task(self._tick(server))]
        if self.settings.pull:
            tasks.append(asyncio.create_task(keep_written(self.desk)))
        _LOG.info("listening on %s", self.settings.listen, extra={"action": "listening"})
        await server.serve([listener])
        for task in tasks:
            task.cancel()

    async def _tick(self, server: uvicorn.Server) -> None:
        """Once a second: what time alone changes. At the end: no stream holds the server."""
        retire_at = time.monotonic()
        while not server.should_exit:
            await asyncio.sleep(_TICK_SECONDS)
            if self.desk.loaded:
                await self.stream.time_passed()
                await self._end_strangers()
            if time.monotonic() >= retire_at:
                self.writer.retire_before(time.time() - self.settings.retention_days * 86_400)
                retire_at = time.monotonic() + _RETENTION_SECONDS
        self.stream.close()
        self.desk.pull_queue.close()

    async def _end_strangers(self) -> None:
        """End the streams whose token or session has ended since they were opened."""
        with suppress(StoreError):  # while the database does not answer, no token can be revoked
            self.stream.end(await self.desk.access.ended(self.stream.listeners()))

    def _opened(self) -> None:
        """On the writer's thread: the database is open."""
        note_roles(self.database, self.settings, now=time.time())
        self.follower.opened()

    def _deliver(self, news: News, first: bool) -> set[str]:  # noqa: FBT001
        """On the follower's thread: let the event loop apply it, and wait for that."""

        def work() -> set[str]:
            opened = apply(self.desk.fleet, news, self.stream)
            apply_beside(self.desk, news)
            self.desk.loaded = self.desk.loaded or first
            return opened

        try:
            opened: set[str] = self._on_loop(work) or set()
        except Exception:  # noqa: BLE001  # news that cannot be applied must not be the last
            _LOG.exception("this is a bug in the console", extra={"action": "news_bug"})
            opened = set(self.desk.fleet.events)
        self.decisions.news(events_of(news))
        for command in commands_to_offer(news):
            self.desk.pull_queue.offer(command.vm_id, command.jti)
        if first:
            self.decisions.start()
        return opened

    def _look(self, find: Callable[[Fleet, float, Ears], list[Notice]]) -> list[Notice]:
        """On the notices' thread: let the event loop look at the fleet, once it is in memory."""

        def work() -> list[Notice]:
            desk = self.desk
            return find(desk.fleet, desk.now(), desk.ears()) if desk.loaded else []

        return self._on_loop(work) or []

    def _on_loop(self, work: Callable[[], T]) -> T | None:
        """On another thread: call something on the event loop's, which alone uses the fleet.

        None if the loop has ended, or does not come to it.
        """
        loop = self._loop
        if loop is None or loop.is_closed():
            return None
        answer: Future[T] = Future()

        def call() -> None:
            try:
                answer.set_result(work())
            except Exception as error:  # noqa: BLE001  # it is raised on the thread that waits
                answer.set_exception(error)

        loop.call_soon_threadsafe(call)
        with suppress(TimeoutError):
            return answer.result(_LOOP_SECONDS)
        return None


def _set_up_interpreter() -> None:
    """Suit it to some threads that take in thousands of records a second."""
    # A source's thread gives up the interpreter at each read from its socket, and waits for its
    # turn behind the writer: 5 ms, Python's default, would be its pace.
    sys.setswitchinterval(_SWITCH_SECONDS)
    # A batch makes thousands of objects that are in no circle; Python's 700 is a tenth of the work.
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 20)
