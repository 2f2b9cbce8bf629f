"""Whether the database still has everything that a console has seen."""

from __future__ import annotations

from console.db.connection.continuity import Continuity
from console.db.connection.opening import Database
from console.db.connection.transactions import write_to
from console.db.schema.tables import change


def test_a_number_that_comes_again_shows_lost_transactions(database: Database) -> None:
    """After the database went back, the next write shows it, until that is noted."""
    for _ in range(3):
        with write_to(database):
            pass
    assert not database.continuity.has_break
    with database.writing.begin() as connection:
        connection.execute(change.update().values(number=change.c.number - 2))
    with write_to(database):
        assert database.continuity.has_break
    database.continuity.note(database.continuity.breaks())
    with write_to(database):
        assert not database.continuity.has_break


def test_a_number_that_was_rolled_back_is_used_again(database: Database) -> None:
    """The number of a transaction that failed is given to the next one, and shows nothing."""
    with write_to(database) as (_, first):
        pass
    for _ in range(2):
        with write_to(database) as (connection, change_number):
            connection.rollback()
        assert change_number == first + 1
    assert not database.continuity.has_break


def test_a_reading_from_before_a_commit_shows_nothing() -> None:
    """A reading that began before another thread's commit may see an older number."""
    continuity = Continuity()
    before = continuity.newest
    continuity.begin_write(7)
    continuity.end_write(7)
    continuity.end_read(6, newest_before=before)
    assert not continuity.has_break
    continuity.end_read(6, newest_before=continuity.newest)
    assert continuity.has_break


def test_what_is_lost_while_another_loss_is_noted_still_counts() -> None:
    """A break after the count was taken is not noted with it."""
    continuity = Continuity()
    continuity.end_write(9)
    continuity.begin_write(5)
    seen = continuity.breaks()
    continuity.end_write(5)
    continuity.begin_write(2)
    continuity.note(seen)
    assert continuity.has_break
