"""Health, status and metrics of a run; delivery never depends on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bridge import system
from bridge.api.liveness import Liveness
from bridge.api.status import Running, Status
from bridge.clock import Clock
from bridge.config.address import parsed
from bridge.config.load import SinkSpec
from bridge.config.settings import Settings
from bridge.events.poller import PollResult
from bridge.service.systemd import Watchdog
from bridge.store.history import History

if TYPE_CHECKING:
    from bridge.api.metrics import Metrics
    from bridge.api.server import Server


class Monitoring:
    """HTTP server, metrics and watchdog, from before the VM identity is known until the last record
    is delivered.
    """

    def __init__(self, settings: Settings, sinks: Sequence[SinkSpec], clock: Clock) -> None:
        self._settings = settings
        self._sinks = sinks
        self._watchdog = Watchdog(system.notify, limit=system.watchdog_seconds())
        self.liveness = Liveness(
            clock,
            interval=settings.poll_interval,
            timeout=settings.imds.timeout,
            first_timeout=settings.imds.first_timeout,
            on_beat=self._watchdog.feed,
        )
        self.status = Status(settings, clock, self.liveness)
        self._metrics: Metrics | None = None
        self._server: Server | None = None

    def open(self) -> None:
        """Start the HTTP server, if it is configured, and tell the service manager."""
        if self._settings.http.listen:
            # Imported here, so that a bridge without the server does not load it.
            from bridge.api.metrics import Metrics  # noqa: PLC0415
            from bridge.api.server import Server  # noqa: PLC0415
            from bridge.api.web import Web  # noqa: PLC0415

            address, port = parsed(self._settings.http.listen)
            kinds = [(spec.name, spec.settings.kind) for spec in self._sinks]
            self._metrics = metrics = Metrics(self.status, kinds)
            hosts = self._settings.http.hosts
            web = Web(self.status, metrics, host=address, names=hosts)
            self._server = Server(web, address, port)
        self._watchdog.ready("waiting for IMDS", allowance=self.liveness.allowance)

    def note_try(self, trouble: str) -> None:
        """Note that IMDS was asked for the VM identity and did not give it; `trouble` says why."""
        self.status.starting_trouble = trouble
        self.liveness.beat()

    def begin(self, running: Running) -> None:
        """Show the parts of the run, which exist now."""
        history = History(running.store)
        if self._metrics is not None:
            running.store.subscribe(self._metrics.note_committed)
        running.store.subscribe(history.note_committed)
        self.status.begin(running, history)
        self.liveness.beat(was_sent=False)
        self._watchdog.status("polling IMDS")

    def note_poll(self, poll: PollResult) -> None:
        """Note that a poll has ended."""
        self.liveness.beat(was_sent=poll.was_sent, answered=poll.answered)
        if self._metrics is not None and poll.was_sent:
            self._metrics.note_poll(poll.seconds, poll.trouble)

    def note_delivered(self, sink: str, lags: Sequence[float]) -> None:
        """Note that a sink has acknowledged records, each so many seconds after its commit."""
        if self._metrics is not None:
            self._metrics.note_delivered(sink, lags)

    def note_standstill(self, seconds: float) -> None:
        """Note a measured pause of the VM."""
        if self._metrics is not None:
            self._metrics.note_standstill(seconds)

    def note_suspension(self) -> None:
        """Note that the kernel had suspended the VM: if that was for a day, the next poll may take
        as long as the first one, and no poll has told the service manager.
        """
        self._watchdog.feed(self.liveness.allowance)

    def note_clock_jump(self) -> None:
        """Note that the wall clock was set."""
        if self._metrics is not None:
            self._metrics.note_clock_jump()

    def note_stopping(self) -> None:
        """Note that the process is about to end in good order."""
        self._watchdog.stopping()

    def close(self) -> None:
        """Stop the HTTP server and close the history."""
        if self.status.history is not None:
            self.status.history.close()
        if self._server is not None:
            self._server.close()
