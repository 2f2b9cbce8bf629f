"""The rows become the console's only memory: what was computed in memory is a column or a table.

An event's key has room for its scope, contact is judged by when consoles listened, and the last
poll of the command channel is a column of the VM.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import sqlalchemy as sa
from alembic import op

from console.fleet.values import Vm, folded, sort_name

revision = "0006"
down_revision = "0005"

_AT_ONCE = 1000
Json = dict[str, Any]


def upgrade() -> None:
    """Everything that was there stays; what is new is filled from it."""
    _make()
    _fill_vms()
    _fill_observations()
    _fill_events()
    op.execute(
        "UPDATE receipt SET scope = coalesce((SELECT event.scope FROM event "
        "WHERE event.event_id = receipt.event_id), '')"
    )
    for table in ("decision", "command"):
        op.execute(
            f"UPDATE {table} SET scope = coalesce((SELECT event.scope FROM event "  # noqa: S608
            f"WHERE event.event_id = {table}.event_id), '')"
        )
    op.execute("UPDATE vm SET pulled_at = (SELECT at FROM asked WHERE asked.vm_id = vm.vm_id)")
    op.drop_table("asked")


def _make() -> None:
    """The tables and columns as they are from here on, still empty."""
    op.add_column("vm", sa.Column("pulled_at", sa.Float(precision=53), nullable=True))
    for name in ("place", "folded", "sort_name"):
        op.add_column("vm", _text(name))
    op.drop_index("vm_name", "vm")
    op.create_index("vm_place", "vm", ["place", "folded"], unique=False)
    op.create_index("vm_sorted", "vm", ["sort_name", "vm_id"], unique=False)
    op.create_table(
        "listening",
        sa.Column("console", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("since", sa.Float(precision=53), nullable=False),
        sa.Column("until", sa.Float(precision=53), nullable=False),
        sa.Column("seen_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("console", "source", "since"),
    )
    op.create_index("listening_seen", "listening", ["seen_at"], unique=False)
    op.create_table(
        "resource",
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("folded", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("event_id", "scope", "folded"),
    )
    op.create_index("resource_folded", "resource", ["folded"], unique=False)
    for name in ("sighting_vm", "sighting_changed"):
        op.drop_index(name, "sighting")
    op.rename_table("sighting", "observation")
    op.create_index("observation_vm", "observation", ["vm_id", "over"], unique=False)
    op.create_index("observation_changed", "observation", ["changed"], unique=False)
    op.add_column("observation", _text("scope"))
    affects = sa.Column("affects", sa.Integer(), nullable=False, server_default="0")
    op.add_column("observation", affects)
    op.add_column("observation", _text("says"))
    for name in ("event_changed", "event_over"):
        op.drop_index(name, "event")
    op.rename_table("event", "event_before")
    op.create_table(
        "event",
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("shown_by", sa.Text(), nullable=False),
        sa.Column("shown_at", sa.Float(precision=53), nullable=False),
        sa.Column("first_at", sa.Float(precision=53), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=True),
        sa.Column("not_before", sa.Float(precision=53), nullable=True),
        sa.Column("is_news", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("sites", sa.Text(), nullable=False),
        sa.Column("words", sa.Text(), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("event_id", "scope"),
    )
    op.create_index("event_changed", "event", ["changed"], unique=False)
    op.create_index("event_over", "event", ["state", "shown_at"], unique=False)
    for name in ("receipt", "decision", "command"):
        op.add_column(name, _text("scope"))
    op.drop_index("decision_one_open", "decision")
    op.create_index(
        "decision_one_open",
        "decision",
        ["event_id", "scope"],
        unique=True,
        sqlite_where=sa.text("state <> 'over'"),
        postgresql_where=sa.text("state <> 'over'"),
    )
    op.create_index("notice_subject", "notice", ["subject", "kind"], unique=False)


def _fill_vms() -> None:
    for rows in _rows("SELECT vm_id, name, subscription_id, resource_group, scale_set FROM vm"):
        _update(
            "UPDATE vm SET place = :place, folded = :folded, sort_name = :sort_name "
            "WHERE vm_id = :vm_id",
            [
                {
                    "vm_id": row.vm_id,
                    "place": Vm(**row._mapping).place,  # noqa: SLF001  # SQLAlchemy's public name
                    "folded": folded(row.name),
                    "sort_name": sort_name(row.name),
                }
                for row in rows
            ],
        )


def _fill_observations() -> None:
    for rows in _rows(
        "SELECT observation.event_id, observation.vm_id, observation.facts, "
        "vm.subscription_id, vm.resource_group "
        "FROM observation LEFT JOIN vm ON vm.vm_id = observation.vm_id"
    ):
        _update(
            "UPDATE observation SET scope = :scope, affects = :affects, says = :says "
            "WHERE event_id = :event_id AND vm_id = :vm_id",
            [_of_observation(row) for row in rows],
        )


def _of_observation(row: Any) -> Json:
    facts: Json = json.loads(row.facts)
    said = "\n".join([str(facts["fingerprint"]), *sorted(map(str, facts["resources"]))])
    vm = Vm(
        vm_id=row.vm_id,
        name="",
        subscription_id=row.subscription_id,
        resource_group=row.resource_group,
    )
    return {
        "event_id": row.event_id,
        "vm_id": row.vm_id,
        "scope": vm.scope,
        "affects": int(bool(facts["affects"])),
        "says": sha256(said.encode(errors="replace")).hexdigest(),
    }


def _fill_events() -> None:
    """Each event has the scope of the reporter by which it is shown; so have its observations."""
    for rows in _rows(
        "SELECT event_before.*, observation.facts, observation.scope "
        "FROM event_before LEFT JOIN observation "
        "ON observation.event_id = event_before.event_id "
        "AND observation.vm_id = event_before.shown_by"
    ):
        events = [_of_event(row) for row in rows]
        _update(
            "INSERT INTO event (event_id, scope, state, shown_by, shown_at, first_at, event_type, "
            "not_before, is_news, sites, words, changed) VALUES (:event_id, :scope, :state, "
            ":shown_by, :shown_at, :first_at, :event_type, :not_before, :is_news, :sites, :words, "
            ":changed)",
            events,
        )
        _update(
            "UPDATE observation SET scope = :scope WHERE event_id = :event_id",
            [{"scope": each["scope"], "event_id": each["event_id"]} for each in events],
        )
        _update(
            "INSERT INTO resource (event_id, scope, folded) VALUES (:event_id, :scope, :folded)",
            [
                {"event_id": each["event_id"], "scope": each["scope"], "folded": name}
                for each, row in zip(events, rows, strict=True)
                for name in sorted({folded(str(name)) for name in _facts(row)["resources"]})
            ],
        )
    op.drop_table("event_before")


def _of_event(row: Any) -> Json:
    event: Json = dict(row._mapping)  # noqa: SLF001  # SQLAlchemy's public name for it
    del event["facts"]
    event["scope"] = row.scope or ""
    event["not_before"] = _seconds(_facts(row)["not_before"])
    event["is_news"] = int(row.state == "scheduled" and _facts(row)["status"] != "Scheduled")
    return event


def _facts(row: Any) -> Json:
    facts: Json = (
        json.loads(row.facts)
        if row.facts
        else {"resources": [], "not_before": None, "status": "Scheduled"}
    )
    return facts


def _seconds(moment: str | None) -> float | None:
    try:
        found = None if moment is None else datetime.fromisoformat(moment)
        return None if found is None else found.astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False, server_default="")


def _rows(query: str) -> Iterator[Any]:
    """The rows of a query, a thousand at a time; all are read before the first is changed."""
    found = op.get_bind().execute(sa.text(query)).all()
    for start in range(0, len(found), _AT_ONCE):
        yield found[start : start + _AT_ONCE]


def _update(statement: str, values: list[Json]) -> None:
    if values:
        op.get_bind().execute(sa.text(statement), values)
