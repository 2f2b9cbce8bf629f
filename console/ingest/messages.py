"""The meaning of a message on one of the bridges' topics; it never touches a network."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Final

from console.ingest.delivery import Refused
from console.records.incoming import Incoming, IncomingRecord
from console.records.parse import ForeignError, parse_record, parse_state, parse_status
from sinks.mqtt.messages import EVENT_EXPIRY, RECEIPT_EXPIRY

_SHARED: Final = ("event", "receipt")
_RETAINED: Final = ("state", "status")
_LEVELS: Final = 6
OWN_VM: Final = "seb-console-"
"""What the name of a console begins with, where a topic has a vmId: its notices are not records."""
_CLOCKS_AGREE: Final = 120.0
"""Seconds: by how much the record's time may differ from the wait that the broker reports."""


def filters(share: str | None) -> list[str]:
    """The topics of every VM; a shared subscription gets no retained messages, so they are not
    shared.
    """
    prefix = "" if share is None else f"$share/{share}/"
    shared = [f"{prefix}seb/v1/+/vm/+/{leaf}" for leaf in _SHARED]
    return [*shared, *(f"seb/v1/+/vm/+/{leaf}" for leaf in _RETAINED)]


def read_message(
    topic: str, payload: bytes, *, expiry: int | None, source: str, received_at: float
) -> Incoming | Refused | None:
    """What a message brings; None for an empty one, which only deletes what was retained, and for
    what a console says itself.

    `expiry`: the seconds that are left of its life, as the broker counts them.
    """
    if not payload or f"/vm/{OWN_VM}" in topic:
        return None
    try:
        return _read(topic, payload, expiry, source, received_at)
    except ForeignError as error:
        return Refused(
            reason=error.reason,
            message=f"{topic[:200]}: {error}",
            sample=payload[:2000],
            at=received_at,
        )


def vm_of_topic(topic: str) -> str | None:
    """The vmId in a topic of a bridge; None if it is none, or a console's own."""
    levels = topic.split("/")
    is_ours = len(levels) == _LEVELS and not levels[4].startswith(OWN_VM)
    return levels[4] if is_ours else None


def _read(
    topic: str, payload: bytes, expiry: int | None, source: str, received_at: float
) -> Incoming:
    levels = topic.split("/")
    if len(levels) != _LEVELS:
        raise ForeignError("foreign_topic", "not a topic of a bridge")
    site, vm_id, leaf = levels[2], levels[4], levels[5]
    if leaf == "status":
        return parse_status(payload, source=source, received_at=received_at, vm_id=vm_id, site=site)
    if leaf == "state":
        return parse_state(payload, source=source, received_at=received_at, vm_id=vm_id, site=site)
    record = parse_record(payload, source=source, received_at=received_at, vm_id=vm_id, site=site)
    waited = _waited(expiry, record)
    return replace(record, sent_at=received_at - waited) if waited else record


def _waited(expiry: int | None, record: IncomingRecord) -> float:
    """Seconds that it lay at the broker, by the life that the broker has taken from it.

    Zero where the record's own time does not bear that out: another publisher may set another life.
    """
    if expiry is None:
        return 0.0
    whole = RECEIPT_EXPIRY if record.kind == "receipt" else EVENT_EXPIRY
    if record.kind == "heartbeat" and record.interval is not None:
        whole = min(whole, max(1, ceil(2 * record.interval)))
    waited = float(whole - expiry)
    by_clock = record.received_at - record.time
    return waited if waited > 0 and abs(waited - by_clock) < _CLOCKS_AGREE else 0.0
