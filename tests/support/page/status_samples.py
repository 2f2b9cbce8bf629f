"""What a bridge says in its status and its records, with whatever a test changes."""

from datetime import UTC, datetime, timedelta
from typing import Any

from wire.moment import rfc3339

STREAM = "0d4e8a52-6f0b-4b57-9d1c-2a8f6f0f4d11"


NOW = datetime(2026, 3, 2, 2, 14, 28, tzinfo=UTC)
"""The time on the bridge's clock."""
VM = {
    "vmId": "6b0f6c1e-51a7-4d7e-9a54-8c2f1d3e4b5a",
    "name": "web_3",
    "resourceId": None,
    "subscriptionId": "0d9c8b7a-1111-4222-8333-444455556666",
    "resourceGroup": "shop",
    "location": "northeurope",
    "zone": "2",
    "scaleSet": "web",
    "faultDomain": "1",
    "updateDomain": "4",
    "osType": "Linux",
    "vmSize": "Standard_D4s_v5",
    "tags": {"owner": "shop-team"},
}
EVENT_ID = "5D2C9A60-4F1B-4E0B-9A44-0C9E6B7A1F01"
STARTED = {"eventStatus": "Started", "notBefore": None}
_UNMEASURED = {"pauseSeconds": None, "restarted": None, "downtimeSeconds": None}


def moment(seconds: float) -> str:
    """So many seconds from the bridge's now, as RFC 3339; negative ones are past."""
    return rfc3339(NOW + timedelta(seconds=seconds))


def status(**changed: Any) -> dict[str, Any]:
    """What a bridge says that looks, delivers, and sees nothing coming; some of it changed."""
    return {
        "now": moment(0),
        "version": "0.2.0",
        "instanceId": "c7c3a0f2-6a0e-4c6a-9b1e-3d2f8a5b7c61",
        "startedAt": moment(-93_784),
        "site": "dublin-1",
        "healthy": True,
        "ready": True,
        "notReady": None,
        "looking": True,
        "approvalTrouble": None,
        "vm": VM,
        "node": None,
        "imds": imds(),
        "store": {
            "writable": True,
            "trouble": None,
            "stream": STREAM,
            "lastSequence": 1_912,
            "sizeBytes": 1_572_864,
        },
        "events": [],
        "sinks": [sink(), sink(name="ops", kind="webhook", delivered=22, lagSeconds=0.21)],
        **changed,
    }


def imds(**changed: Any) -> dict[str, Any]:
    """An IMDS that answers."""
    return {
        "lastAttemptAt": moment(-0.4),
        "lastSuccessAt": moment(-0.4),
        "trouble": None,
        "incarnation": 279,
        "apiVersion": "2020-07-01",
        "pollIntervalSeconds": 1.0,
        **changed,
    }


def blind(**changed: Any) -> dict[str, Any]:
    """What a bridge says to which IMDS has given no answer for a while."""
    message = "IMDS did not answer within 5 s at 127.0.0.1:8169"
    silent = imds(lastSuccessAt=moment(-42), trouble={"reason": "timeout", "message": message})
    return status(looking=False, ready=False, notReady=message, imds=silent, **changed)


def event(**changed: Any) -> dict[str, Any]:
    """A Freeze that is to pause this VM in a quarter of an hour."""
    return {
        "eventId": EVENT_ID,
        "eventType": "Freeze",
        "resourceType": "VirtualMachine",
        "resources": ["web_3"],
        "eventStatus": "Scheduled",
        "notBefore": moment(872),
        "description": "Host server is undergoing maintenance.",
        "eventSource": "Platform",
        "durationInSeconds": 9,
        "affectsThisVm": True,
        "impact": "pause",
        "revision": 1,
        "fingerprint": "sha256:" + "7d" * 32,
        "firstSeenAt": moment(-28),
        "noticeSeconds": 900.0,
        "measured": _UNMEASURED,
        **changed,
    }


def sink(**changed: Any) -> dict[str, Any]:
    """A broker that has taken everything."""
    return {
        "name": "mqtt",
        "kind": "mqtt",
        "configured": True,
        "prepares": False,
        "state": "ok",
        "reason": None,
        "backlog": 0,
        "oldestPendingAt": None,
        "dead": 0,
        "delivered": 1_890,
        "lastDeliveredAt": moment(-28),
        "lagSeconds": 0.004,
        "nextTrySeconds": None,
        **changed,
    }


def record(kind: str, sequence: int, *, ago: float = 28, **data: Any) -> dict[str, Any]:
    """A record so many seconds old; `kind` is its type without the frame, as `event.started`.

    One of an event is about `event()`; `data` is laid over what such a record says.
    """
    body: dict[str, Any] = {"vm": VM, "node": None}
    if kind.startswith("event."):
        body |= {
            "transition": kind.removeprefix("event."),
            "event": event(),
            "affectsThisVm": True,
            "impact": "pause",
            "revision": 1,
            "observation": {"noticeSeconds": 900.0, **_UNMEASURED},
        }
    return {
        "specversion": "1.0",
        "id": f"{sequence:08d}-0000-5000-8000-000000000000",
        "type": f"seb.{kind}.v1",
        "time": moment(-ago),
        "sequence": f"{sequence:020d}",
        "stream": STREAM,
        "data": body | data,
    }


def numbered(number: int, **changed: Any) -> dict[str, Any]:
    """One of many events."""
    return event(eventId=f"{EVENT_ID[:-12]}{number:012X}", **changed)


def measured(
    *, pause: float | None = None, down: float | None = None, restarted: bool | None = False
) -> dict[str, Any]:
    """What was measured on this VM."""
    return {"pauseSeconds": pause, "restarted": restarted, "downtimeSeconds": down}


def ended(sequence: int, ago: float, how: str, seen: dict[str, Any], **of: Any) -> dict[str, Any]:
    """The end of an event of this VM."""
    over = event(**{**STARTED, "eventStatus": how, **of})
    notice = {"noticeSeconds": 900.0, **seen}
    return record("event.ended", sequence, ago=ago, event=over, observation=notice)


def receipt(sequence: int, ago: float, state: str) -> dict[str, Any]:
    """What became of an approval by a rule."""
    fields = {"evt": EVENT_ID, "state": state, "reason": None, "actor": "rule:drained"}
    return record("approval", sequence, ago=ago, resources=["web_3"], **fields)
