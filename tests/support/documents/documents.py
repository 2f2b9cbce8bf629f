"""Documents as IMDS would serve them, made up here; and a clock that only moves when told to."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from bridge.imds.client import ImdsAnswer
from wire.vm import VmIdentity

NOW: Final = datetime(2026, 3, 2, 10, 0, 0, tzinfo=UTC)
NOT_BEFORE: Final = "Mon, 02 Mar 2026 10:15:00 GMT"
LATER: Final = "Mon, 02 Mar 2026 10:30:00 GMT"
EVENT_ID: Final = "5D2C9A60-4F1B-4E0B-9A44-0C9E6B7A1F01"
OTHER_ID: Final = "90E1B7F2-22C3-4B6F-8D0A-7B5F4E3D2C02"
VM: Final = VmIdentity(
    vm_id="6b0f6c1e-51a7-4d7e-9a54-8c2f1d3e4b5a",
    name="web_3",
    resource_id=(
        "/subscriptions/0d9c8b7a-1111-4222-8333-444455556666/resourceGroups/shop"
        "/providers/Microsoft.Compute/virtualMachineScaleSets/web/virtualMachines/3"
    ),
    subscription_id="0d9c8b7a-1111-4222-8333-444455556666",
    resource_group="shop",
    location="northeurope",
    zone="2",
    scale_set="web",
    fault_domain="1",
    update_domain="4",
    os_type="Linux",
    vm_size="Standard_D4s_v5",
    tags={"owner": "shop-team"},
)


def entry(
    event_id: str = EVENT_ID,
    *,
    status: str = "Scheduled",
    event_type: str = "Freeze",
    resources: Sequence[str] = ("web_3",),
    not_before: str = NOT_BEFORE,
    description: str = "Host server is undergoing maintenance.",
    source: str = "Platform",
    duration: float = 9,
) -> dict[str, Any]:
    """An entry of Events with every field of api-version 2020-07-01."""
    return {
        "EventId": event_id,
        "EventStatus": status,
        "EventType": event_type,
        "ResourceType": "VirtualMachine",
        "Resources": list(resources),
        "NotBefore": not_before,
        "Description": description,
        "EventSource": source,
        "DurationInSeconds": duration,
    }


def started(event_id: str = EVENT_ID, *, event_type: str = "Freeze") -> dict[str, Any]:
    """The same entry once it has started: Azure leaves NotBefore blank."""
    return entry(event_id, status="Started", event_type=event_type, not_before="")


def without(full: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """An entry without some fields, as older api-versions write it."""
    return {name: value for name, value in full.items() if name not in names}


def body(*entries: object, incarnation: object = 1) -> bytes:
    """A document as bytes."""
    return json.dumps({"DocumentIncarnation": incarnation, "Events": list(entries)}).encode()


class FakeClock:
    """Tells the time that it was told."""

    def __init__(self, now: datetime = NOW) -> None:
        self._now = now
        self._monotonic = 1000.0
        self._suspended = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def suspended(self) -> float:
        return self._suspended

    def suspend(self, seconds: float) -> None:
        """The machine sleeps: only the monotonic clock stands still."""
        self._now += timedelta(seconds=seconds)
        self._suspended += seconds

    def advance(self, seconds: float) -> None:
        """Time passes."""
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def boot(self) -> None:
        """The machine boots."""
        self._monotonic = 20.0
        self._suspended = 0.0

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self._now += timedelta(seconds=seconds)


class StandInImds(ABC):
    """What stands in for the client of IMDS, without a network; each kind has a document."""

    url = "http://127.0.0.1:9"
    api_version = "2020-07-01"

    def __init__(self) -> None:
        self.latency_ms = 0.0
        self.asked = 0

    def events(self) -> ImdsAnswer:
        self.asked += 1
        return ImdsAnswer(body=self.document(), latency_ms=self.latency_ms)

    @abstractmethod
    def document(self) -> bytes:
        """What IMDS says now; raises what the client would."""


class ScriptedImds(StandInImds):
    """Answers what it was given: a document, or the error of a bad day."""

    def __init__(self, said: bytes | Exception = b"") -> None:
        super().__init__()
        self.said = said

    def document(self) -> bytes:
        if isinstance(self.said, Exception):
            raise self.said
        return self.said
