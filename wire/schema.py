"""The JSON Schema (draft 2020-12) that every record satisfies, made from the definitions of the
fields.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

from wire.event import MEASURED, TRANSITIONS, Event, EventData, Observation
from wire.fields import object_schema
from wire.observer import BridgeRun, Node
from wire.record import DATA_CONTENT_TYPE, DATA_OF, DATA_SCHEMA, SPECVERSION
from wire.vm import VmIdentity

_ENVELOPE: Final = {
    "specversion": {"const": SPECVERSION},
    "id": {
        "description": "The same each time this record is delivered; unique per source",
        "type": "string",
        "format": "uuid",
    },
    "source": {
        "description": "ARM id of the observing VM, or urn:uuid:<vmId>",
        "type": "string",
        "minLength": 1,
    },
    "type": {"description": "What the record tells", "enum": list(DATA_OF)},
    "subject": {
        "description": "scheduledEvents/<eventId>, or bridge/<instanceId>",
        "type": "string",
        "minLength": 1,
    },
    "time": {
        "type": "string",
        "format": "date-time",
        "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$",
        "description": "When the bridge observed it",
    },
    "datacontenttype": {"const": DATA_CONTENT_TYPE},
    "dataschema": {"const": DATA_SCHEMA},
    "partitionkey": {"description": "vmId", "type": "string"},
    "sequence": {
        "description": "Grows by one per record of a stream",
        "type": "string",
        "pattern": "^[0-9]{20}$",
    },
    "stream": {
        "description": "Id of the store that counts; a new one means that the old store was lost",
        "type": "string",
        "format": "uuid",
    },
    "data": {"type": "object"},
}


def schema() -> dict[str, Any]:
    """Return the schema that `seb schema` prints."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": DATA_SCHEMA,
        "title": "A record of the scheduled-events-bridge",
        "description": (
            "CloudEvents 1.0, structured JSON. Consumers must ignore fields that they do not know: "
            "later versions may add some."
        ),
        "type": "object",
        "required": list(_ENVELOPE),
        "additionalProperties": False,
        "properties": deepcopy(_ENVELOPE),
        "allOf": [_rule(record_type, data) for record_type, data in DATA_OF.items()],
        "$defs": {
            "vm": object_schema(
                VmIdentity, "The VM that observed, in the words of IMDS's instance document"
            ),
            "node": {
                **object_schema(Node, "Where in a cluster the bridge runs, as configured"),
                "type": ["object", "null"],
            },
            "bridge": object_schema(BridgeRun, "The bridge that observed"),
            "event": object_schema(Event, "The event in Azure's words"),
            "observation": object_schema(Observation, "How it was observed"),
            **{_name(data): object_schema(data) for data in DATA_OF.values()},
        },
    }


def _rule(record_type: str, data: type) -> dict[str, Any]:
    """Return the schema of the data of one type of record."""
    reference: dict[str, Any] = {"$ref": f"#/$defs/{_name(data)}"}
    if data is EventData:
        transition = next(word for word in TRANSITIONS if record_type == f"seb.event.{word}.v1")
        reference = {"allOf": [reference, _of_transition(transition)]}
    return {
        "if": {"properties": {"type": {"const": record_type}}},
        "then": {"properties": {"data": reference}},
    }


def _of_transition(transition: str) -> dict[str, Any]:
    """Return the properties that only records of this transition have."""
    properties: dict[str, Any] = {"transition": {"const": transition}}
    if transition in ("started", "ended"):
        properties["observation"] = {"required": list(MEASURED)}
    rule: dict[str, Any] = {"properties": properties}
    return rule | {"required": ["changed"]} if transition == "updated" else rule


def _name(data: type) -> str:
    name = data.__name__
    return "approvalData" if name == "ReceiptData" else name[0].lower() + name[1:]
