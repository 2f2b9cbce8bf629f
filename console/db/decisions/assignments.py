"""The rows of assignments: the person who works on an event or a VM for some minutes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from sqlalchemy import Connection, select

from console.db.bulk import rows_in, upsert
from console.db.schema.tables import assignment
from console.fleet.values.decision import Assignment


class Subject(NamedTuple):
    """What a person is assigned to: an event, or a VM, which has no scope."""

    id: str
    scope: str = ""


EVENT: Final = "event"
VM: Final = "vm"


def upsert_assignment(
    connection: Connection,
    kind: str,
    subject: Subject,
    *,
    to: Assignment,
    at: float,
    change_number: int,
) -> None:
    """Assign a person from now until the end of the assignment; an end that has passed releases the
    subject.
    """
    row = {"kind": kind, "subject": subject.id, "scope": subject.scope, "actor": to.actor}
    upsert(
        connection,
        assignment,
        [{**row, "at": at, "until": to.until, "change_number": change_number}],
    )


def assignments_of(
    connection: Connection, kind: str, subjects: Iterable[str], now: float
) -> dict[Subject, Assignment]:
    """Return who is assigned to these events or VMs now, by subject and scope."""
    c = assignment.c
    found: dict[Subject, Assignment] = {}
    query = select(assignment).where(c.kind == kind, c.until > now)
    for row in rows_in(connection, query, c.subject, set(subjects)):
        found[Subject(row.subject, row.scope)] = Assignment(actor=row.actor, until=row.until)
    return found
