"""The status of a bridge, as one JSON object. It only reads, and has no secret."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from bridge.api.control_requests import sink_line
from bridge.api.liveness import Liveness
from bridge.clock import Clock
from bridge.config.settings import Settings
from bridge.delivery.dispatcher import Dispatcher
from bridge.events.state import CurrentState
from bridge.events.tracked import TrackedEvent
from bridge.store.database import Store, StoreError
from bridge.store.history import History
from bridge.store.opening import FILE_NAME
from bridge.store.outbox import Backlog, Outbox
from bridge.version import __version__
from wire.moment import rfc3339

COUNT_SECONDS: Final = 1.0
"""How long the result of a count is reused: counting a long backlog takes time."""
COUNT_SHARE: Final = 50
"""The same limit, as a multiple of the time that the count took."""
LOCK_SECONDS: Final = 1.0
"""How long a request waits for another one: a disk that does not answer blocks one, not all."""
MIN_FREE_BYTES: Final = 256 << 10
"""With less free space on its disk, the store can commit one or two changes at most."""
BUSY: Final = "the store does not answer; check its disk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The objects that the status reads once the VM identity is known."""

    current: CurrentState
    store: Store
    outbox: Outbox
    dispatcher: Dispatcher
    refusals_by_reason: Callable[[], Mapping[str, int]]
    """How many commands were refused, by reason."""
    trust_trouble: Callable[[], str | None]
    """Returns why no key is trusted now, although a file of keys is configured; None if one is."""


