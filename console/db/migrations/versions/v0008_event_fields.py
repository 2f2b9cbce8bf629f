"""What a reporter says of an event is stored with the event as one object, in the names of
`wire.event.Event`: a new field of an event needs no change of the schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_AT_ONCE: Final = 1000
_EVENT: Final = {
    "event_id": "event_id",
    "event_type": "event_type",
    "event_source": "event_source",
    "event_status": "status",
    "not_before": "not_before",
    "description": "description",
    "duration_in_seconds": "duration",
    "resources": "resources",
}
"""The event's fields, and what they were called."""
_REST: Final = {
    "transition": "transition",
    "affects_this_vm": "affects",
    "impact": "impact",
    "revision": "revision",
    "fingerprint": "fingerprint",
    "notice_seconds": "notice",
    "pause_seconds": "pause",
    "downtime_seconds": "downtime",
    "goes_on": "goes_on",
}
Json = dict[str, Any]


def upgrade() -> None:
    """Every observation keeps what it says."""
    for rows in _rows("SELECT event_id, vm_id, facts FROM observation"):
        op.get_bind().execute(
            sa.text(
                "UPDATE observation SET facts = :facts "
                "WHERE event_id = :event_id AND vm_id = :vm_id"
            ),
            [
                {
                    "event_id": row.event_id,
                    "vm_id": row.vm_id,
                    "facts": json.dumps(_renamed(json.loads(row.facts))),
                }
                for row in rows
            ],
        )


def _renamed(facts: Json) -> Json:
    event = {name: facts.get(before) for name, before in _EVENT.items()}
    rest = {name: facts[before] for name, before in _REST.items() if before in facts}
    known = {"resource_type": None, "not_before": _in_utc(event["not_before"])}
    return {"event": {**event, **known}, **rest}


def _in_utc(moment: str | None) -> str | None:
    try:
        found = None if moment is None else datetime.fromisoformat(moment).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return None if found is None else found.isoformat()


def _rows(query: str) -> Iterator[list[Any]]:
    """All rows of a query, some at a time."""
    found = op.get_bind().execute(sa.text(query)).all()
    for start in range(0, len(found), _AT_ONCE):
        yield list(found[start : start + _AT_ONCE])
