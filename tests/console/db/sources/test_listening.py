"""When consoles listened to a source, as the database has it."""

from __future__ import annotations

from sqlalchemy import Connection

from console.db.connection.opening import Database
from console.db.sources.listening import (
    GRACE_SECONDS,
    ListeningInterval,
    end_other_runs,
    read_listening,
    write_listening,
)
from console.fleet.contact import Interval, merged
from console.ingest.listening import ListeningLog
from console.ingest.state import SourceState

START = 1_000_000.0


def test_a_console_whose_clock_is_set_back_listens_from_then_on(database: Database) -> None:
    """After the clock was set back, what the console wrote about later times does not count."""
    state = SourceState(name="mqtt", kind="mqtt")
    state.note_connected(START)
    log = ListeningLog("a", [state])
    with database.writing.begin() as connection:
        for now in (START, START + 4, START - 3600, START - 3590):
            log.write(connection, now)
        found = read_listening(connection, START - 3590, None)
    assert found.intervals == {"mqtt": [Interval(since=START - 3600, until=START - 3590)]}


def test_two_consoles_listen_together() -> None:
    """Only the time in which no console listened is a gap."""
    one = [Interval(since=0, until=10), Interval(since=30, until=40)]
    two = [Interval(since=5, until=20)]
    assert merged([*one, *two]) == [Interval(since=0, until=20), Interval(since=30, until=40)]


def listened(connection: Connection, console: str, since: float, until: float) -> None:
    """Record that a console has listened to the source mqtt, and listens on."""
    row = ListeningInterval(source="mqtt", since=since, until=until)
    write_listening(connection, console, [row], seen_at=until)


def test_what_was_written_counts_after_a_restart(database: Database) -> None:
    """The interval of a console grows while it writes, and ends with its last write."""
    with database.writing.begin() as connection:
        listened(connection, "a", START, START + 50)
        now = read_listening(connection, START + 52, None)
        assert now.connected == {"mqtt": True}
        assert now.intervals == {"mqtt": [Interval(since=START, until=START + 52)]}
        later = read_listening(connection, START + 51 + GRACE_SECONDS, None)
        assert later.connected == {}
        assert later.intervals == {"mqtt": [Interval(since=START, until=START + 50)]}


def test_the_next_run_at_a_file_ends_the_one_before(database: Database) -> None:
    """After a kill, the next run on a SQLite file ends the interval of the one before at once."""
    with database.writing.begin() as connection:
        listened(connection, "a", START, START + 50)
        end_other_runs(connection, "b")
        now = read_listening(connection, START + 51, None)
    assert now.connected == {}
    assert now.intervals == {"mqtt": [Interval(since=START, until=START + 50)]}


def test_a_source_that_is_not_connected_is_known(database: Database) -> None:
    """A VM that takes commands over a source takes them again as soon as the source is
    connected.
    """
    with database.writing.begin() as connection:
        row = ListeningInterval(source="mqtt", since=START, until=START + 9)
        write_listening(connection, "a", [row], seen_at=START + 20)
        now = read_listening(connection, START + 21, None)
    assert now.connected == {"mqtt": False}
