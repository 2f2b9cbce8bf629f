"""One run of the console: makes every part, runs the server, and ends all of it."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import uvicorn

from console.config.settings import Settings
from console.errors import ConfigurationError
from console.fleet.index import Fleet
from console.intake.writer import Writer
from console.service.follower import Follower
from console.service.news import apply
from console.sources.enrolment import read_key
from console.sources.readers import make_readers
from console.sources.settings import read_sources
from console.sources.state import SourceState
from console.store.errors import StoreError
from console.store.opening import Database, database_url
from console.store.reading import News
from console.web.app import application
from console.web.desk import Desk
from console.web.stream import Stream

_LOG: Final = logging.getLogger("console")
_TICK_SECONDS: Final = 1.0
_RETENTION_SECONDS: Final = 3600.0
_SWITCH_SECONDS: Final = 0.0005


def _listener(settings: Settings) -> socket.socket:
    """The socket that the server accepts on. Raises `ConfigurationError` if it cannot be had."""
    host, port = settings.address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise ConfigurationError(
            f"SEB_CONSOLE_LISTEN: {settings.listen} cannot be used ({error.strerror}); stop what "
            "listens there, or choose another port"
        ) from None


class _Server(uvicorn.Server):
    """Ends in good order at a signal; uvicorn's own raises the signal again afterwards."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Listen for the signals that end a process, Windows' Ctrl-Break included."""
        numbers = [getattr(signal, name, None) for name in ("SIGTERM", "SIGINT", "SIGBREAK")]
        before = {each: signal.signal(each, self.handle_exit) for each in numbers if each}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Console:
    """The parts of a run, wired."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = Database(database_url(settings))
        self.follower = Follower(self.database, deliver=self._deliver)
        self.writer = Writer(
            self.database, opened=self.follower.opened, committed=self.follower.committed
        )
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
            started_at=time.time(),
            enroll_key=key,
        )
        self.stream = Stream(self.desk)
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self) -> None:
        """Run until SIGTERM or Ctrl-C.

        Raises `ConfigurationError` if the database is another's or of a newer schema; one that is
        away is waited for.
        """
        # A source's thread gives up the interpreter at each read from its socket, and waits for
        # its turn behind the writer: 5 ms, Python's default, would be its pace.
        sys.setswitchinterval(_SWITCH_SECONDS)
        with suppress(StoreError):
            self.database.open()
        listener = _listener(self.settings)
        config = uvicorn.Config(
            application(self.desk, self.stream),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=3,
            server_header=False,
            proxy_headers=False,
        )
        server = _Server(config)
        try:
            asyncio.run(self._serve(server, listener))
        finally:
            for reader in self.readers:
                reader.stop()
            self.writer.stop()
            self.follower.stop()
            self.database.close()

    async def _serve(self, server: uvicorn.Server, listener: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self.follower.start()
        self.writer.start()
        for state in self.desk.sources.values():
            if state.kind == "webhook":
                state.up(time.time())
        for reader in self.readers:
            reader.start()
        ticking = asyncio.create_task(self._tick(server))
        _LOG.info("listening on %s", self.settings.listen, extra={"action": "listening"})
        await server.serve([listener])
        ticking.cancel()

    async def _tick(self, server: uvicorn.Server) -> None:
        """Once a second: what time alone changes. At the end: no stream holds the server."""
        retire_at = time.monotonic()
        while not server.should_exit:
            await asyncio.sleep(_TICK_SECONDS)
            if self.desk.loaded:
                self.stream.time_passed()
            if time.monotonic() >= retire_at:
                self.writer.retire_before(time.time() - self.settings.retention_days * 86_400)
                retire_at = time.monotonic() + _RETENTION_SECONDS
        self.stream.close()

    def _deliver(self, news: News, first: bool) -> set[str]:  # noqa: FBT001
        """On the follower's thread: let the event loop apply it, and wait for that."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return set()
        applied = threading.Event()
        opened: set[str] = set()

        def work() -> None:
            try:
                opened.update(apply(self.desk.fleet, news, self.stream))
                self.desk.loaded = self.desk.loaded or first
            finally:
                applied.set()

        loop.call_soon_threadsafe(work)
        applied.wait(10)
        return opened
