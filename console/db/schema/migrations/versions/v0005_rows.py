"""The rows become the console's only memory. Values that were computed in memory become columns or
tables: the report of each reporter; an event's key with its scope; the times at which consoles
listened, by which contact is judged; and columns by which past events are searched.

Identities become stable: a VM keeps the name, scope, site and tags of its first contact, or those
with which it was enrolled. The audit keeps the number and hash of its last row. Open incidents,
preparations and turns are stored. Columns whose names did not say what they hold are renamed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

import sqlalchemy as sa
from alembic import op

from console.fleet.values.keys import name_key, sort_name
from console.fleet.values.vm import Vm

revision = "0005"
down_revision = "0004"

_AT_ONCE: Final = 1000
_EVENT_FIELDS: Final = {
    "event_id": "event_id",
    "event_type": "event_type",
    "event_source": "event_source",
    "event_status": "status",
    "not_before": "not_before",
    "description": "description",
    "duration_in_seconds": "duration",
    "resources": "resources",
}
"""The fields of `wire.event.Event` that were stored, and what they were called."""
_OTHER_FIELDS: Final = {
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
"""The other fields of a report, and what they were called."""
_RENAMED_COLUMNS: Final = (
    ("vm", "commands", "command_source"),
    ("vm", "heard_by", "heard_source"),
    ("vm", "missing", "missing_records"),
    ("vm", "changed", "change_number"),
    ("vm", "session", "instance_id"),
    ("vm", "lost_session", "lost_instance_id"),
    ("report", "facts", "event_report"),
    ("report", "first_at", "first_seen_at"),
    ("report", "changed", "change_number"),
    ("receipt", "changed", "change_number"),
    ("decision", "changed", "change_number"),
    ("command", "changed", "change_number"),
    ("token", "changed", "change_number"),
    ("enrolment", "changed", "change_number"),
)
"""Table, name before, and name now. The migration makes a new table of events."""
_FILL_INCIDENTS: Final = """
INSERT INTO incident (vm_id, about, key, kind, size, at)
SELECT n.subject, 'contact', n.subject, n.kind, 1, n.at FROM notice n
WHERE n.kind IN ('vm-silent', 'vm-not-back') AND n.subject <> 'fleet' AND n.number = (
    SELECT max(o.number) FROM notice o
    WHERE o.subject = n.subject AND o.kind IN ('vm-silent', 'vm-not-back', 'vm-heard')
)
"""
RowValues = dict[str, Any]


def upgrade() -> None:
    """Change the tables. Every row is kept, and the new columns and tables are filled from the old
    ones.
    """
    events = _all("SELECT * FROM event")
    _change_vms()
    _change_reports()
    _rename_columns()
    _change_events()
    _change_receipts_and_decisions()
    _create_search_tables()
    _create_preparations_and_turns()
    _create_incidents()
    _create_audit_head()
    op.add_column("ownership", _text("source"))
    op.add_column(
        "ownership", sa.Column("taken_at", sa.Float(53), nullable=False, server_default="0")
    )
    for name in ("groups_hash", "groups_run"):
        op.add_column("change", _text(name))
    for name in ("unbroken_since", "groups_since"):
        since = sa.Column(name, sa.Float(53), nullable=False, server_default="0")
        op.add_column("change", since)
    _fill_vms()
    scopes = _fill_reports(events)
    _fill_events(events, scopes)
    _fill_scopes_and_times()


def _change_vms() -> None:
    """Add the columns by which VMs are found and sorted, those of their identity, and the table of
    when consoles listened to them.
    """
    for name in ("place", "name_key", "sort_name"):
        op.add_column("vm", _text(name))
    for name in ("pulled_at", "state_at"):
        op.add_column("vm", sa.Column(name, sa.Float(53)))
    for name in ("name_since", "clock_behind", "accepted_at", "record_waited"):
        op.add_column("vm", sa.Column(name, sa.Float(53), nullable=False, server_default="0"))
    for name in ("prepares", "withheld"):
        op.add_column("vm", _flag(name))
    for name in ("bound_tags", "replaced_tags"):
        op.add_column("vm", sa.Column(name, sa.Text(), nullable=False, server_default="{}"))
    op.add_column(
        "vm", sa.Column("earlier_instance_ids", sa.Text(), nullable=False, server_default="[]")
    )
    for name in ("reported_as", "status_site"):
        op.add_column("vm", sa.Column(name, sa.Text()))
    op.add_column("vm", sa.Column("conflict_at", sa.Float(53)))
    op.create_index("vm_conflict", "vm", ["conflict_at"])
    for name in ("resource_id", "site", "tags"):
        op.add_column("enrolment", sa.Column(name, sa.Text()))
    op.add_column("enrolment", sa.Column("enrolled_at", sa.Float(53)))
    op.add_column("stream", sa.Column("beat_lag", sa.Float(53)))
    op.drop_index("vm_name", "vm")
    op.create_index("vm_place", "vm", ["place", "name_key"])
    op.create_index("vm_sorted", "vm", ["sort_name", "vm_id"])
    op.execute("UPDATE vm SET pulled_at = (SELECT at FROM asked WHERE asked.vm_id = vm.vm_id)")
    op.drop_table("asked")
    op.create_table(
        "listening",
        sa.Column("console", sa.Text(), primary_key=True),
        sa.Column("source", sa.Text(), primary_key=True),
        sa.Column("since", sa.Float(53), primary_key=True),
        sa.Column("until", sa.Float(53), nullable=False),
        sa.Column("seen_at", sa.Float(53), nullable=False),
    )
    op.create_index("listening_seen", "listening", ["seen_at"])


def _change_reports() -> None:
    """Rename the table, and add the columns by which reporters are compared."""
    for name in ("sighting_vm", "sighting_changed"):
        op.drop_index(name, "sighting")
    op.rename_table("sighting", "report")
    op.create_index("report_vm", "report", ["vm_id", "over"])
    op.create_index("report_changed", "report", ["changed"])
    for name in ("scope", "content_hash", "names_hash"):
        op.add_column("report", _text(name))
    op.add_column("report", sa.Column("wording_hash", sa.Text()))
    for name in ("is_own", "is_started", "is_weak"):
        op.add_column("report", _flag(name))


def _rename_columns() -> None:
    for table, before, now in _RENAMED_COLUMNS:
        op.alter_column(table, before, new_column_name=now)


def _change_events() -> None:
    """Create the table anew, as SQLite cannot change a primary key; `_fill_events` puts its rows
    back.
    """
    op.drop_table("event")
    op.create_table(
        "event",
        sa.Column("event_id", sa.Text(), primary_key=True),
        sa.Column("scope", sa.Text(), primary_key=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("shown_by", sa.Text(), nullable=False),
        sa.Column("shown_at", sa.Float(53), nullable=False),
        sa.Column("first_seen_at", sa.Float(53), nullable=False),
        sa.Column("event_type", sa.Text()),
        sa.Column("not_before", sa.Float(53)),
        _flag("is_news"),
        sa.Column("sites", sa.Text(), nullable=False),
        sa.Column("search_text", sa.Text(), nullable=False),
        sa.Column("change_number", sa.BigInteger(), nullable=False),
        _text("status"),
        sa.Column("started_at", sa.Float(53)),
        sa.Column("notice", sa.Float(53)),
        sa.Column("downtime", sa.Float(53)),
    )
    op.create_index("event_changed", "event", ["change_number"])
    op.create_index("event_over", "event", ["state", "shown_at"])
    op.create_index("event_first", "event", ["first_seen_at"])
    op.create_index("event_type", "event", ["event_type"])
    op.create_index("event_status", "event", ["status"])
    op.create_index("event_lower", "event", [sa.text("lower(event_id)")])


def _change_receipts_and_decisions() -> None:
    """Add the event's scope to rows that belong to an event, its own time to a receipt, and what a
    command asked for.
    """
    for name in ("receipt", "decision", "command", "notice"):
        op.add_column(name, _text("scope"))
    op.add_column("receipt", sa.Column("act", sa.Text()))
    act = sa.Column("act", sa.Text(), nullable=False, server_default="approve")
    op.add_column("command", act)
    op.add_column("receipt", sa.Column("time", sa.Float(53), nullable=False, server_default="0"))
    op.drop_index("decision_one_open", "decision")
    op.create_index(
        "decision_one_open",
        "decision",
        ["event_id", "scope"],
        unique=True,
        sqlite_where=sa.text("state <> 'over'"),
        postgresql_where=sa.text("state <> 'over'"),
    )
    op.create_index("notice_subject", "notice", ["subject", "kind"])


def _create_search_tables() -> None:
    """Create the tables of the names and places of events, and of who is on an event or a VM."""
    op.create_table(
        "resource",
        sa.Column("event_id", sa.Text(), primary_key=True),
        sa.Column("scope", sa.Text(), primary_key=True),
        sa.Column("name_key", sa.Text(), primary_key=True),
    )
    op.create_index("resource_name_key", "resource", ["name_key", "event_id", "scope"])
    op.create_table(
        "event_place",
        sa.Column("event_id", sa.Text(), primary_key=True),
        sa.Column("scope", sa.Text(), primary_key=True),
        sa.Column("place", sa.Text(), primary_key=True),
    )
    op.create_table(
        "assignment",
        sa.Column("kind", sa.Text(), primary_key=True),
        sa.Column("subject", sa.Text(), primary_key=True),
        sa.Column("scope", sa.Text(), primary_key=True),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(53), nullable=False),
        sa.Column("until", sa.Float(53), nullable=False),
        sa.Column("change_number", sa.BigInteger(), nullable=False),
    )
    op.create_index("assignment_changed", "assignment", ["change_number"])


def _create_preparations_and_turns() -> None:
    op.create_table(
        "preparation",
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("vm_id", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("cause", sa.Text()),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("begun_sequence", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("time", sa.Float(53), nullable=False),
        sa.Column("left_out_at", sa.Float(53)),
        sa.Column("change_number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("event_id", "scope", "vm_id"),
    )
    op.create_index("preparation_vm", "preparation", ["vm_id"])
    op.create_index("preparation_state", "preparation", ["state"])
    op.create_index("preparation_changed", "preparation", ["change_number"])
    op.create_table(
        "turn",
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("since", sa.Float(53), nullable=False),
        sa.Column("taken_at", sa.Float(53)),
        sa.Column("over_at", sa.Float(53)),
        sa.Column("actor", sa.Text()),
        sa.Column("person_reason", sa.Text()),
        _flag("is_overridden"),
        sa.Column("reason", sa.Text()),
        sa.Column("ended_by", sa.Text()),
        _flag("person_may_approve"),
        sa.Column("groups", sa.Text(), nullable=False),
        sa.Column("vms", sa.Text(), nullable=False),
        sa.Column("held_by", sa.Text(), nullable=False),
        sa.Column("behind", sa.Text(), nullable=False),
        sa.Column("change_number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("event_id", "scope"),
    )
    op.create_index("turn_state", "turn", ["state"])
    op.create_index("turn_changed", "turn", ["change_number"])


def _create_incidents() -> None:
    """Create the table of the open incidents of VMs, so that the notice of an end has the key of
    its beginning. Fill it from the last notice about each VM. Notices about groups of VMs had no
    end before.
    """
    op.create_table(
        "incident",
        sa.Column("vm_id", sa.Text(), primary_key=True),
        sa.Column("about", sa.Text(), primary_key=True),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(53), nullable=False),
    )
    op.execute(_FILL_INCIDENTS)


def _create_audit_head() -> None:
    """Create a table with one row beside the audit, so that a deletion of its last rows is
    detected: number and hash of the newest row, or of a row before the first.
    """
    op.create_table(
        "audit_head",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
    )
    op.execute(
        "INSERT INTO audit_head (id, number, hash) "
        "SELECT 1, number, hash FROM audit ORDER BY number DESC LIMIT 1"
    )
    op.execute(
        "INSERT INTO audit_head (id, number, hash) "
        "SELECT 1, 0, '00000000000000000000000000000000' || '00000000000000000000000000000000' "
        "WHERE NOT EXISTS (SELECT 1 FROM audit_head)"
    )


def _fill_vms() -> None:
    rows = _all("SELECT vm_id, name, subscription_id, resource_group, scale_set FROM vm")
    _write(
        "UPDATE vm SET place = :place, name_key = :name_key, sort_name = :sort_name "
        "WHERE vm_id = :vm_id",
        (
            {
                "vm_id": row.vm_id,
                "place": Vm(**row._mapping).place,  # noqa: SLF001  # SQLAlchemy's public name
                "name_key": name_key(row.name),
                "sort_name": sort_name(row.name),
            }
            for row in rows
        ),
    )


def _fill_reports(events: Sequence[Any]) -> Mapping[str, str]:
    """Fill the new columns of reports; return the scope of each event."""
    rows = _all(
        "SELECT report.event_id, report.vm_id, report.sequence, report.event_report, vm.name, "
        "vm.subscription_id, vm.resource_group "
        "FROM report LEFT JOIN vm ON vm.vm_id = report.vm_id"
    )
    # An event has the scope of the reporter by which it is shown, and so have its reports.
    scopes = {event.event_id: "" for event in events}
    shown = {(event.event_id, event.shown_by) for event in events}
    scopes |= {row.event_id: _scope(row) for row in rows if (row.event_id, row.vm_id) in shown}
    _write(
        "UPDATE report SET scope = :scope, event_report = :event_report, is_own = :is_own, "
        "is_started = :is_started, "
        "content_hash = :content_hash, names_hash = :names_hash, wording_hash = :wording_hash, "
        "is_weak = :is_weak "
        "WHERE event_id = :event_id AND vm_id = :vm_id",
        (_report(row, scopes.get(row.event_id, _scope(row))) for row in rows),
    )
    return scopes


def _report(row: Any, scope: str) -> RowValues:
    report = _renamed(json.loads(row.event_report))
    event, fingerprint = report["event"], str(report["fingerprint"])
    names = [str(name) for name in event["resources"]]
    wording = str(report["impact"]), str(event["description"])
    is_named = row.name is not None and name_key(row.name) in {name_key(name) for name in names}
    return {
        "event_id": row.event_id,
        "vm_id": row.vm_id,
        "scope": scope,
        "event_report": json.dumps(report),
        "is_own": int(bool(report["affects_this_vm"]) and is_named),
        "is_started": int(event["event_status"] == "Started"),
        "content_hash": _hash(fingerprint, *sorted(names)),
        "names_hash": _hash(*sorted(name_key(name) for name in names)),
        "wording_hash": _hash(*wording) if row.sequence else None,
        "is_weak": int(bool(report.get("goes_on")) or fingerprint.startswith("unproven:")),
    }


def _renamed(report: RowValues) -> RowValues:
    """Return a report with its event as one object, in the names of `wire.event.Event`."""
    event = {name: report.get(before) for name, before in _EVENT_FIELDS.items()}
    not_before = _moment(event["not_before"])
    event["not_before"] = None if not_before is None else not_before.isoformat()
    others = {name: report[before] for name, before in _OTHER_FIELDS.items() if before in report}
    return {"event": {**event, "resource_type": None}, **others}


def _fill_events(events: Sequence[Any], scopes: Mapping[str, str]) -> None:
    """Insert every event again, with the values of its reports."""
    reports: dict[str, dict[str, RowValues]] = {}
    for row in _all("SELECT event_id, vm_id, event_report FROM report"):
        reports.setdefault(row.event_id, {})[row.vm_id] = json.loads(row.event_report)
    filled = [
        _event(event, scopes[event.event_id], reports.get(event.event_id, {})) for event in events
    ]
    _write(
        "INSERT INTO event (event_id, scope, state, shown_by, shown_at, first_seen_at, event_type, "
        "not_before, is_news, sites, search_text, change_number, status, started_at, notice, "
        "downtime) VALUES "
        "(:event_id, :scope, :state, :shown_by, :shown_at, :first_at, :event_type, :not_before, "
        ":is_news, :sites, :words, :changed, :status, "
        '(SELECT min(record."time") FROM record '
        "WHERE record.event_id = :event_id AND record.type = 'seb.event.started.v1'), "
        ":notice, :downtime)",
        filled,
    )
    _write(
        "INSERT INTO resource (event_id, scope, name_key) VALUES (:event_id, :scope, :name_key)",
        (
            {"event_id": event["event_id"], "scope": event["scope"], "name_key": name}
            for event in filled
            for name in event["names"]
        ),
    )
    # The places of all reporters that say what is shown.
    op.execute(
        "INSERT INTO event_place (event_id, scope, place) "
        "SELECT DISTINCT shown.event_id, shown.scope, vm.place FROM event "
        "JOIN report AS shown ON shown.event_id = event.event_id AND shown.scope = event.scope "
        "AND shown.vm_id = event.shown_by "
        "JOIN report AS other ON other.event_id = shown.event_id AND other.scope = shown.scope "
        "AND other.content_hash = shown.content_hash "
        "JOIN vm ON vm.vm_id = other.vm_id"
    )


def _event(row: Any, scope: str, reports: Mapping[str, RowValues]) -> RowValues:
    """Return an event's row, and the names that it lists, each once."""
    shown = reports.get(row.shown_by)
    event: RowValues = {} if shown is None else shown["event"]
    not_before = _moment(event.get("not_before"))
    own = [report for report in reports.values() if report["affects_this_vm"]]
    return {
        **row._mapping,  # noqa: SLF001  # SQLAlchemy's public name for it
        "scope": scope,
        "status": event.get("event_status") or "",
        "not_before": None if not_before is None else not_before.timestamp(),
        "is_news": int(
            row.state == "scheduled" and shown is not None and event["event_status"] != "Scheduled"
        ),
        "notice": _longest(report.get("notice_seconds") for report in own),
        "downtime": _longest(
            report.get("downtime_seconds") or report.get("pause_seconds") for report in own
        ),
        "names": sorted({name_key(str(name)) for name in event.get("resources", ())}),
    }