class Status:
    """The state of one run. Any thread may read it, even before the VM identity is known."""

    def __init__(self, settings: Settings, clock: Clock, liveness: Liveness) -> None:
        self._settings = settings
        self._clock = clock
        self.liveness = liveness
        self._started_at = clock.now()
        self.running: Running | None = None
        """The objects of the run; None until the VM identity is known."""
        self._lock = threading.Lock()
        self._backlogs: Mapping[str, Backlog] | None = None
        self._count_at = 0.0
        """Monotonic time of the next count of the backlogs."""
        self.history: History | None = None
        """The records of the store in use; None until the VM identity is known."""
        self.skipped: Callable[[], int] = lambda: 0
        """How many polls were skipped because the one before had not ended."""
        self.held: Callable[[], bool] = lambda: False
        """Whether delivery waits until the identity is confirmed."""
        self.approves: Callable[[], bool] = lambda: True
        """Whether rules and commands count. They do not before the identity is confirmed."""
        self.starting_trouble: str | None = None
        """Why the VM identity is not known yet; None if it is known, or was not asked for yet."""

    def begin(self, running: Running, history: History) -> None:
        """Note that the VM identity is known and the run begins."""
        self.running = running
        self.history = history
        self.starting_trouble = None

    def is_alive(self) -> bool:
        """Check whether the poll loop is alive: if not, a restart helps; otherwise it does not."""
        return self.liveness.is_alive()

    def is_polling(self) -> bool:
        """Check whether IMDS has given a document recently."""
        return self.running is not None and self.running.current.gaps.is_polling()

    def not_ready(self) -> str | None:
        """Return why changes would be missed or could not be committed; None if the bridge is
        ready.
        """
        if not self.is_polling():
            trouble = self._trouble()
            return trouble["message"] if trouble else "IMDS has not given a document recently"
        if self.held():
            return "IMDS has not confirmed the VM identity: nothing is delivered until it does"
        return self.store_trouble()

    def approval_trouble(self) -> str | None:
        """Return why rules or commands have no effect now; None if nothing prevents it, or if
        neither a rule nor a key is configured.
        """
        approval = self._settings.approval
        if self.running is None or not (approval.rules or approval.trust):
            return None
        if not self.approves():
            return "IMDS has not confirmed the VM identity: nothing is approved until it does"
        trouble = self.running.trust_trouble()
        return trouble and f"no command is accepted: {trouble}"

    def store_trouble(self) -> str | None:
        """Return why the store cannot be written now; None if it can be, or is not in use yet."""
        if self.running is None:
            return None
        store = self.running.store
        if tracked := store.damaged or self.running.current.store_trouble or store.trouble:
            return tracked
        directory = self._settings.state_dir
        try:
            free = shutil.disk_usage(directory).free
        except OSError as error:
            return str(error)
        return (
            f"the disk of {directory} is full: free some space" if free < MIN_FREE_BYTES else None
        )

    def backlogs(self) -> Mapping[str, Backlog]:
        """Return the backlog of each sink, at most a second old. Raises `StoreError`."""
        running = self.running
        if running is None:
            return {}
        if not self._lock.acquire(timeout=LOCK_SECONDS):
            raise StoreError(BUSY)
        try:
            now = self._clock.monotonic()
            if self._backlogs is None or now >= self._count_at:
                names = running.dispatcher.health
                self._backlogs = {name: running.outbox.backlog(name) for name in names}
                # It blocks commits: a long count is not repeated soon.
                ended = self._clock.monotonic()
                self._count_at = ended + max(COUNT_SECONDS, COUNT_SHARE * (ended - now))
            return self._backlogs
        finally:
            self._lock.release()

    def store_bytes(self) -> int:
        """Return the size of the store's file and of what is not yet written back to it."""
        path = self._settings.state_dir / FILE_NAME
        files = (path, path.with_name(f"{FILE_NAME}-wal"))
        return sum(each.stat().st_size for each in files if each.exists())

    def snapshot(self) -> dict[str, Any]:
        """Return everything, as the status API shows it."""
        running = self.running
        observer = running.current.observer.to_wire() if running else {}
        not_ready = self.not_ready()
        return {
            "now": rfc3339(self._clock.now()),
            "version": __version__,
            "instanceId": observer["bridge"]["instanceId"] if running else None,
            "startedAt": rfc3339(self._started_at),
            "site": self._settings.site,
            "healthy": self.is_alive(),
            "ready": not_ready is None,
            "notReady": not_ready,
            "looking": self.is_polling(),
            "approvalTrouble": self.approval_trouble(),
            "vm": observer.get("vm"),
            "node": observer.get("node"),
            "imds": self._imds(),
            "store": self._store(),
            "events": [self._event(each) for each in self.pending()],
            "sinks": self._sinks(),
        }

    def _event(self, tracked: TrackedEvent) -> dict[str, Any]:
        preparation = self.running.current.preparation(tracked) if self.running else None
        return {**_event(tracked), "preparation": preparation}

    def pending(self) -> list[TrackedEvent]:
        """Return the pending events, the nearest first."""
        tracked = self.running.current.events.values() if self.running else ()
        far = datetime.max.replace(tzinfo=self._started_at.tzinfo)
        return sorted(
            (each for each in tracked if each.pending),
            key=lambda each: (each.status != "Started", each.event.not_before or far),
        )

    def _trouble(self) -> dict[str, str] | None:
        if self.starting_trouble is not None:
            return {"reason": "identity", "message": self.starting_trouble}
        trouble = self.running.current.trouble if self.running else None
        return None if trouble is None else {"reason": trouble.reason, "message": trouble.message}

    def _imds(self) -> dict[str, Any]:
        current = self.running.current if self.running else None
        attempted = self.liveness.attempted_at
        polled = current and current.gaps.polled_at
        return {
            "lastAttemptAt": attempted and rfc3339(attempted),
            "lastSuccessAt": polled and rfc3339(polled),
            "trouble": self._trouble(),
            "incarnation": current and current.incarnation,
            "apiVersion": current.api_version if current else self._settings.imds.api_version,
            "pollIntervalSeconds": self._settings.poll_interval,
        }

    def _store(self) -> dict[str, Any]:
        store = self.running.store if self.running else None
        trouble = self.store_trouble()
        return {
            "writable": store is not None and trouble is None,
            "trouble": trouble,
            "stream": store and store.stream,
            "lastSequence": store.head if store else 0,
            "sizeBytes": self.store_bytes(),
        }

    def _sinks(self) -> list[dict[str, Any]]:
        if self.running is None:
            return []
        try:
            backlogs = self.backlogs()
        except StoreError:
            backlogs = {}
        recipients = self.running.outbox.recipients
        return [
            sink_line(
                name,
                recipient=recipients.get(name),
                configured=True,
                health=health,
                backlog=backlogs.get(name),
                now=self._clock.monotonic(),
            )
            for name, health in self.running.dispatcher.health.items()
        ]


def _event(tracked: TrackedEvent) -> dict[str, Any]:
    measured = tracked.measured
    return {
        **tracked.as_reported.to_wire(),
        "affectsThisVm": tracked.affects_this_vm,
        "impact": tracked.event.impact,
        "revision": tracked.revision,
        "fingerprint": tracked.fingerprint,
        "firstSeenAt": rfc3339(tracked.first_seen),
        "noticeSeconds": tracked.notice_seconds,
        "measured": {
            "pauseSeconds": measured.pause_seconds,
            "restarted": measured.restarted,
            "downtimeSeconds": measured.downtime_seconds,
        },
    }
