"""Records as a bridge of any VM would send them, for tests of the console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from wire.moment import rfc3339
from wire.record import (
    APPROVAL,
    BRIDGE_HEARTBEAT,
    BRIDGE_STARTED,
    BRIDGE_STOPPED,
    BRIDGE_STORE_RESET,
    Record,
    RecordDraft,
    event_record_id,
    seal,
)
from wire.strictjson import canonical_json
from wire.vm import VmIdentity

PENDING = (
    "eventId",
    "eventType",
    "eventStatus",
    "notBefore",
    "resources",
    "resourceType",
    "eventSource",
    "durationInSeconds",
)
"""Fields of an event that a state document has too."""


@dataclass
class FakeVm:
    """A VM whose bridge counts its records as a real one does."""

    name: str = "web-1"
    subscription: str | None = "sub-1"
    group: str | None = "group-1"
    scale_set: str | None = None
    site: str | None = "default"
    zone: str = "1"
    version: str = "1.0.0"
    interval: float = 60.0
    sequence: int = 0
    last_record: int = 0
    revisions: dict[str, int] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    vm_id: str = ""
    stream: str = ""
    session: str = "session-1"

    def __post_init__(self) -> None:
        place = f"{self.subscription}/{self.group}/{self.scale_set}/{self.name}"
        self.vm_id = self.vm_id or str(uuid5(NAMESPACE_URL, place))
        self.stream = self.stream or str(uuid5(NAMESPACE_URL, f"stream of {self.vm_id}"))

    @property
    def identity(self) -> VmIdentity:
        resource_id = None
        if self.subscription and self.group:
            resource_id = (
                f"/subscriptions/{self.subscription}/resourceGroups/{self.group}"
                f"/providers/Microsoft.Compute/virtualMachines/{self.name}"
            )
        return VmIdentity(
            vm_id=self.vm_id,
            name=self.name,
            resource_id=resource_id,
            subscription_id=self.subscription,
            resource_group=self.group,
            scale_set=self.scale_set,
            location="westeurope",
            zone=self.zone,
            tags=self.tags,
        )

    def event(
        self,
        event_id: str,
        *,
        transition: str = "scheduled",
        status: str | None = None,
        resources: Sequence[str] | None = None,
        event_type: str = "Reboot",
        impact: str = "restart",
        duration: int = -1,
        not_before: str | None = "2030-01-01T00:00:00.000Z",
        description: str = "",
        now: datetime | None = None,
        observation: Mapping[str, Any] | None = None,
    ) -> Record:
        """A record about an event, with the next sequence."""
        at = now or datetime.now(UTC)
        named = list(resources if resources is not None else [self.name])
        words = {"scheduled": "Scheduled", "started": "Started", "ended": "Completed"}
        event = {
            "eventId": event_id,
            "eventType": event_type,
            "resourceType": "VirtualMachine",
            "resources": named,
            "eventStatus": status or words.get(transition, "Scheduled"),
            "notBefore": None if transition == "started" else not_before,
            "description": description,
            "eventSource": "Platform",
            "durationInSeconds": duration,
        }
        fields = {key: value for key, value in event.items() if key != "description"}
        fields["resources"] = sorted(named)
        fingerprint = "sha256:" + sha256(canonical_json(fields)).hexdigest()
        revision = self.revisions[event_id] = self.revisions.get(event_id, 0) + 1
        data = {
            "transition": transition,
            "event": event,
            "affectsThisVm": self.name in named,
            "impact": impact,
            "revision": revision,
            "fingerprint": fingerprint,
            "document": {"incarnation": 1, "previousIncarnation": None},
            "observation": {"noticeSeconds": 900.0, "gapSeconds": None, "latencyMs": 1.0}
            | dict(observation or {}),
            "raw": {"EventId": event_id},
        }
        record_id = event_record_id(
            vm_id=self.vm_id,
            event_id=event_id,
            transition=transition,
            revision=revision,
            fingerprint=fingerprint,
            now=at,
        )
        return self.record(f"seb.event.{transition}.v1", data, now=at, record_id=record_id)

    def heartbeat(self, *, now: datetime | None = None, **detail: Any) -> Record:
        """The record that says that the bridge is alive."""
        fields = {
            "intervalSeconds": self.interval,
            "lastPollTime": None,
            "pendingEvents": 0,
            "lastRecordSequence": f"{self.last_record:020d}",
        }
        return self.record(BRIDGE_HEARTBEAT, {"heartbeat": fields | detail}, now=now)

    def started(self, *, now: datetime | None = None) -> Record:
        """A run of the bridge began."""
        fields = {"sinks": ["console"], "restarted": False, "gapSeconds": None}
        return self.record(BRIDGE_STARTED, {"started": fields}, now=now)

    def store_reset(self, *, now: datetime | None = None) -> Record:
        """The store was damaged, and the bridge began a new one."""
        fields = {"reason": "it was damaged", "previousStream": None, "keptAs": "seb.db.kept"}
        return self.record(BRIDGE_STORE_RESET, {"storeReset": fields}, now=now)

    def stopped(self, *, now: datetime | None = None) -> Record:
        """A run of the bridge ended in good order."""
        return self.record(BRIDGE_STOPPED, {"stopped": {"reason": "SIGTERM"}}, now=now)

    def receipt(
        self,
        event_id: str | None,
        state: str,
        *,
        jti: str = "jti-1",
        now: datetime | None = None,
        **data: Any,
    ) -> Record:
        """What became of a command."""
        fields = {
            "jti": jti,
            "evt": event_id,
            "state": state,
            "reason": None,
            "actor": "rule:patching",
            "issuer": None,
            "resources": [self.name],
            "rsn": None,
        }
        return self.record(APPROVAL, fields | data, now=now)

    def record(
        self,
        record_type: str,
        data: Mapping[str, Any],
        *,
        now: datetime | None = None,
        record_id: str | None = None,
    ) -> Record:
        """A record of any type, with the next sequence."""
        self.sequence += 1
        if record_type != BRIDGE_HEARTBEAT:
            self.last_record = self.sequence
        bridge = {"version": self.version, "instanceId": self.session}
        if self.site is not None:
            bridge["site"] = self.site
        draft = RecordDraft(
            type=record_type,
            source=self.identity.source,
            subject="subject",
            time=now or datetime.now(UTC),
            partition_key=self.vm_id,
            data={"vm": self.identity.to_wire(), "node": None, "bridge": bridge, **data},
            id=record_id,
        )
        return seal(draft, sequence=self.sequence, stream=self.stream)

    def status(self, status: str = "online", *, reason: str | None = None, **more: Any) -> bytes:
        """The document on the status topic."""
        fields = {
            "status": status,
            "reason": reason,
            "time": None if reason == "lost" else rfc3339(datetime.now(UTC)),
            "version": self.version,
            "session": self.session,
            "sink": "mqtt",
            "commands": False,
            "vm": self._named(),
        }
        return canonical_json(fields | more)

    def state(self, *records: Record, now: datetime | None = None) -> bytes:
        """The document on the state topic, with the events of some records as pending."""
        pending = [
            {
                "recordId": record.id,
                "affectsThisVm": record.data["affectsThisVm"],
                "impact": record.data["impact"],
                "revision": record.data["revision"],
                "fingerprint": record.data["fingerprint"],
                **{name: record.data["event"][name] for name in PENDING},
            }
            for record in records
        ]
        moment = rfc3339(now or datetime.now(UTC))
        return canonical_json({"vm": self._named(), "time": moment, "events": pending})

    def topic(self, leaf: str = "event") -> str:
        """One of the VM's MQTT topics."""
        return f"seb/v1/{self.site or 'default'}/vm/{self.vm_id}/{leaf}"

    def _named(self) -> dict[str, Any]:
        vm = self.identity
        return {"vmId": vm.vm_id, "name": vm.name, "resourceId": vm.resource_id}
