"""What a sink gets of the time in which it was not named, or was of another kind: what is pending,
and the ends of what it may know. It gets no event that came and went meanwhile.

A sink is its name and its kind: one that changes its kind leaves, and another one comes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

LAST_RECORDS: Final = 1_000
"""More than any sink takes at once."""
MATTERS: Final = (
    "SELECT max(sequence) AS sequence FROM records "
    "WHERE event IN (SELECT key FROM events WHERE pending UNION SELECT event FROM awaited) "
    "GROUP BY event UNION SELECT max(sequence) FROM records "
    "WHERE affects AND event IN (SELECT event FROM awaited) GROUP BY event"
)
"""The newest record of each event that is pending, or whose end a sink may need; of these also the
newest one that concerns this VM, for a sink that follows its events alone."""
IS_OWED: Final = (
    "event IN (SELECT key FROM events WHERE pending "
    "UNION SELECT event FROM awaited WHERE sink = ?1 AND kind = ?2)"
)
"""A condition for `records`: they are of an event that a sink (parameter 1) of a kind (2) that
comes hears of.
"""
IS_DUE: Final = (
    "NOT EXISTS (SELECT 1 FROM absences WHERE absences.sink = ?2 AND first < records.sequence "
    "AND records.sequence <= ifnull(last, records.sequence) "
    "AND records.sequence NOT IN (SELECT sequence FROM late WHERE late.sink = ?2))"
)
"""A condition for `records`: a sink (parameter 2) is to get them, as far as absences go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """The records past `first` and up to `last`, of which the sink gets the `late` ones only."""

    first: int
    last: int
    late: frozenset[int]

    def hides(self, sequence: int) -> bool:
        """Whether the sink does not get the record."""
        return self.first < sequence <= self.last and sequence not in self.late


def preparing(kind: str) -> str:
    """What a sink of this kind is while it prepares: it acknowledges unseen what it was not asked
    for, so it counts as another kind.
    """
    return f"{kind} that prepares"


def leave(connection: sqlite3.Connection, sink: str, kind: str, cursor: int) -> None:
    """The sink is not named any more, or is of another kind: note the events of which this kind may
    have got something, but not the end. Raises `sqlite3.Error`.
    """
    connection.execute(
        "INSERT OR IGNORE INTO acknowledged (event, sink, kind, sequence) "
        "SELECT event, ?1, ?2, 0 FROM records JOIN dead USING (sequence) "
        "WHERE sink = ?1 AND event IS NOT NULL "
        # What came last may have arrived, although that was not written. Which records the sink
        # took is not known any more, but it chose them by these two columns.
        "UNION SELECT event, ?1, ?2, 0 FROM records WHERE sequence IN (SELECT min(sequence) "
        "FROM records WHERE sequence > ?3 AND event IS NOT NULL GROUP BY type, affects)",
        (sink, kind, cursor),
    )
    connection.execute(
        "INSERT OR IGNORE INTO awaited (sink, kind, event) "
        "SELECT ?1, ?2, key FROM events WHERE pending "
        "UNION SELECT ?1, ?2, event FROM acknowledged JOIN records USING (event) "
        "WHERE sink = ?1 AND kind = ?2 AND records.sequence > ?3 "
        "UNION SELECT ?1, ?2, event FROM (SELECT event FROM records WHERE sequence > ?3 "
        "ORDER BY sequence LIMIT ?4) WHERE event IS NOT NULL",
        (sink, kind, cursor, LAST_RECORDS),
    )


def be_absent(connection: sqlite3.Connection, sink: str, head: int) -> None:
    """The sink is not named from now on. Raises `sqlite3.Error`."""
    connection.execute("INSERT INTO absences (sink, first) VALUES (?, ?)", (sink, head))
    connection.execute("UPDATE sinks SET active = 0 WHERE name = ?", (sink,))


def inherit(connection: sqlite3.Connection, sink: str, kind: str, *, prepares: bool) -> None:
    """The sink begins to prepare, or to do so no more: it also awaits the ends of the events that
    it was told of before; `kind` is the plain one. Raises `sqlite3.Error`.
    """
    kinds = (kind, preparing(kind))
    former, now = kinds if prepares else reversed(kinds)
    told = "preparations USING (sink, event)"
    if prepares:
        told = "acknowledged USING (sink, kind, event)"
    events = f"FROM awaited JOIN {told} WHERE sink = ?1 AND kind = ?2"
    for change in (
        "INSERT OR IGNORE INTO acknowledged (event, sink, kind, sequence) SELECT event, ?1, ?3, 0",
        "INSERT OR IGNORE INTO awaited (sink, kind, event) SELECT ?1, ?3, event",
    ):
        connection.execute(f"{change} {events}", (sink, former, now))


