"""When consoles listened to a source, as the database has it."""

from __future__ import annotations

from sqlalchemy import Connection

from console.db.bulk import upsert
from console.db.connection.opening import Database
from console.db.schema.tables import ownership
from console.db.sources.listening import (
    GRACE_SECONDS,
    ListeningInterval,
    does_another_listen,
    end_other_runs,
    read_listening,
    was_nobody_listening,
    write_listening,
    write_unbroken_since,
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


def test_the_start_of_a_console_beside_another_run_is_a_break_for_a_moment(
    database: Database,
) -> None:
    """A console that was killed seems to run for a while: its next run begins a break of ten
    seconds all the same, for VMs that send by themselves and found no console.
    """
    with database.writing.begin() as connection:
        listened(connection, "a", START, START + 50)
        assert read_listening(connection, START + 51, None).just_since == {}
        listened(connection, "b", START + 55, START + 55)
        assert read_listening(connection, START + 56, None).just_since == {"mqtt": START + 55}
        assert read_listening(connection, START + 66, None).just_since == {}


def claimed(
    connection: Connection, partition: str, *, owner: str = "a", at: float, taken_at: float = START
) -> None:
    """Record that a console has renewed its claim of a partition, which it took at some time."""
    row = {"hub": "ns/hub", "consumer_group": "g", "partition": partition, "etag": "e"}
    row |= {"source": "hub", "owner_id": owner}
    upsert(connection, ownership, [{**row, "modified_at": at, "taken_at": taken_at}])


def test_a_hub_is_listened_to_once_every_partition_is_read(database: Database) -> None:
    """While nobody reads a partition of a hub, and until a VM is heard after another console has
    taken it, the VM may have told something that is not read.
    """
    with database.writing.begin() as connection:
        claimed(connection, "0", at=START + 60)
        claimed(connection, "1", owner="b", at=START + 60)
        assert read_listening(connection, START + 65, None).again_since == {"hub": START}
        claimed(connection, "0", at=START + 66)
        assert read_listening(connection, START + 67, None).again_since == {"hub": START + 67}
        claimed(connection, "1", at=START + 70, taken_at=START + 70)
        claimed(connection, "0", at=START + 70)
        assert read_listening(connection, START + 71, None).again_since == {"hub": START + 70}
        claimed(connection, "1", owner="", at=START + 71, taken_at=START + 71)
        assert read_listening(connection, START + 72, None).again_since == {"hub": START + 72}
        claimed(connection, "0", at=START + 671)
        assert read_listening(connection, START + 672, None).again_since == {"hub": START}


def test_who_listens_meanwhile_loses_nothing(database: Database) -> None:
    """A console that stood still for a while has missed nothing that another one has heard."""
    with database.writing.begin() as connection:
        listened(connection, "a", START, START + 50)
        assert does_another_listen(connection, "b", START + 50 + GRACE_SECONDS)
        assert not does_another_listen(connection, "a", START + 50)
        assert not does_another_listen(connection, "b", START + 51 + GRACE_SECONDS)


def test_a_source_that_is_not_connected_is_known(database: Database) -> None:
    """A VM that takes commands over a source takes them again as soon as the source is
    connected.
    """
    with database.writing.begin() as connection:
        row = ListeningInterval(source="mqtt", since=START, until=START + 9)
        write_listening(connection, "a", [row], seen_at=START + 20)
        now = read_listening(connection, START + 21, None)
    assert now.connected == {"mqtt": False}


def test_nobody_knows_what_was_told_while_no_console_could_store_it(database: Database) -> None:
    """A console that starts, or can write again, after nobody has listened for a while notes when
    that was; until then, nothing that was told before is known.
    """
    with database.writing.begin() as connection:
        assert not was_nobody_listening(connection, START), "a new database"
        listened(connection, "a", START, START + 50)
        short = START + 50 + GRACE_SECONDS
        assert not was_nobody_listening(connection, short)
        assert read_listening(connection, short, None).unbroken_since == 0
        assert was_nobody_listening(connection, START - 3600), "the clock was set back"
        long = short + 1
        assert was_nobody_listening(connection, long)
        assert read_listening(connection, long, None).unbroken_since == long
        write_unbroken_since(connection, long)
        listened(connection, "a", long, long + 4)
        assert read_listening(connection, long + 5, None).unbroken_since == long
        broken = read_listening(connection, long + 5, None, has_break=True)
        assert broken.unbroken_since == long + 5


def test_who_could_not_write_for_a_while_listens_again(database: Database) -> None:
    """A database that was away, or has lost transactions, begins a new interval."""
    state = SourceState(name="mqtt", kind="mqtt")
    state.note_connected(START)
    log = ListeningLog("a", [state])
    with database.writing.begin() as connection:
        assert not log.write(connection, START)
        assert not log.write(connection, START + 4)
        assert log.write(connection, START + 8, has_break=True)
        assert not log.write(connection, START + 12)
        assert log.write(connection, START + 13 + GRACE_SECONDS)
        found = read_listening(connection, START + 13 + GRACE_SECONDS, None)
    assert found.intervals["mqtt"] == [
        Interval(since=START, until=START + 4),
        Interval(since=START + 8, until=START + 12),
    ]


def test_a_source_that_was_away_for_a_while_counts_from_its_return(database: Database) -> None:
    """A VM may have prepared meanwhile and not be back; a moment is too short for that."""
    with database.writing.begin() as connection:
        listened(connection, "a", START, START + 50)
        listened(connection, "a", START + 60, START + 100)
        assert read_listening(connection, START + 69, None).just_since == {"mqtt": START + 60}
        assert read_listening(connection, START + 70, None).just_since == {}
        assert read_listening(connection, START + 101, None).again_since == {}
        listened(connection, "a", START + 120, START + 130)
        listened(connection, "a", START + 135, START + 140)
        found = read_listening(connection, START + 141, None)
        assert found.again_since == {"mqtt": START + 120}
