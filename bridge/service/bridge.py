"""One run of the bridge: makes the parts, connects them, and stops them in order."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final

from bridge import system
from bridge.api.control import ControlServer
from bridge.api.control_requests import ControlRequests, shown_settings, starting_requests
from bridge.clock import Clock, SystemClock
from bridge.config.load import Configuration
from bridge.events.poller import PollResult
from bridge.imds.client import client
from bridge.service.assembly import assemble
from bridge.service.lifecycle import Lifecycle
from bridge.service.monitoring import Monitoring
from bridge.service.ownership import OpenFile, Ownership, open_readable
from bridge.service.scheduler import TICK_SECONDS, Scheduler, Watch
from bridge.store.database import Store, StoreError
from bridge.store.opening import FILE_NAME
from sinks.shared.errors import UnreachableError
from sinks.shared.logs import Redactor
from wire.vm import VmIdentity

_LOG: Final = logging.getLogger(__name__)

GRACE_SECONDS: Final = 5.0
"""How long a stop may take: each sink gets one immediate try within it."""
SETTLE_SECONDS: Final = 1.0
"""How long a stop waits for a poll that is under way, so that its records are delivered too."""
ONCE_SECONDS: Final = 30.0
"""How much time `seb run --once` gives its sinks."""
IDENTITY_SECONDS: Final = 3600.0
"""How often the VM's size and tags are read again."""
CONFIRM_SECONDS: Final = 2.0
"""How often IMDS is asked for the identity while this run uses a stored one."""


class RunEnd(Enum):
    """How a run ended."""

    STOPPED = "stopped"
    ANOTHER_VM = "another vm"
    """The state directory came from another VM: the next run begins with a new store."""
    DAMAGED_STORE = "damaged store"
    """The store cannot be read any more: the next run sets it aside and begins with a new one."""
    REPLACED_STORE = "replaced store"
    """The store's file was deleted or replaced: the next run begins with the current file."""


