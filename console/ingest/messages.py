"""Interprets a message on one of the bridges' topics; does not use the network."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Final

from console.ingest.retained_topics import RETAINED
from console.ingest.source_batch import QuarantinedMessage
from console.records.incoming import IncomingMessage, IncomingRecord
from console.records.parse import ForeignError, parse_record, parse_state, parse_status
from sinks.kinds.mqtt.messages import EVENT_EXPIRY, RECEIPT_EXPIRY

_SHARED: Final = ("event", "receipt")
_LEVELS: Final = 6
OWN_VM: Final = "seb-console-"
"""The prefix of a console's name, which a topic has in the place of the vmId: its notices are not
records.
"""
_CLOCKS_AGREE_SECONDS: Final = 120.0
"""How many seconds the record's time may differ from the wait that the broker reports."""


def filters(share: str | None) -> list[str]:
    """Return the topic filters for what every VM sends once."""
    prefix = "" if share is None else f"$share/{share}/"
    return [f"{prefix}seb/v1/+/vm/+/{leaf}" for leaf in _SHARED]


def retained_filters() -> list[str]:
    """Return the topic filters for what every VM retains. A shared subscription gets no retained
    messages, so these are not shared.
    """
    return [f"seb/v1/+/vm/+/{leaf}" for leaf in RETAINED]


def read_message(
    topic: str, payload: bytes, *, expiry: int | None, source: str, received_at: float
) -> IncomingMessage | QuarantinedMessage | None:
    """Return the content of a message; None for an empty one, which only deletes a retained
    message, and for a message of a console. `expiry`: the rest of its lifetime in seconds, as the
    broker counts it.
    """
    if not payload or f"/vm/{OWN_VM}" in topic:
        return None
    try:
        return _read(topic, payload, expiry, source, received_at)
    except ForeignError as error:
        return QuarantinedMessage(
            reason=error.reason,
            message=f"{topic[:200]}: {error}",
            sample=payload[:2000],
            at=received_at,
        )


def vm_of_topic(topic: str) -> str | None:
    """Return the vmId in a topic of a bridge; None for another topic, and for a console's topic."""
    levels = topic.split("/")
    is_ours = len(levels) == _LEVELS and not levels[4].startswith(OWN_VM)
    return levels[4] if is_ours else None


def _read(
    topic: str, payload: bytes, expiry: int | None, source: str, received_at: float
) -> IncomingMessage:
    levels = topic.split("/")
    if len(levels) != _LEVELS:
        raise ForeignError("foreign_topic", "not a topic of a bridge")
    site = levels[2]
    vm_id = levels[4]
    leaf = levels[5]
    if leaf == "status":
        return parse_status(payload, source=source, received_at=received_at, vm_id=vm_id, site=site)
    if leaf == "state":
        return parse_state(payload, source=source, received_at=received_at, vm_id=vm_id, site=site)
    record = parse_record(payload, source=source, received_at=received_at, vm_id=vm_id, site=site)
    waited = _seconds_waited(expiry, record)
    return replace(record, sent_at=received_at - waited) if waited else record


def _seconds_waited(expiry: int | None, record: IncomingRecord) -> float:
    """Return how many seconds the message waited at the broker, by the lifetime that the broker has
    subtracted. Zero if the record's own time does not confirm that: another publisher may set
    another lifetime.
    """
    if expiry is None:
        return 0.0
    whole = RECEIPT_EXPIRY if record.kind == "receipt" else EVENT_EXPIRY
    if record.kind == "heartbeat" and record.interval is not None:
        whole = min(whole, max(1, ceil(2 * record.interval)))
    waited = float(whole - expiry)
    by_clock = record.received_at - record.time
    return waited if waited > 0 and abs(waited - by_clock) < _CLOCKS_AGREE_SECONDS else 0.0
