"""The bridge's records about its own run: started, heartbeat, stopped, store reset."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from bridge.clock import Clock
from bridge.config.settings import Settings
from bridge.events import bridge_records
from bridge.events.gaps import slow_answers
from bridge.events.state import CurrentState
from bridge.store.database import Store, StoreError
from bridge.version import __version__
from wire.bridge import StoreReset
from wire.observer import Observer
from wire.record import RecordDraft

_LOG: Final = logging.getLogger(__name__)


class Lifecycle:
    """Commits these records for one run."""

    def __init__(
        self,
        current: CurrentState,
        store: Store,
        settings: Settings,
        clock: Clock,
        *,
        sinks: Sequence[str],
    ) -> None:
        """`sinks`: the names of the configured ones."""
        self._current = current
        self._store = store
        self._sinks = list(sinks)
        self._settings = settings
        self._clock = clock

    @property
    def _observer(self) -> Observer:
        return self._current.observer

    def report_reset(self, reset: StoreReset | None) -> None:
        """Report that the store was lost and replaced, if it was. Raises `StoreError`."""
        if reset is not None:
            self._store.commit(
                [bridge_records.store_reset(self._observer, self._clock.now(), reset)]
            )
            _LOG.warning(
                "the store was lost; a new one is in use",
                extra={"action": "store_reset", "reason": reset.reason, "kept_as": reset.kept_as},
            )

    def report_start(self) -> None:
        """Report the start of the run, and the time without polls before it. Raises
        `StoreError`.
        """
        now = self._clock.now()
        gaps = self._current.gaps
        draft = bridge_records.started(
            self._observer,
            now,
            sinks=self._sinks,
            restarted=gaps.rebooted,
            gap_seconds=gaps.gap(now).seconds,
            prepares=self._current.prepares,
        )
        self._store.commit([draft])
        _LOG.info(
            "the bridge has started",
            extra={
                "action": "started",
                "version": __version__,
                "vm": self._observer.vm.name,
                "sinks": ",".join(self._sinks),
                "state_dir": str(self._settings.state_dir),
            },
        )
        approval = self._settings.approval
        slow = slow_answers(self._settings.poll_interval, self._settings.imds.timeout)
        if slow is not None and (approval.rules or approval.trust is not None):
            _LOG.warning(slow, extra={"action": "slow_answers"})

    def report_heartbeat(self) -> None:
        """Report that the bridge is alive, if the store can be written."""
        self._try_commit(
            bridge_records.heartbeat(
                self._observer,
                self._clock.now(),
                interval=self._settings.heartbeat_interval,
                polled_at=self._current.gaps.polled_at,
                pending=len(self._current.pending()),
                last_sequence=self._store.last_record_sequence,
                prepares=self._current.prepares,
            )
        )

    def report_stop(self, reason: str) -> None:
        """Report that the run ends in good order, if the store can be written."""
        self._try_commit(bridge_records.stopped(self._observer, self._clock.now(), reason=reason))

    def _try_commit(self, draft: RecordDraft) -> None:
        """Commit a record that may be missing: the next one replaces it."""
        try:
            self._store.commit([draft])
        except StoreError as error:
            _LOG.warning(str(error), extra={"action": "store_trouble"})
