"""The Kubernetes Events about the node: one for each record, with the record's id in its name."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from sinks.base import SinkError
from wire.record import EVENT_ENDED, Record

if TYPE_CHECKING:
    from sinks.kinds.kubernetes.api import Api

ROUND_SECONDS: Final = 20.0
"""How long a delivery writes Events at most, and how long it asks one pod after the other to leave:
an API server may take a second for each."""
_MAX_MISSING: Final = 100
"""How many Events may wait to be written."""


class NodeEvents:
    """Writes the Events of records, each once."""

    def __init__(self, *, may_wait: bool) -> None:
        """`may_wait`: whether an Event that cannot be written waits for `write_missing`. It does
        for a sink that prepares, because a preparation must not wait for an Event.
        """
        self._may_wait = may_wait
        self._written: set[str] = set()
        """The ids of records whose Events are written, and that are not acknowledged yet."""
        self._missing: Mapping[str, Record] = {}
        """The records whose Events wait to be written, by id."""

    @property
    def are_missing(self) -> bool:
        """Whether Events wait to be written."""
        return bool(self._missing)

    def write(self, api: Api, records: Sequence[Record], *, uid: str) -> SinkError | None:
        """Write the Events of records about the node with this uid; return the error that stopped
        it, if its records must be delivered again.
        """
        problem = self._write(api, records, uid=uid)
        if problem is None or not self._may_wait:
            return problem
        missing = {each.id: each for each in records if each.id not in self._written}
        self._missing = dict([*self._missing.items(), *missing.items()][-_MAX_MISSING:])
        return None

    def write_missing(self, api: Api, *, uid: str) -> SinkError | None:
        """Write the Events that wait; return the error that stopped it."""
        problem = self._write(api, list(self._missing.values()), uid=uid)
        written = self._missing.keys() & self._written
        self._missing = {key: each for key, each in self._missing.items() if key not in written}
        self._written -= written
        return problem

    def count_done(self, records: Sequence[Record]) -> int:
        """Return how many records at the front need no Event any more, or one that may wait."""
        done = self._written | self._missing.keys()
        return next(
            (place for place, each in enumerate(records) if each.id not in done), len(records)
        )

    def forget(self, records: Sequence[Record]) -> None:
        """Forget that the Events of these records are written: they will not be delivered again."""
        self._written -= {each.id for each in records}

    def _write(self, api: Api, records: Sequence[Record], *, uid: str) -> SinkError | None:
        until = time.monotonic() + ROUND_SECONDS
        for record in records:
            if record.id not in self._written:
                if time.monotonic() >= until:
                    return SinkError("the API server takes long for each request", retry_after=0.0)
                try:
                    _add_event(api, record, uid=uid)
                except SinkError as error:
                    return error
                self._written.add(record.id)
        return None


def _add_event(api: Api, record: Record, *, uid: str) -> None:
    transition = record.type.removeprefix("seb.").removesuffix(".v1")
    reason = "".join(word.capitalize() for word in transition.replace("-", ".").split("."))
    event = record.data.get("event") or {}
    api.add_event(
        record.id,
        uid=uid,
        reason=reason[:128],
        message=_sentence(record),
        at=record.time,
        warning=record.type != EVENT_ENDED and event.get("eventStatus") == "Scheduled",
        record=record.body.decode(),
    )


def _sentence(record: Record) -> str:
    event = record.data.get("event")
    if not event:
        return record.type
    words = [f"{event.get('eventType')} {event.get('eventStatus')}"]
    if event.get("notBefore"):
        words.append(f"not before {event['notBefore']}")
    if event.get("durationInSeconds") not in (None, -1):
        words.append(f"for about {event['durationInSeconds']} s")
    if event.get("description"):
        words.append(str(event["description"]))
    return f"{', '.join(words)} (event {event.get('eventId')})"
