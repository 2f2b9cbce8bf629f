"""Who asks the HTTPS channel, as memory and the database keep it."""

from __future__ import annotations

from console.fleet.index import Fleet
from console.store.asked import asked_since, write_asked
from console.store.opening import Database
from console.store.reading import everything, newest_number, since
from console.store.writing import next_number
from console.web.asked import WRITE_SECONDS, Asked

AT = 1_800_000_000.0


def test_it_is_known_at_once_and_written_now_and_then() -> None:
    """A VM that asks every second has a row every twenty."""
    fleet = Fleet()
    asked = Asked(fleet)
    asked.note("vm-1", AT)
    assert fleet.asked == {"vm-1": AT}
    assert asked.due(AT) == {"vm-1": AT}
    asked.written({"vm-1": AT})
    asked.note("vm-1", AT + 1)
    assert asked.due(AT + 1) == {}
    assert asked.due(AT + WRITE_SECONDS) == {"vm-1": AT + 1}


def test_what_was_not_written_is_due_again() -> None:
    """A database that is away loses nothing; a VM that asked meanwhile is written once more."""
    asked = Asked(Fleet())
    asked.note("vm-1", AT)
    rows = asked.due(AT)
    asked.note("vm-1", AT + 1)
    assert asked.due(AT + 1) == {"vm-1": AT + 1}
    asked.written(rows)
    assert asked.due(AT + WRITE_SECONDS) == {"vm-1": AT + 1}


def test_an_older_row_does_not_turn_time_back() -> None:
    """What another console wrote may be older than what this one knows."""
    fleet = Fleet()
    asked = Asked(fleet)
    asked.note("vm-1", AT)
    asked.put({"vm-1": AT - 5, "vm-2": AT - 5})
    assert fleet.asked == {"vm-1": AT, "vm-2": AT - 5}


def test_a_revoked_vm_is_not_counted() -> None:
    """Its next request is refused, so no command is sent to it."""
    fleet = Fleet()
    asked = Asked(fleet)
    for vm_id in ("vm-1", "vm-2"):
        asked.note(vm_id, AT)
    asked.forget({"vm-1"})
    assert (fleet.asked, asked.due(AT)) == ({"vm-2": AT}, {"vm-2": AT})
    asked.forget(None)
    assert (fleet.asked, asked.due(AT)) == ({}, {})


def test_other_consoles_read_the_rows(database: Database) -> None:
    """One row for each VM, which the next run and the other consoles get with the news."""
    for at in (AT, AT + 20):
        with database.writing.begin() as connection:
            write_asked(connection, {"vm-1": at, "vm-2": at}, next_number(connection))
    with database.reading.begin() as connection:
        number = newest_number(connection)
        assert everything(connection).asked == {"vm-1": AT + 20, "vm-2": AT + 20}
        assert since(connection, number - 1, ()).asked == {"vm-1": AT + 20, "vm-2": AT + 20}
        assert asked_since(connection, number) == {}