class Bridge:
    """One run of the bridge, from an open store to a closed one."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        stop: threading.Event,
        redact: Redactor,
        clock: Clock | None = None,
        boot_id: Callable[[], str | None] = system.boot_id,
    ) -> None:
        self._settings = configuration.settings
        self._sinks = configuration.sinks
        self._stop = stop
        self._redact = redact
        self._clock = clock or SystemClock()
        self._boot_id = boot_id()
        self._owner = Ownership(self._settings, self._clock, boot_id=self._boot_id)
        self._monitoring = Monitoring(self._settings, self._sinks, self._clock)
        self._outcome = RunEnd.STOPPED

    def run(self) -> RunEnd:
        """Run until told to stop. Raises `SebError` if it cannot begin."""
        store, reset = open_readable(self._settings.state_dir, self._clock.now())
        self._requests = starting_requests(store, self._settings, self._sinks, self._clock.now)
        self._control = ControlServer(self._settings.state_dir, self._answer)
        try:
            self._monitoring.open()
            on_failure = self._monitoring.note_try
            vm = self._owner.identify(store, stop=self._stop, patient=True, on_failure=on_failure)
            if vm is not None:
                store, reset = self._owner.own_store(store, reset, vm)
                self._assemble(store, vm)
                self._lifecycle.report_reset(reset)
                self._lifecycle.report_start()
                self._work()
            return self._outcome
        finally:
            self._control.close()
            self._monitoring.close()
            store.close()

    def run_once(self) -> bool:
        """Poll once and deliver; return whether every sink has everything. Raises
        `UnreachableError`.
        """
        where = f"IMDS at {self._settings.imds.url}"
        store, reset = open_readable(self._settings.state_dir, self._clock.now())
        try:
            on_failure = self._monitoring.note_try
            vm = self._owner.identify(store, stop=self._stop, patient=False, on_failure=on_failure)
            if vm is None:
                raise UnreachableError(f"{where} does not say who this VM is; see `seb check`")
            store, reset = self._owner.own_store(store, reset, vm)
            self._assemble(store, vm)
            self._lifecycle.report_reset(reset)
            polled = self._parts.poller.run()
            self._parts.approval_worker.run_once()  # prepares what is due, and approves nothing
            if not self._owner.may_deliver:
                raise UnreachableError(f"{where} does not confirm who this VM is; see `seb check`")
            self._parts.dispatcher.start()
            self._parts.dispatcher.finish(ONCE_SECONDS)
            if not polled:
                raise UnreachableError(f"{where} gave no document; see `seb check`")
            return not self._undelivered()
        finally:
            store.close()

    def _answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a command of this machine. Before the identity is known, only some parts exist."""
        requests = self._requests
        answer = requests.answer(request)
        if requests is not self._requests:
            # It came while the bridge started, and may have had dead records tried again.
            self._parts.outbox.dead.reload()
        return answer

    def _assemble(self, store: Store, vm: VmIdentity) -> None:
        self._file = OpenFile(store.directory / FILE_NAME)
        self._parts = assemble(
            self._settings,
            self._sinks,
            store,
            vm=vm,
            imds=client(self._settings, clock=self._clock, answered_at=store.polled_at()),
            clock=self._clock,
            boot_id=self._boot_id,
            redact=self._redact,
            on_poll=self._note_poll,
            on_delivered=self._monitoring.note_delivered,
        )
        self._monitoring.begin(self._parts.running)
        sinks = list(self._parts.dispatcher.health)
        self._lifecycle = Lifecycle(
            self._parts.current, store, self._settings, self._clock, sinks=sinks
        )

    def _note_poll(self, poll: PollResult) -> None:
        """Note the result of a poll, and end the run if its store was replaced: records in a file
        that has lost its name would be lost with this process, and another bridge may use the new
        file.
        """
        self._monitoring.note_poll(poll)
        if self._outcome is RunEnd.STOPPED and self._file.is_replaced():
            _LOG.error(
                "the file of the store was deleted or replaced while it was in use",
                extra={"action": "store_replaced", "path": str(self._file.path)},
            )
            self._end_run(RunEnd.REPLACED_STORE)

    def _end_run(self, outcome: RunEnd) -> None:
        """Have the main thread end the run, which it does at its next tick. Nothing more is
        approved: that would be stored where the next run does not look.
        """
        self._outcome = outcome
        self._parts.approval_worker.stop(0.0)

    def _work(self) -> None:
        """Poll and deliver until told to stop; the calling thread supervises meanwhile."""
        settings = self._settings
        scheduler = Scheduler(self._clock)
        watch = Watch(self._clock)
        self._monitoring.status.skipped = lambda: scheduler.skipped
        scheduler.every(settings.poll_interval, self._parts.poller.run)
        scheduler.every(IDENTITY_SECONDS, self._ask_identity, first=IDENTITY_SECONDS)
        stop_asking = scheduler.every(CONFIRM_SECONDS, self._ask_identity, first=CONFIRM_SECONDS)
        if beat := settings.heartbeat_interval:
            scheduler.every(beat, self._lifecycle.report_heartbeat, first=beat)
        self._requests = ControlRequests(
            self._parts.outbox,
            self._parts.dispatcher,
            self._parts.current,
            self._parts.approval_worker,
            store_trouble=self._monitoring.status.store_trouble,
            settings=shown_settings(settings, self._sinks),
        )
        self._parts.outbox.dead.reload()  # a person may have had some tried again meanwhile
        self._monitoring.status.held = lambda: not self._owner.may_deliver
        self._monitoring.status.approves = lambda: self._parts.approval_worker.is_confirmed
        self._start_if_confirmed(stop_asking)
        self._parts.approval_worker.start()
        scheduler.start()
        while self._outcome is RunEnd.STOPPED and not self._stop.wait(TICK_SECONDS):
            self._start_if_confirmed(stop_asking)
            self._supervise(scheduler, watch)
        self._start_if_confirmed(stop_asking)
        if self._outcome is RunEnd.STOPPED:
            self._monitoring.note_stopping()
        scheduler.stop()
        self._control.close()
        self._parts.poller.wait_until_idle(SETTLE_SECONDS)
        self._parts.approval_worker.stop(SETTLE_SECONDS)
        self._finish()

    def _start_if_confirmed(self, stop_asking: Callable[[], None]) -> None:
        """Start to deliver and to approve once the identity allows it; `stop_asking` ends the job
        that asks for the identity.
        """
        if not self._parts.dispatcher.is_started and self._owner.may_deliver:
            self._parts.dispatcher.start()
        if not self._parts.approval_worker.is_confirmed and self._owner.confirmed:
            stop_asking()
            self._parts.approval_worker.confirm()

    def _supervise(self, scheduler: Scheduler, watch: Watch) -> None:
        tick = watch.tick()
        if tick.pause:
            self._parts.current.gaps.note_standstill(tick.pause)
        if still := tick.pause + tick.suspended:
            self._monitoring.note_standstill(still)
            _LOG.info("the VM stood still", extra={"action": "pause", "seconds": still})
        if tick.suspended:
            self._monitoring.note_suspension()
        if tick.jump or tick.suspended:
            scheduler.run_now()
        if tick.jump:
            self._monitoring.note_clock_jump()
            _LOG.warning(
                "the wall clock jumped", extra={"action": "clock_jump", "seconds": tick.jump}
            )
        self._parts.dispatcher.supervise()
        if self._parts.store.damaged is not None:
            self._end_run(RunEnd.DAMAGED_STORE)

    def _finish(self) -> None:
        self._lifecycle.report_stop(self._outcome.value)
        in_time = self._parts.dispatcher.finish(GRACE_SECONDS)
        _LOG.info(
            "the bridge has stopped",
            extra={
                "action": "stopped",
                "undelivered": ",".join(self._waiting()) or None,
                "stuck": None if in_time else True,
            },
        )

    def _waiting(self) -> list[str]:
        """Return the sinks with a backlog for the last line of the log; a failing store must not
        prevent that line.
        """
        try:
            return self._undelivered()
        except StoreError:
            return list(self._parts.dispatcher.health)

    def _undelivered(self) -> list[str]:
        outbox = self._parts.outbox
        return [name for name in self._parts.dispatcher.health if outbox.backlog(name).records]

    def _ask_identity(self) -> None:
        before = self._parts.current.vm
        vm = self._owner.refresh(self._parts.store, before)
        if vm is None:
            self._end_run(RunEnd.ANOTHER_VM)
        elif vm is not before:
            self._parts.current.set_identity(vm)
