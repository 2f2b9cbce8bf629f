"""Which console's groups count."""

from __future__ import annotations

from sqlalchemy import Connection

from console.db.connection.opening import Database
from console.db.decisions.latest_groups import (
    StartedGroups,
    are_latest,
    take_the_lead,
    write_latest_groups,
)
from console.db.sources.listening import ListeningInterval, write_listening

OLD = StartedGroups(hash="old", run_id="one", started_at=1010.0)
NEW = StartedGroups(hash="new", run_id="two", started_at=1020.0)


def _runs(connection: Connection, groups: StartedGroups, at: float) -> None:
    heard = ListeningInterval(source="mqtt", since=groups.started_at, until=at)
    write_listening(connection, groups.run_id, [heard], seen_at=at)


def test_the_console_that_was_started_last_counts(database: Database) -> None:
    """Each console tells its groups again and again; that of an earlier start does not replace
    those of a later one, also after it has stood still or the database has lost transactions.
    """
    with database.writing.begin() as connection:
        assert are_latest(connection, "new"), "no console was started yet"
        write_latest_groups(connection, OLD)
        write_latest_groups(connection, NEW)
        _runs(connection, NEW, 1030.0)
        take_the_lead(connection, OLD, 1032.0)
        assert are_latest(connection, "new")
        assert not are_latest(connection, "old")
        write_latest_groups(connection, OLD)  # an earlier copy
        take_the_lead(connection, NEW, 1033.0)
        take_the_lead(connection, OLD, 1034.0)
        assert are_latest(connection, "new")


def test_a_console_that_is_gone_leads_nobody(database: Database) -> None:
    """If a new console was tried and stopped, the old one gives turns again at once; if it was
    killed, in five minutes: it may only stand still.
    """
    with database.writing.begin() as connection:
        write_latest_groups(connection, NEW)
        _runs(connection, NEW, 1030.0)
        take_the_lead(connection, OLD, 1330.0)
        assert are_latest(connection, "new")
        take_the_lead(connection, OLD, 1331.0)
        assert are_latest(connection, "old")
        write_latest_groups(connection, NEW)
        _runs(connection, NEW, 0.0)
        take_the_lead(connection, OLD, 1032.0)
        assert are_latest(connection, "old")
