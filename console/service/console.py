"""One run of the console: makes all parts, runs the server, and stops everything."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import sys
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from importlib.metadata import version
from typing import Final, TypeVar
from uuid import uuid4

import uvicorn

from console.access.identity import Access
from console.access.roles_audit import audit_roles
from console.approvals.service import Decisions
from console.config.load import exposed_secrets
from console.config.settings import ConsoleSettings
from console.db.connection.clock import CommonClock
from console.db.connection.errors import DatabaseFailedError
from console.db.connection.opening import Database, database_url
from console.db.snapshot import Snapshots
from console.db.turn_facts.kept_turn_facts import KeptTurnFacts
from console.db.turn_facts.turn_facts import TurnSettings
from console.fleet.contact import SilentTime
from console.ingest.listening import ListeningLog
from console.ingest.readers import make_readers, publishers
from console.ingest.settings import read_sources
from console.ingest.state import SourceState
from console.ingest.vm_limits import VmLimits
from console.ingest.vm_secrets import Enrolments, read_key
from console.ingest.writer import Writer
from console.notify.notice_worker import NoticeWorker
from console.notify.sinks import SITE, read_sinks
from console.service.change_feed import ChangeFeed
from console.service.change_listeners import ChangeListeners
from console.service.server import ended_by_signals, listener
from console.service.uvicorn_protocol import limits, protocol
from console.signing.configured_signer import configured_signer
from console.signing.signer import Signer
from console.turns.groups import Grouping
from console.web.api.stream import ChangeMessages, StreamHub
from console.web.app import application
from console.web.app_state import AppState
from console.web.bridges.held_polls import HeldPolls
from console.web.bridges.parts import BridgeRequestParts
from console.web.bridges.poll_times import PollTimes
from console.web.bridges.record_body import RecordBodies

T = TypeVar("T")
_LOG: Final = logging.getLogger("console")
_TICK_SECONDS: Final = 1.0
_RETENTION_SECONDS: Final = 3600.0
_SWITCH_SECONDS: Final = 0.0005
_COLLECT_AFTER: Final = 10_000
"""How many new objects there are before cycles of garbage are searched."""


class Console:
    """The parts of one run, connected with each other."""

    def __init__(
        self, settings: ConsoleSettings, *, clock: Callable[[], float] = time.time
    ) -> None:
        """`clock` returns seconds since 1970. A clock other than this machine's is not compared
        with the database's.
        """
        self.settings = settings
        self.clock = CommonClock(clock, is_compared=clock is time.time)
        self._own_clock = clock
        self._silent_time = SilentTime(seconds=settings.silent_after)
        self.grouping = Grouping(settings.groups)

        self.database = Database(database_url(settings))
        self.snapshots = Snapshots(
            self.database, silent_time=self._silent_time, grouping=self.grouping, clock=self.clock
        )
        self.feed = ChangeFeed(self.database)

        sources = read_sources(settings.source)
        self.sources = {
            name: SourceState(name=name, kind=each.kind) for name, each in sources.items()
        }
        self.writer = self._make_writer()
        self._vm_limits = VmLimits(records=settings.intake.records, size=settings.intake.kib * 1024)
        self.readers = make_readers(
            sources,
            self.sources,
            writer=self.writer,
            vm_limits=self._vm_limits,
            database=self.database,
            directory=settings.state_dir,
            now=self.clock,
        )
        key = None if settings.enroll_key_file is None else read_key(settings.enroll_key_file)
        self.enrolments = Enrolments(key)

        signer = configured_signer(settings)
        turns = TurnSettings(
            grouping=self.grouping,
            can_sign=signer is not None,
            four_eyes=settings.approval.four_eyes,
            retaining=frozenset(name for name, each in sources.items() if each.kind == "mqtt"),
        )
        self._turn_facts = KeptTurnFacts(turns)
        self.held_polls = HeldPolls()
        self.decisions = self._make_decisions(signer, turns)

        self.notices = self._make_notices()
        self.stream = StreamHub()
        self._listeners = ChangeListeners(
            self.database,
            enrolments=self.enrolments,
            held_polls=self.held_polls,
            decisions=self.decisions,
            stream=self.stream,
            messages=ChangeMessages(self.snapshots),
            on_loop=self._on_loop,
        )
        self.state = self._make_app_state()
        self._loop: asyncio.AbstractEventLoop | None = None

    def _make_writer(self) -> Writer:
        return Writer(
            self.database,
            on_open=self._on_opened,
            on_commit=self.feed.wake,
            on_break=self._read_again,
            on_incomplete=self._ask_about,
            listening=ListeningLog(uuid4().hex, self.sources.values()),
            silent_time=self._silent_time,
            grouping=self.grouping,
            clock=self.clock,
        )

    def _read_again(self) -> None:
        for reader in self.readers:
            reader.read_again()

    def _ask_about(self, vm_ids: Collection[str]) -> None:
        for reader in self.readers:
            reader.ask_about(vm_ids)

    def _make_decisions(self, signer: Signer | None, turns: TurnSettings) -> Decisions:
        return Decisions(
            self.snapshots,
            signer=signer,
            publishers=publishers(self.readers),
            offer=self.held_polls.offer,
            on_commit=self.feed.wake,
            connected=lambda: {name: state.since for name, state in self.sources.items()},
            four_eyes=self.settings.approval.four_eyes,
            change_pattern=self.settings.approval.change_pattern,
            turns=turns,
            turn_facts=self._turn_facts,
        )

    def _make_notices(self) -> NoticeWorker:
        settings = self.settings
        own = version("scheduled-events-bridge")
        sinks = read_sinks(settings.sink, version=own, port=settings.address[1])
        return NoticeWorker(
            list(sinks.values()),
            snapshots=self.snapshots,
            base=settings.public_url or f"http://{settings.listen}",
            site=SITE,
        )

    def _make_app_state(self) -> AppState:
        return AppState(
            settings=self.settings,
            database=self.database,
            snapshots=self.snapshots,
            writer=self.writer,
            sources=self.sources,
            access=Access(self.settings, self.database),
            decisions=self.decisions,
            grouping=self.grouping,
            turn_facts=self._turn_facts,
            bridges=BridgeRequestParts(
                writer=self.writer,
                enrolments=self.enrolments,
                vm_limits=self._vm_limits,
                bodies=RecordBodies(),
                held_polls=self.held_polls,
                poll_times=PollTimes(self.database),
                decisions=self.decisions,
                is_ready=self._is_ready,
                clock=self.clock,
                own_clock=self._own_clock,
            ),
            sink_workers=self.notices.workers,
            is_ready=self._is_ready,
            clock=self.clock,
        )

    def run(self) -> None:
        """Run until SIGTERM or Ctrl-C. Raises `ConfigurationError` if another console uses the
        database, or its schema is newer; if it cannot be reached, the run waits for it.
        """
        _set_up_interpreter()
        for line in exposed_secrets(self.settings):
            _LOG.warning("%s", line, extra={"action": "secret_exposed"})
        connection_limits = limits()
        self.held_polls.most = connection_limits.polls
        with suppress(DatabaseFailedError):
            self.database.open()
        bound = listener(self.settings)
        config = uvicorn.Config(
            application(self.state, self.stream),
            http=protocol(connection_limits),
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=3,
            server_header=False,
            proxy_headers=False,
        )
        server = uvicorn.Server(config)
        try:
            with ended_by_signals(server):
                asyncio.run(self._serve(server, bound))
        finally:
            self.decisions.stop()
            for reader in self.readers:
                reader.stop()
            self.notices.stop()
            self.writer.stop()
            self.feed.stop()
            self.database.close()

    async def _serve(self, server: uvicorn.Server, listener: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self.held_polls.start()
        self.feed.start(self._listeners.all())
        self.writer.start()
        for state in self.sources.values():
            if state.kind == "webhook":
                state.note_connected(self.clock())
        for reader in self.readers:
            reader.start()
        self.notices.start()
        tasks = [asyncio.create_task(self._tick(server))]
        if self.settings.pull:
            tasks.append(
                asyncio.create_task(self.state.bridges.poll_times.write_regularly(self.clock))
            )
        _LOG.info("listening on %s", self.settings.listen, extra={"action": "listening"})
        await server.serve([listener])
        for task in tasks:
            task.cancel()

    async def _tick(self, server: uvicorn.Server) -> None:
        """Do what depends on time alone; called once a second. At the end, close the streams, which
        would keep the server running.
        """
        retire_at = time.monotonic()
        while not server.should_exit:
            await asyncio.sleep(_TICK_SECONDS)
            if self.feed.ready:
                self.stream.send_sources(self.state.source_items())
                await self._close_ended_streams()
            if time.monotonic() >= retire_at:
                self.writer.delete_before(self.clock() - self.settings.retention_days * 86_400)
                retire_at = time.monotonic() + _RETENTION_SECONDS
        self.stream.close()
        self.held_polls.close()

    async def _close_ended_streams(self) -> None:
        """Close the streams whose token or session has ended since they were opened."""
        with suppress(
            DatabaseFailedError
        ):  # while the database does not answer, no token can be revoked
            self.stream.end(await self.state.access.ended(self.stream.listeners()))

    def _is_ready(self) -> bool:
        return self.feed.ready and self.writer.opened.is_set()

    def _on_opened(self) -> None:
        """Continue the start, on the writer's thread, now that the database is open."""
        audit_roles(self.database, self.settings, now=self.clock())
        self.feed.wake()
        self.decisions.start()

    def _on_loop(self, work: Callable[[T], None], value: T) -> None:
        """Call a function on the event loop's thread, in the order of these calls,
        without waiting.
        """
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(work, value)


def _set_up_interpreter() -> None:
    """Adapt the interpreter to a few threads that take in thousands of records a second."""
    # A source's thread releases the interpreter at each read from its socket, and then waits behind
    # the writer: with Python's default, 5 ms each time.
    sys.setswitchinterval(_SWITCH_SECONDS)
    # A batch makes thousands of objects without cycles; with Python's default, 700, the search for
    # cycles would take a tenth of the time.
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 20)
