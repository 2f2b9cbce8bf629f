"""The sink that prepares, as the dispatcher serves it: it gets an event when it is to prepare for
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bridge.preparation.preparations import Preparations
from sinks.base import Check, Sink, SinkError, SinkRejected
from wire.record import (
    EVENT_ENDED,
    EVENT_SCHEDULED,
    EVENT_STARTED,
    EVENT_UPDATED,
    PREPARATION,
    Record,
)


@dataclass(frozen=True, slots=True)
class _Result:
    """What the inner sink has done for a record."""

    record: Record
    refusal: SinkRejected | None
    """Why it will never do more; None if it has done all."""


class PreparingSink(Sink[Any]):
    """Wraps the sink that prepares. In place of the record that asks, the sink gets the newest
    record of the event itself; an event that it is not asked about is only announced to it.
    """

    KIND = "preparing"

    def __init__(self, inner: Sink[Any], preparations: Preparations) -> None:
        super().__init__(inner.name, inner.settings, inner.context)
        self._inner = inner
        self._preparations = preparations
        self._result: _Result | None = None
        """The result of the last call, when it could not be written."""
        self._is_cut = False
        """Whether a call was cut: another sink is made in place of this one."""

    @property
    def deadline(self) -> float:
        """The deadline of the inner sink, in seconds."""
        return self._inner.deadline

    def accepts(self, record_type: str, concerns_this_vm: bool | None) -> bool:  # noqa: FBT001
        """Accept requests for a preparation and the records of events, whatever `types` says."""
        if record_type == PREPARATION:
            return True
        return concerns_this_vm is True and record_type in (
            EVENT_SCHEDULED,
            EVENT_STARTED,
            EVENT_UPDATED,
            EVENT_ENDED,
        )

    def open(self) -> None:
        """Open the inner sink."""
        self._inner.open()

    def deliver(self, records: Sequence[Record]) -> None:
        """Deliver one record at a time. Raises what the inner sink raises."""
        for record in records:
            if record.type == PREPARATION:
                event = self._preparations.event_of(record)
                if event is not None:
                    self._prepare(record, event)
            elif self._preparations.wants(record):
                self._deliver_start_or_end(record)
            else:
                self._inner.announce(record)

    def _prepare(self, record: Record, event: Record) -> None:
        try:
            self._deliver_once(record, event)
        except SinkRejected as refused:
            self._preparations.note_gave_up(record, str(refused))
            self._result = None
            raise
        except SinkError:
            self._preparations.note_cut_off(record)
            raise
        self._preparations.note_prepared(record)
        self._result = None

    def _deliver_start_or_end(self, record: Record) -> None:
        try:
            self._deliver_once(record, record)
        except SinkRejected as refused:
            self._preparations.note_recovered(record, str(refused))
            self._result = None
            raise
        self._preparations.note_recovered(record)
        self._result = None

    def _deliver_once(self, record: Record, event: Record) -> None:
        """Deliver the event's record to the inner sink, unless it has done so for `record` already,
        and only the disk did not take the result. A call that was cut has no result, even if it
        ends well after that: the sink that is made in place of this one may be at work. Raises what
        the inner sink raises.
        """
        result = self._result
        if result is None or result.record != record:
            refusal = None
            try:
                self._inner.deliver([event])
            except SinkRejected as refused:
                refusal = refused
            if self._is_cut:
                raise SinkError("the call was cut") from refusal
            self._result = result = _Result(record, refusal)
        if result.refusal is not None:
            raise result.refusal

    def maintain(self) -> None:
        """Maintain the inner sink."""
        self._inner.maintain()

    def check(self) -> Sequence[Check]:
        """Return the checks of the inner sink."""
        return self._inner.check()

    def abort(self) -> None:
        """Cut a call of the inner sink."""
        self._is_cut = True
        self._inner.abort()

    def close(self) -> None:
        """Close the inner sink."""
        self._inner.close()
