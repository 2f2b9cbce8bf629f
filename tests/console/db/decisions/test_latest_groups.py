"""Which console's groups count."""

from __future__ import annotations

from console.db.connection.opening import Database
from console.db.decisions.latest_groups import are_latest, write_groups_again, write_latest_groups


def test_the_console_that_was_started_last_counts(database: Database) -> None:
    """After the database has lost transactions each console writes its groups again; that of an
    earlier start does not replace those of a later one.
    """
    with database.writing.begin() as connection:
        assert are_latest(connection, "new"), "no console was started yet"
        write_latest_groups(connection, "old", 10.0)
        write_latest_groups(connection, "new", 20.0)
        write_groups_again(connection, "old", 10.0)
        assert are_latest(connection, "new")
        assert not are_latest(connection, "old")
        write_latest_groups(connection, "old", 10.0)  # an earlier copy
        write_groups_again(connection, "new", 20.0)
        write_groups_again(connection, "old", 10.0)
        assert are_latest(connection, "new")
