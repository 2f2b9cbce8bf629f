"""What is past can be asked for: how an event ended and what was measured are columns of it, a
receipt has its own time, and somebody can take an event or a VM.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_AT_ONCE = 1000


def upgrade() -> None:
    """What was observed before is filled in."""
    op.add_column("receipt", sa.Column("time", sa.Float(53), nullable=False, server_default="0"))
    op.execute(
        'UPDATE receipt SET time = coalesce((SELECT CASE WHEN record."time" < record.received_at '
        'THEN record."time" ELSE record.received_at END FROM record '
        "WHERE record.id = receipt.record_id), receipt.at)"
    )
    op.add_column("event", sa.Column("status", sa.Text(), nullable=False, server_default=""))
    for name in ("started_at", "notice", "downtime"):
        op.add_column("event", sa.Column(name, sa.Float(53), nullable=True))
    op.create_index("event_first", "event", ["first_at"], unique=False)
    op.create_table(
        "taken",
        sa.Column("kind", sa.Text(), primary_key=True),
        sa.Column("subject", sa.Text(), primary_key=True),
        sa.Column("scope", sa.Text(), primary_key=True),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(53), nullable=False),
        sa.Column("until", sa.Float(53), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
    )
    op.create_index("taken_changed", "taken", ["changed"], unique=False)
    _fill()


def _fill() -> None:
    connection = op.get_bind()
    found = connection.execute(
        sa.text(
            "SELECT observation.event_id, observation.scope, observation.vm_id, observation.facts, "
            "event.shown_by FROM observation JOIN event "
            "ON event.event_id = observation.event_id AND event.scope = observation.scope"
        )
    ).all()
    events: dict[tuple[str, str], dict[str, Any]] = {}
    for row in found:
        facts = json.loads(row.facts)
        key = (row.event_id, row.scope)
        new = {"id": row.event_id, "scope": row.scope, "status": "", "notice": None, "down": None}
        event = events.setdefault(key, new)
        if row.vm_id == row.shown_by:
            event["status"] = facts["event"]["event_status"] or ""
        if facts["affects_this_vm"]:
            away = facts.get("downtime_seconds") or facts.get("pause_seconds")
            event["notice"] = _longer(event["notice"], facts.get("notice_seconds"))
            event["down"] = _longer(event["down"], away)
    rows = list(events.values())
    for start in range(0, len(rows), _AT_ONCE):
        connection.execute(
            sa.text(
                "UPDATE event SET status = :status, notice = :notice, downtime = :down, "
                'started_at = (SELECT min(record."time") FROM record '
                "WHERE record.event_id = :id AND record.type = 'seb.event.started.v1') "
                "WHERE event_id = :id AND scope = :scope"
            ),
            rows[start : start + _AT_ONCE],
        )


def _longer(one: float | None, other: float | None) -> float | None:
    return max((each for each in (one, other) if each is not None), default=None)