def come(connection: sqlite3.Connection, sink: str, kind: str, head: int, *, known: bool) -> None:
    """The sink is named; `known` if it was so in an earlier run. Raises `sqlite3.Error`."""
    if not known:
        connection.execute("INSERT INTO absences (sink, first) VALUES (?, 0)", (sink,))
    # What waits since before the absence it gets as well, also where another kind left it behind.
    connection.execute(
        "INSERT OR IGNORE INTO awaited (sink, kind, event) "  # noqa: S608  # our own words
        "SELECT ?2, ?1, event FROM records WHERE event IS NOT NULL "
        f"AND sequence > (SELECT cursor FROM sinks WHERE name = ?2) AND {IS_DUE}",
        (kind, sink),
    )
    connection.execute(
        "INSERT OR IGNORE INTO late (sink, sequence) "  # noqa: S608  # our own words
        f"SELECT ?1, sequence FROM ({MATTERS}) JOIN records USING (sequence) "
        "WHERE sequence > (SELECT first FROM absences WHERE sink = ?1 AND last IS NULL) "
        f"AND {IS_OWED}",
        (sink, kind),
    )
    connection.execute("UPDATE absences SET last = ? WHERE sink = ? AND last IS NULL", (head, sink))


def begin_again(connection: sqlite3.Connection, sink: str, kind: str) -> None:
    """The sink is of another kind than before under its name: what it has behind it the former one
    got, so it also gets the newest record of each pending event, and of each whose end it awaits.
    Raises `sqlite3.Error`.
    """
    ((cursor,),) = connection.execute("SELECT cursor FROM sinks WHERE name = ?", (sink,))
    connection.execute("DELETE FROM late WHERE sink = ? AND sequence <= ?", (sink, cursor))
    connection.execute(
        "INSERT OR IGNORE INTO late (sink, sequence) "  # noqa: S608  # our own words
        f"SELECT ?1, sequence FROM ({MATTERS}) JOIN records USING (sequence) "
        f"WHERE {IS_OWED}",  # also of what the former kind was not to get, and has not behind it
        (sink, kind),
    )
    first = begin_of_late(connection, sink, cursor)
    if first < cursor:
        connection.execute(
            "INSERT INTO absences (sink, first, last) VALUES (?1, ?2, ?3) "
            "ON CONFLICT (sink, first) DO UPDATE SET last = max(last, ?3)",
            (sink, first, cursor),
        )
        connection.execute("UPDATE sinks SET cursor = ? WHERE name = ?", (first, sink))


def begin_of_late(connection: sqlite3.Connection, sink: str, head: int) -> int:
    """The cursor of a new sink, before the first record that it gets. Raises `sqlite3.Error`."""
    (first,) = connection.execute(
        "SELECT min(sequence) FROM late WHERE sink = ?", (sink,)
    ).fetchone()
    return head if first is None else int(first) - 1


def tidy(connection: sqlite3.Connection) -> None:
    """Delete what every sink has behind it. Raises `sqlite3.Error`."""
    behind = "(SELECT cursor FROM sinks WHERE name = sink)"
    connection.execute(f"DELETE FROM absences WHERE last <= {behind}")  # noqa: S608  # ours
    connection.execute(f"DELETE FROM late WHERE sequence <= {behind}")  # noqa: S608  # ours


def absences_of(connection: sqlite3.Connection, sinks: Iterable[str]) -> dict[str, list[Absence]]:
    """The absences that each sink has not behind it. Raises `sqlite3.Error`."""
    found: dict[str, list[Absence]] = {}
    for sink in sinks:
        rows = connection.execute("SELECT sequence FROM late WHERE sink = ?", (sink,))
        late = frozenset(sequence for (sequence,) in rows)
        found[sink] = [
            Absence(first=first, last=last, late=late)
            for first, last in connection.execute(
                "SELECT first, last FROM absences WHERE sink = ? AND last IS NOT NULL", (sink,)
            )
        ]
    return found
