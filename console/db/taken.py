"""'I am on it': an event or a VM that a person takes for some minutes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sqlalchemy import Connection, select

from console.db.tables import taken
from console.db.upsert import portions, upsert
from console.fleet.values import Taken

Key = tuple[str, str]
EVENT: Final = "event"
VM: Final = "vm"


def take(connection: Connection, kind: str, key: Key, *, by: Taken, at: float, number: int) -> None:
    """Write that somebody is on it from now on; an end that is not later gives it back."""
    row = {"kind": kind, "subject": key[0], "scope": key[1], "actor": by.actor}
    upsert(connection, taken, [{**row, "at": at, "until": by.until, "changed": number}])


def taken_among(
    connection: Connection, kind: str, subjects: Iterable[str], now: float
) -> dict[Key, Taken]:
    """Who is on some of them now, by subject and scope."""
    c = taken.c
    found: dict[Key, Taken] = {}
    for few in portions(set(subjects)):
        wanted = select(taken).where(c.kind == kind, c.until > now, c.subject.in_(few))
        for row in connection.execute(wanted):
            found[(row.subject, row.scope)] = Taken(actor=row.actor, until=row.until)
    return found
