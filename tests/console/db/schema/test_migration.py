"""The migration of a database of version 0.2.0, with everything in it, on SQLite and on
PostgreSQL.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from pydantic import SecretStr
from sqlalchemy import text
from support.postgresql import PostgreSql

from console.config.settings import ConsoleSettings
from console.db.audit import kept_head
from console.db.connection.opening import REVISIONS, Database, database_url
from console.db.decisions import decision_rows
from console.db.schema import tables
from console.db.snapshot import Snapshots
from console.db.vms.expectations import expectations_of
from console.fleet.values.keys import EventKey

_NUMBERS = count(1)


AT = 1_800_000_000.0


_OF_0_2_0 = "0004"


_MIGRATIONS = Path(__file__).parents[4] / "console" / "db" / "schema" / "migrations"


@pytest.fixture(params=["sqlite", "postgresql"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty database with the schema of 0.2.0."""
    url = None
    if request.param == "postgresql":
        server: PostgreSql = request.getfixturevalue("postgresql")
        url = SecretStr(server.database(f"old_{next(_NUMBERS)}"))
    made = Database(database_url(ConsoleSettings(state_dir=tmp_path, database=url)))
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    with made.writing.connect() as connection, connection.begin():
        config.attributes["connection"] = connection
        command.upgrade(config, _OF_0_2_0)
    yield made
    made.close()


def put(database: Database, table: str, **values: Any) -> None:
    """Insert a row, as 0.2.0 wrote it."""
    names = ", ".join(f'"{name}"' for name in values)
    marks = ", ".join(f":{name}" for name in values)
    with database.writing.begin() as connection:
        connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({marks})"), values)


def fill(database: Database) -> None:
    """Insert two VMs, an open event that both report, an ended one, and a decision on the first."""
    for number in (1, 2):
        put(
            database,
            "vm",
            vm_id=f"id-{number}",
            name=f"Web-{number}",
            site="north",
            subscription_id="S",
            resource_group="G",
            tags="{}",
            sequence=7,
            record_time=AT,
            heard_at=AT,
            heard_by="web",
            missing=1,
            changed=1,
        )
    put(database, "asked", vm_id="id-1", at=AT - 5, changed=1)
    for event_id, state in (("OPEN", "scheduled"), ("OVER", "ended")):
        put(
            database,
            "event",
            event_id=event_id,
            state=state,
            shown_by="id-1",
            shown_at=AT,
            first_at=AT - 60,
            event_type="Reboot",
            sites='["north"]',
            words=f"{event_id}\nweb-1\nweb-2".lower(),
            changed=1,
        )
        for vm_id in ("id-1", "id-2"):
            put(
                database,
                "sighting",
                event_id=event_id,
                vm_id=vm_id,
                record_id=f"{event_id} {vm_id}",
                stream="s",
                sequence=3,
                time=AT,
                first_at=AT - 60,
                over=int(state == "ended"),
                facts=json.dumps(facts(event_id, state)),
                changed=1,
            )
    put(
        database,
        "receipt",
        record_id="r",
        jti="j",
        vm_id="id-1",
        event_id="OVER",
        state="confirmed",
        actor="ada",
        at=AT,
        changed=1,
    )
    put(
        database,
        "decision",
        id="d",
        event_id="OPEN",
        fingerprint="sha256:1",
        kind="leave",
        state="open",
        actor="ada",
        reason="not today",
        at=AT,
        changed=1,
    )
    put(database, "audit", number=1, at=AT, actor="ada", action="leave", body="{}", hash="aa")
    for number, subject, kind in ((1, "OPEN", "due"), (2, "id-2", "vm-silent")):
        put(
            database,
            "notice",
            number=number,
            id=f"{kind} {subject}",
            kind=kind,
            subject=subject,
            at=AT,
            stream="s",
            body=b"{}",
        )


def facts(event_id: str, state: str) -> dict[str, Any]:
    """Return what a reporter reports, as 0.2.0 stored it."""
    return {
        "event_id": event_id,
        "event_type": "Reboot",
        "event_source": "Platform",
        "status": "Completed" if state == "ended" else "Scheduled",
        "not_before": "2027-01-15T09:00:00.000Z",
        "description": None,
        "duration": 9,
        "resources": ["WEB-1", "web-2"],
        "transition": state,
        "affects": True,
        "impact": "restart",
        "revision": 1,
        "fingerprint": "sha256:1",
        "notice": 900.0,
        "pause": None,
        "downtime": 42.0 if state == "ended" else None,
        "goes_on": False,
    }


def test_a_database_of_0_2_0_opens_with_everything(old: Database) -> None:
    """VMs, events with their names, receipts, decisions and the last polls are read after the
    migration.
    """
    fill(old)
    old.open()
    with Snapshots(old, clock=lambda: AT + 1).open() as snapshot:
        (known,) = snapshot.event_lists.open_events()
        (past,) = snapshot.event_lists.ended_events()
        assert (known.seen_by, known.reports_differ) == (2, False)
        assert known.event.scope == "s/g"
        event = known.shown.report.event
        assert event.to_wire() == {
            "eventId": "OPEN",
            "eventType": "Reboot",
            "resourceType": None,
            "resources": ["WEB-1", "web-2"],
            "eventStatus": "Scheduled",
            "notBefore": "2027-01-15T09:00:00Z",
            "description": None,
            "eventSource": "Platform",
            "durationInSeconds": 9,
        }
        assert known.event.not_before == AT + 3600
        assert {name: each.vm_id for name, each in known.named.items()} == {
            "web-1": "id-1",
            "web-2": "id-2",
        }
        assert known.decided.decision is not None
        assert known.decided.decision.reason == "not today"
        assert decision_rows.read_open(snapshot.connection, EventKey("OPEN", "s/g")) is not None
        assert [(each.content.state, each.time) for each in past.receipts] == [("confirmed", AT)]
        assert (past.event.status, past.event.notice, past.event.downtime) == ("Completed", 900, 42)
        one = snapshot.vms.find_vm("id-1")
        assert one is not None
        assert (one.vm.pulled_at, one.vm.missing_records, one.contact) == (AT - 5, 1, "heard")
        assert expectations_of(snapshot.connection, ["id-2"])["id-2"].events == ("OPEN",)
        assert kept_head(snapshot.connection) == (1, "aa")
        told = text("SELECT subject, scope FROM notice ORDER BY number")
        assert snapshot.connection.execute(told).all() == [("OPEN", "s/g"), ("id-2", "")]
        incidents = text("SELECT vm_id, kind FROM incident")
        assert snapshot.connection.execute(incidents).all() == [("id-2", "vm-silent")]


# Of SQLite, no index over an expression is read and compared.
@pytest.mark.filterwarnings("ignore:.*expression-based index")
def test_its_schema_is_that_of_a_new_database(old: Database) -> None:
    """After all migrations the schema equals that of a new database."""
    fill(old)
    old.open()
    with old.reading.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, tables.metadata) == []


# Of SQLite, no index over an expression is read and compared.
@pytest.mark.filterwarnings("ignore:.*expression-based index")
def test_the_migrations_make_the_tables(database: Database) -> None:
    """The schema after all migrations is that of `tables`."""
    with database.reading.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, tables.metadata) == []
        assert context.get_current_revision() == REVISIONS[-1]
