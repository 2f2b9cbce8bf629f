"""`/openapi.json`: the API described for programs; a test compares it with the routes."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from console.fleet.commands import STATES as COMMAND_STATES
from console.fleet.contact import CONTACTS
from console.fleet.view import CONDITIONS
from console.web.answers import DEFAULT_LIMIT, MOST, answer

Json = dict[str, Any]
_TEXT: Final[Json] = {"type": "string"}
_MAYBE_TEXT: Final[Json] = {"type": ["string", "null"]}
_MOMENT: Final[Json] = {"type": ["string", "null"], "format": "date-time"}
_COUNT: Final[Json] = {"type": "integer", "minimum": 0}


def _object(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(item: Json) -> Json:
    return {"type": "array", "items": item}


def _word(*words: str) -> Json:
    return {"type": "string", "enum": list(words)}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _page(name: str) -> Json:
    return _object(items=_list(_ref(name)), next=_MAYBE_TEXT)


def _query(name: str, schema: Json, text: str) -> Json:
    return {"name": name, "in": "query", "schema": schema, "description": text}


_PAGING: Final = (
    _query(
        "limit",
        {"type": "integer", "minimum": 1, "maximum": MOST, "default": DEFAULT_LIMIT},
        "How many items",
    ),
    _query("cursor", _TEXT, "`next` of the page before"),
)
_DECISION: Final = _object(
    state=_word("due", "second", "left", "approving", "approved", "none"),
    by=_MAYBE_TEXT,
    reason=_MAYBE_TEXT,
    at=_MOMENT,
)
_SCHEMAS: Final[Json] = {
    "Source": _object(
        name=_TEXT,
        kind=_TEXT,
        connected={"type": "boolean"},
        lastRecordAt=_MOMENT,
        trouble=_MAYBE_TEXT,
        quarantined=_COUNT,
    ),
    "Quarantined": _object(
        source=_TEXT, reason=_TEXT, count=_COUNT, firstAt=_MOMENT, lastAt=_MOMENT, message=_TEXT
    ),
    "Overview": _object(
        now=_MOMENT,
        vms=_object(total=_COUNT, **dict.fromkeys(CONTACTS, _COUNT)),
        conditions=_object(**dict.fromkeys(CONDITIONS, _COUNT)),
        decisionsDue=_COUNT,
        sources=_list(_ref("Source")),
    ),
    "Event": _object(
        eventId=_TEXT,
        state=_word("scheduled", "started", "ended"),
        eventStatus=_TEXT,
        eventType=_MAYBE_TEXT,
        eventSource=_MAYBE_TEXT,
        impact=_MAYBE_TEXT,
        notBefore=_MOMENT,
        durationInSeconds={"type": ["integer", "null"]},
        description=_MAYBE_TEXT,
        fingerprint=_TEXT,
        differing={"type": "boolean"},
        resources=_list(_object(name=_TEXT, vmId=_MAYBE_TEXT, contact=_MAYBE_TEXT)),
        seenBy=_COUNT,
        firstSeenAt=_MOMENT,
        decision=_DECISION,
    ),
    "Vm": _object(
        vmId=_TEXT,
        name=_TEXT,
        site=_TEXT,
        resourceId=_MAYBE_TEXT,
        location=_MAYBE_TEXT,
        zone=_MAYBE_TEXT,
        scaleSet=_MAYBE_TEXT,
        contact=_word(*CONTACTS),
        condition=_word(*CONDITIONS),
        lastHeardAt=_MOMENT,
        bridgeVersion=_MAYBE_TEXT,
        gaps=_COUNT,
        events=_list(_TEXT),
    ),
    "Command": _object(
        jti=_TEXT,
        eventId=_TEXT,
        vmId=_TEXT,
        state=_word(*COMMAND_STATES),
        reason=_MAYBE_TEXT,
        history=_list(_object(state=_word(*COMMAND_STATES), at=_MOMENT, reason=_MAYBE_TEXT)),
    ),
    "Fact": _object(at=_MOMENT, kind=_word("record", "decision", "command", "receipt")),
    "Error": _object(error=_TEXT),
}


def _operation(text: str, schema: Json, *parameters: Json, kind: str = "application/json") -> Json:
    refused = {"description": "Refused", "content": {"application/json": {"schema": _ref("Error")}}}
    return {
        "get": {
            "summary": text,
            "parameters": list(parameters),
            "responses": {
                "200": {"description": text, "content": {kind: {"schema": schema}}},
                "default": refused,
            },
        }
    }


def _path(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": _TEXT}


def _posted(text: str, wanted: Json, kinds: dict[str, tuple[str, Json]], *parameters: Json) -> Json:
    """A POST with a JSON body; `kinds` are its answers by status."""
    kinds = {**kinds, "default": ("Refused", _ref("Error"))}
    return {
        "post": {
            "summary": text,
            "parameters": list(parameters),
            "requestBody": {"content": {"application/json": {"schema": wanted}}},
            "responses": {
                status: {"description": words, "content": {"application/json": {"schema": schema}}}
                for status, (words, schema) in kinds.items()
            },
        }
    }


def _decision(text: str, good: str) -> Json:
    """A POST that decides about an event."""
    kinds = {
        good: (text, _object(jti=_MAYBE_TEXT, state=_DECISION["properties"]["state"])),
        "409": ("The event as it is now, and the jti if it is being approved", _ref("Event")),
    }
    return _posted(text, _object(fingerprint=_TEXT, reason=_TEXT), kinds, _path("eventId"))


def _enrolment(text: str) -> Json:
    settings = {"type": "object", "additionalProperties": _TEXT}
    item = _object(vmId=_TEXT, generation=_COUNT, settings=settings)
    kinds = {"200": (text, _object(items=_list(item)))}
    return _posted(text, _object(vmIds=_list(_TEXT)), kinds)


_Q: Final = _query("q", _TEXT, "A part of a VM's name, an event's id or a resource's name")
_SITE: Final = _query("site", _TEXT, "The site")
_PLAIN: Final = "text/plain"
_WITH_TIMELINE: Final = _object(timeline=_list(_ref("Fact")))
PATHS: Final[Json] = {
    "/api/v1/overview": _operation("The fleet in numbers", _ref("Overview")),
    "/api/v1/events": _operation(
        "Events: the open ones by time left, then the others, the newest first",
        _page("Event"),
        _query("state", _word("open", "over"), "Only those"),
        _Q,
        _SITE,
        _query("type", _TEXT, "The event's type"),
        *_PAGING,
    ),
    "/api/v1/events/{eventId}": _operation(
        "An event with its timeline",
        {"allOf": [_ref("Event"), _WITH_TIMELINE]},
        _path("eventId"),
    ),
    "/api/v1/events/{eventId}/approve": _decision("Approve an event as it was seen", "202"),
    "/api/v1/events/{eventId}/leave": _decision("Leave an event until its notBefore", "200"),
    "/api/v1/commands/{jti}": _operation("What became of a command", _ref("Command"), _path("jti")),
    "/api/v1/vms": _operation(
        "VMs by name",
        _page("Vm"),
        _query("contact", _word(*CONTACTS), "How its bridge is heard"),
        _query("condition", _word(*CONDITIONS), "What it expects"),
        _SITE,
        _query("location", _TEXT, "The location"),
        _query("zone", _TEXT, "The zone"),
        _query("scaleSet", _TEXT, "The scale set"),
        _Q,
        *_PAGING,
    ),
    "/api/v1/vms/{vmId}": _operation(
        "A VM with its history", {"allOf": [_ref("Vm"), _WITH_TIMELINE]}, _path("vmId")
    ),
    "/api/v1/audit": _operation(
        "The audit, a JSON object a line, the oldest first",
        _TEXT,
        _query("after", _COUNT, "The number of the last row that you have"),
        _PAGING[0],
        kind="application/x-ndjson",
    ),
    "/api/v1/quarantine": _operation(
        "What was not a record of ours, by source and reason, with the last message of each",
        _object(items=_list(_ref("Quarantined"))),
    ),
    "/api/v1/enrolments": _enrolment("Enroll VMs, as an admin: the settings of their bridges"),
    "/api/v1/stream": _operation(
        "Server-sent events: event, vm, command, source", _TEXT, kind="text/event-stream"
    ),
    "/healthz": _operation("200 while the process answers", _TEXT, kind=_PLAIN),
    "/readyz": _operation("503 without the database", _TEXT, kind=_PLAIN),
    "/metrics": _operation("Numbers for Prometheus", _TEXT, kind=_PLAIN),
}


async def described(_request: Request) -> Response:
    """The OpenAPI document."""
    return answer(
        {
            "openapi": "3.1.0",
            "info": {"title": "scheduled-events-bridge console", "version": "1"},
            "paths": PATHS,
            "components": {"schemas": _SCHEMAS},
        }
    )
