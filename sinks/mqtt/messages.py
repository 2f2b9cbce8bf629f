"""The topics of the MQTT sink, and the messages on them. It never touches a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Final

from sinks.base import PendingEvent, SinkContext, SinkError
from sinks.record import (
    APPROVAL,
    CONTENT_TYPE,
    DATA_CONTENT_TYPE,
    EventRecord,
    canonical_json,
    rfc3339,
)

# Seconds that a broker keeps a message for a subscriber that is away, or as retained.
EVENT_EXPIRY: Final = 7 * 24 * 3600
RECEIPT_EXPIRY: Final = 24 * 3600
STATE_EXPIRY: Final = 6 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One PUBLISH at QoS 1. Everything from `content_type` on is lost with MQTT 3.1.1."""

    topic: str
    payload: bytes
    retain: bool = False
    content_type: str = DATA_CONTENT_TYPE
    expiry: int | None = None
    """Seconds, or None for as long as the broker likes."""
    correlation: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The topics of one VM."""

    event: str
    state: str
    status: str
    receipt: str
    command: str


def topics(context: SinkContext) -> Topics:
    """The topics of the VM that the bridge runs on. Raises as `topics_of`."""
    return topics_of(site=context.site, vm_id=context.vm.vm_id)


def topics_of(*, site: str, vm_id: str) -> Topics:
    """The topics under `seb/v1/<site>/vm/<vmId>`. Raises `SinkError` on a bad level."""
    base = f"seb/v1/{_level('SEB_SITE', site)}/vm/{_level('the vmId', vm_id)}"
    return Topics(
        event=f"{base}/event",
        state=f"{base}/state",
        status=f"{base}/status",
        receipt=f"{base}/receipt",
        command=f"{base}/command",
    )


def _level(name: str, value: str) -> str:
    # MQTT 5, 4.7: `+` and `#` are wildcards, `/` divides levels, NUL is forbidden; 1.5.4 advises
    # against control characters, and brokers close the connection on them.
    if not value or not value.isprintable() or any(sign in value for sign in "+#/"):
        raise SinkError(
            f"{name} is {value!r}, which cannot stand in an MQTT topic",
            remedy="use at least one character, none of them +, # or /, and no control characters",
        )
    return value


def record_message(record: EventRecord, where: Topics) -> Message:
    """A record, byte for byte; a receipt has its `jti` as Correlation Data (MQTT 5, 4.10)."""
    if record.type != APPROVAL:
        expiry = _heartbeat_expiry(record) if record.is_heartbeat else EVENT_EXPIRY
        return Message(
            topic=where.event, payload=record.body, content_type=CONTENT_TYPE, expiry=expiry
        )
    jti = record.data.get("jti")
    return Message(
        topic=where.receipt,
        payload=record.body,
        content_type=CONTENT_TYPE,
        expiry=RECEIPT_EXPIRY,
        correlation=jti.encode() if isinstance(jti, str) else None,
    )


def _heartbeat_expiry(record: EventRecord) -> int:
    """Two of its intervals, in seconds: queued heartbeats must not push the events out."""
    said = record.data.get("heartbeat")
    interval = said.get("intervalSeconds") if isinstance(said, Mapping) else None
    if not isinstance(interval, (int, float)):
        return EVENT_EXPIRY
    return min(max(1, ceil(2 * interval)), EVENT_EXPIRY)


def state_message(
    pending: Sequence[PendingEvent], *, context: SinkContext, now: datetime, where: Topics
) -> Message:
    """The pending events: `{"vm": {vmId, name, resourceId}, "time": RFC 3339, "events": [...]}`,
    each as `PendingEvent.to_wire`; an empty payload would delete the retained message.
    """
    document = {
        "vm": _vm(context),
        "time": rfc3339(now),
        "events": [event.to_wire() for event in pending],
    }
    return Message(
        topic=where.state, payload=canonical_json(document), retain=True, expiry=STATE_EXPIRY
    )


def status_message(
    reason: str | None,
    *,
    context: SinkContext,
    where: Topics,
    sink: str,
    commands: bool,
    is_will: bool = False,
) -> Message:
    """The retained status: `online` without a reason, else `offline`; `session` is the bridge's
    instance id, `sink` its name, `commands` whether commands are taken. A will has no time.
    """
    document = {
        "status": "offline" if reason else "online",
        "reason": reason,
        "time": None if is_will else rfc3339(context.now()),
        "version": context.version,
        "session": context.instance_id,
        "sink": sink,
        "commands": commands,
        "vm": _vm(context),
    }
    return Message(topic=where.status, payload=canonical_json(document), retain=True)


def _vm(context: SinkContext) -> dict[str, str | None]:
    vm = context.vm
    return {"vmId": vm.vm_id, "name": vm.name, "resourceId": vm.resource_id}
