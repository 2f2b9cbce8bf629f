"""The topics of the MQTT sink, and the messages on them. It never touches a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Final

from sinks.base import SinkContext, SinkError
from wire.record import APPROVAL, CONTENT_TYPE, DATA_CONTENT_TYPE, Record
from wire.state import PendingEvent, ShortVm, VmState, VmStatus, write_document

# Seconds that a broker keeps a message for a subscriber that is away, or as retained.
EVENT_EXPIRY: Final = 7 * 24 * 3600
RECEIPT_EXPIRY: Final = 24 * 3600
STATE_EXPIRY: Final = 6 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One PUBLISH at QoS 1. With MQTT 3.1.1, `content_type` and the fields after it are
    not sent.
    """

    topic: str
    payload: bytes
    retain: bool = False
    content_type: str = DATA_CONTENT_TYPE
    expiry: int | None = None
    """In seconds; None: as long as the broker keeps it."""
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
    """Return the topics of the VM that the bridge runs on. Raises `SinkError` as
    `topics_of` does.
    """
    return topics_of(site=context.site, vm_id=context.vm.vm_id)


def topics_of(*, site: str, vm_id: str) -> Topics:
    """Return the topics under `seb/v1/<site>/vm/<vmId>`. Raises `SinkError` on a level that is not
    valid.
    """
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
            f"{name} is {value!r}, which cannot be part of an MQTT topic",
            remedy="use at least one character, none of them +, # or /, and no control characters",
        )
    return value


def record_message(record: Record, where: Topics) -> Message:
    """Return a record, byte for byte; a receipt has its `jti` as Correlation Data (MQTT
    5, 4.10).
    """
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


def _heartbeat_expiry(record: Record) -> int:
    """Return two intervals in seconds, after which a broker drops a queued heartbeat: it must not
    displace events.
    """
    heartbeat = record.data.get("heartbeat")
    interval = heartbeat.get("intervalSeconds") if isinstance(heartbeat, Mapping) else None
    if not isinstance(interval, (int, float)):
        return EVENT_EXPIRY
    return min(max(1, ceil(2 * interval)), EVENT_EXPIRY)


def state_message(
    pending: Sequence[PendingEvent], *, context: SinkContext, now: datetime, where: Topics
) -> Message:
    """Return the pending events, retained; an empty payload would delete the retained message."""
    state = VmState(vm=ShortVm.of(context.vm), time=now, events=tuple(pending))
    payload = write_document(state)
    return Message(topic=where.state, payload=payload, retain=True, expiry=STATE_EXPIRY)


def status_message(
    reason: str | None,
    *,
    context: SinkContext,
    where: Topics,
    sink: str,
    commands: bool,
    is_will: bool = False,
) -> Message:
    """Return the retained status: `online` without a reason, otherwise `offline`. A will has no
    time.
    """
    status = VmStatus(
        status="offline" if reason else "online",
        reason=reason,
        time=None if is_will else context.now(),
        version=context.version,
        session=context.instance_id,
        sink=sink,
        commands=commands,
        prepares=context.prepares,
        vm=ShortVm.of(context.vm),
    )
    return Message(topic=where.status, payload=write_document(status), retain=True)
