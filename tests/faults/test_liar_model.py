"""One liar among honest VMs, whatever it sends: nothing honest is hidden, ended or blocked."""

from __future__ import annotations

import random
from pathlib import Path

from support.console.fleet_with_liar import lie
from support.faults.sizes import sizes

from console.config.settings import ConsoleSettings
from console.db.connection.opening import Database, database_url


@sizes("histories, first", (3, 1), (40, None), (400, None))
def test_one_liar_harms_no_honest_event(tmp_path: Path, histories: int, first: int | None) -> None:
    """Also nobody else is asked to approve, and no honest VM is retired or loses its name."""
    seed = random.randrange(10**9) if first is None else first
    for number in range(seed, seed + histories):
        database = Database(database_url(ConsoleSettings(state_dir=tmp_path / str(number))))
        database.open()
        try:
            lie(database, number, 40)
        except AssertionError as error:
            raise AssertionError(f"seed {number}: {error}") from error
        finally:
            database.close()


def test_a_liar_that_takes_a_name_in_another_place_harms_no_honest_event(tmp_path: Path) -> None:
    """A liar brings no event back by the name that another VM bears in another place."""
    database = Database(database_url(ConsoleSettings(state_dir=tmp_path)))
    database.open()
    try:
        lie(database, 585672933, 40)
    finally:
        database.close()