def _fill_scopes_and_times() -> None:
    """Fill the scope of rows that belong to an event, and the times of receipts."""
    for table, column in (
        ("receipt", "event_id"),
        ("decision", "event_id"),
        ("command", "event_id"),
        ("notice", "subject"),
    ):
        op.execute(
            f"UPDATE {table} SET scope = coalesce((SELECT event.scope FROM event "  # noqa: S608
            f"WHERE event.event_id = {table}.{column}), '')"
        )
    op.execute(
        'UPDATE receipt SET time = coalesce((SELECT CASE WHEN record."time" < record.received_at '
        'THEN record."time" ELSE record.received_at END FROM record '
        "WHERE record.id = receipt.record_id), receipt.at)"
    )


def _scope(row: Any) -> str:
    return Vm(
        vm_id=row.vm_id,
        name="",
        subscription_id=row.subscription_id,
        resource_group=row.resource_group,
    ).scope


def _moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _longest(seconds: Iterable[float | None]) -> float | None:
    return max((each for each in seconds if each is not None), default=None)


def _hash(*lines: str) -> str:
    return sha256("\n".join(lines).encode(errors="replace")).hexdigest()


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False, server_default="")


def _flag(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer(), nullable=False, server_default="0")


def _all(query: str) -> Sequence[Any]:
    """Return the rows of a query, which are read before the first of them is changed."""
    return op.get_bind().execute(sa.text(query)).all()


def _write(statement: str, rows: Iterable[RowValues]) -> None:
    for some in _in_batches(rows):
        op.get_bind().execute(sa.text(statement), some)


def _in_batches(rows: Iterable[RowValues]) -> Iterator[list[RowValues]]:
    batch: list[RowValues] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch
