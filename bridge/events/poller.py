"""Polls IMDS: request, compare, commit, wake the sinks. `Poller.poll` is the overview."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from bridge.clock import Clock, uptime
from bridge.events import bridge_records
from bridge.events.diff import PollContext, Transition, diff, only_naming
from bridge.events.gaps import PollGap
from bridge.events.normalize import normalize
from bridge.events.state import CurrentState, PollTrouble
from bridge.events.tracked import TrackedEvent, as_shown, dump_tracked, measure, remembered
from bridge.imds.client import Imds, ImdsAnswer, ImdsError
from bridge.imds.document import Document, DocumentError, parse_document
from bridge.store.database import Store, StoreError
from bridge.store.rows import EventRow
from wire.moment import rfc3339
from wire.record import Record, RecordDraft

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PollResult:
    """The result of one poll."""

    was_sent: bool = True
    """Whether a request was sent: after a Retry-After none is sent for a while."""
    seconds: float = 0.0
    trouble: str | None = None
    """Why it gave no document, in one word; None if it gave one, or sent no request."""

    @property
    def answered(self) -> bool:
        """Whether IMDS gave a document, and what changed is committed."""
        return self.was_sent and self.trouble is None


class Poller:
    """Polls IMDS, commits what changed and keeps the state. Used by one thread at a time."""

    def __init__(
        self,
        imds: Imds,
        store: Store,
        current: CurrentState,
        clock: Clock,
        *,
        scope_self: bool,
        boot_id: str | None,
        approved: Callable[[], Mapping[str, int]],
        on_poll: Callable[[PollResult], None] = lambda _: None,
    ) -> None:
        self._current = current
        self._imds = imds
        self._store = store
        self._clock = clock
        self._scope_self = scope_self
        self._boot_id = boot_id
        self._approved = approved
        self._on_poll = on_poll
        self._body: bytes | None = None
        self._polling = threading.Lock()
        self._not_before = clock.monotonic()

    def poll(self) -> None:
        """Poll once: changes are committed before sinks wake. On any error nothing has changed."""
        self._current.gaps.begin_poll()
        answer = self._imds.events()
        now = self._clock.now()  # the first answer may take two minutes
        gap = self._current.gaps.gap(now)
        # From here on nothing is decided on the document before, however long the commit takes.
        self._current.is_behind = answer.body != self._body
        is_named_anew = self._current.compared_as != self._current.vm.name
        if answer.body != self._body or is_named_anew or gap.is_long or gap.pause_seconds:
            document = self._in_scope(parse_document(answer.body))
            context = self._context_of(now, gap, answer, document)
            tracked = self._measured(gap)
            transitions = diff(tracked, document, context)
            drafts = [normalize(each, self._current.observer, context) for each in transitions]
            tracked, forgotten = remembered(tracked, _recorded(transitions, drafts))
            tracked = as_shown(tracked, document)
            drafts = [*bridge_records.gap(self._current.observer, now, gap), *drafts]
            self._commit(drafts, tracked, forgotten, document)
            self._body = answer.body
            self._current.compared_as = context.vm_name
        self._current.is_behind = False
        self._current.gaps.end_poll(now)
        self._store.mark_polled(now, uptime=uptime(self._clock))
        self._store.prune()

    def run(self) -> bool:
        """Poll, and log each change of trouble; return whether it succeeded. Catches
        every error.
        """
        with self._polling:
            return self._run()

    def wait_until_idle(self, seconds: float) -> None:
        """Wait until a poll that is under way has ended, for at most so many seconds."""
        if self._polling.acquire(timeout=seconds):
            self._polling.release()

    def _run(self) -> bool:
        begun = self._clock.monotonic()
        if begun < self._not_before:
            self._on_poll(PollResult(was_sent=False))
            return False
        trouble = self._try_poll()
        if trouble is not None:
            self._current.gaps.fail_poll("store" if trouble.reason == "store" else "imds")
            with suppress(StoreError):  # receipts fill the disk also while IMDS does not answer
                self._store.prune()
        self._report_trouble(trouble)
        if trouble is None:
            self._report_version()
        reason = None if trouble is None else trouble.reason
        self._on_poll(PollResult(seconds=self._clock.monotonic() - begun, trouble=reason))
        return trouble is None

    def _try_poll(self) -> PollTrouble | None:
        try:
            self.poll()
        except ImdsError as error:
            self._not_before = self._clock.monotonic() + (error.retry_after or 0.0)
            return PollTrouble(reason=error.reason, message=str(error))
        except DocumentError as error:
            message = f"IMDS answered with something else: {error}"
            return PollTrouble(reason="malformed", message=message)
        except StoreError as error:
            message = f"{error}; if the disk is full, free some space"
            return PollTrouble(reason="store", message=message)
        except Exception as error:  # noqa: BLE001  # it is logged
            if self._current.trouble is None or self._current.trouble.reason != "bug":
                _LOG.exception("this is a bug in the bridge", extra={"action": "poll_bug"})
            return PollTrouble(reason="bug", message=f"the poll ended with {type(error).__name__}")
        return None

    def _in_scope(self, document: Document) -> Document:
        if document.ignored:
            _LOG.warning(
                "parts of the document could not be read",
                extra={"action": "document_ignored", "reason": "; ".join(document.ignored[:5])},
            )
        return (
            only_naming(document, self._current.observer.vm.name) if self._scope_self else document
        )

    def _measured(self, gap: PollGap) -> dict[str, TrackedEvent]:
        """Return the tracked events, with what happened to this VM since the last poll."""
        after = measure(
            self._current.events.values(),
            pause_seconds=gap.pause_seconds,
            restarted=gap.restarted,
            downtime_seconds=gap.seconds,
        )
        return {**self._current.events, **{each.event.key: each for each in after}}

    def _context_of(
        self, now: datetime, gap: PollGap, answer: ImdsAnswer, document: Document
    ) -> PollContext:
        tracked = self._current.events
        ending = any(tracked[key].pending for key in tracked.keys() - document.events.keys())
        return PollContext(
            now=now,
            uptime=uptime(self._clock),
            vm_name=self._current.observer.vm.name,
            gap_seconds=gap.seconds,
            is_continuous=gap.is_continuous,
            is_boot_known=self._boot_id is not None,
            approved=self._approved() if ending else {},
            due=self._due() if ending else frozenset(),
            revisions=self._store.last_revisions(document.events.keys() - tracked.keys()),
            latency_ms=answer.latency_ms,
            incarnation=document.incarnation,
            previous_incarnation=self._current.incarnation,
        )

    def _due(self) -> frozenset[str]:
        return frozenset(
            key
            for key, each in self._current.events.items()
            if each.not_before is not None and each.not_before <= self._current.time_of(each)
        )

    def _commit(
        self,
        drafts: Sequence[RecordDraft],
        tracked: Mapping[str, TrackedEvent],
        forgotten: Mapping[str, int],
        document: Document,
    ) -> None:
        before = self._current.events
        changed = [
            EventRow(key, each.pending, rfc3339(each.first_seen), dump_tracked(each))
            for key, each in tracked.items()
            if each is not before.get(key)
        ]
        meta = {"incarnation": json.dumps(document.incarnation)}
        if self._boot_id is not None:
            meta["boot_id"] = self._boot_id

        def update_state() -> None:
            # When a sink gets a record, its event is already among the pending ones.
            self._current.set_events(tracked, document.incarnation)

        records = self._store.commit(
            drafts, events=changed, forgotten=forgotten, meta=meta, then=update_state
        )
        for record in records:
            _report(record)

    def _report_version(self) -> None:
        if self._imds.api_version != self._current.api_version:
            self._current.api_version = self._imds.api_version
            _LOG.warning(
                "IMDS is asked with another api-version, which may leave out fields",
                extra={"action": "api_version", "version": self._current.api_version},
            )

    def _report_trouble(self, trouble: PollTrouble | None) -> None:
        before = self._current.trouble
        self._current.trouble = trouble
        if (trouble and trouble.reason) == (before and before.reason):
            return
        if trouble is None:
            was_store = before is not None and before.reason == "store"
            _LOG.info(
                "changes are committed again" if was_store else "IMDS answers",
                extra={
                    "action": "store_ok" if was_store else "imds_ok",
                    "after": before and before.reason,
                },
            )
        else:
            action = "store_trouble" if trouble.reason == "store" else "imds_trouble"
            _LOG.warning(trouble.message, extra={"action": action, "reason": trouble.reason})


def _report(record: Record) -> None:
    event = record.data.get("event", {})
    _LOG.info(
        "committed",
        extra={
            "action": record.type.removeprefix("seb.").removesuffix(".v1"),
            "event": event.get("eventId"),
            "type": event.get("eventType"),
            "status": event.get("eventStatus"),
            "not_before": event.get("notBefore"),
            "affects_this_vm": record.affects_this_vm,
            "changed": ",".join(record.data.get("changed", ())) or None,
            "sequence": record.sequence,
            "record": record.id,
        },
    )


def _recorded(
    transitions: Sequence[Transition], drafts: Sequence[RecordDraft]
) -> dict[str, TrackedEvent]:
    """Return the tracked events after the transitions, each with the id of its record."""
    return {
        each.tracked.event.key: replace(each.tracked, record_id=draft.id or "")
        for each, draft in zip(transitions, drafts, strict=True)
    }
