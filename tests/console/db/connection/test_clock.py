"""The clock that consoles on one database share."""

from __future__ import annotations

import time

import pytest

from console.db.connection.clock import CommonClock
from console.db.connection.opening import Database
from console.db.connection.transactions import write_to


@pytest.mark.parametrize("wrong", [-3600, 3600, 1])
def test_consoles_on_one_database_go_by_its_clock(database: Database, wrong: float) -> None:
    """On PostgreSQL, a console whose machine is an hour off shows no dead VM as heard; SQLite has
    one console.
    """
    clock = CommonClock(lambda: time.time() + wrong)
    with write_to(database) as (connection, _):
        clock.compare(connection)
        clock.compare(connection)
    off = wrong if database.is_sqlite else 0
    assert abs(clock() - time.time() - off) < 60


def test_a_small_difference_counts_too(database: Database) -> None:
    """What another console wrote a moment ago is not in the future, also with a small difference of
    the clocks.
    """
    clock = CommonClock(lambda: time.time() - 4)
    with write_to(database) as (connection, _):
        clock.compare(connection)
        behind = time.time() - clock()
    assert (behind < 3) != database.is_sqlite
