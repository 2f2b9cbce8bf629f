"""Chooses the records that a sink gets of the time in which it was not configured, or had another
role.

That time is an *absence*. Of its records the sink gets only the *catch-up* records: the newest one
of each pending event, and the ends that it is *owed*, of events that it may have received. It does
not get events that came and went in between. `reconcile` has the cases as a table.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from bridge.store.recipient import UNKNOWN, Accepts, Recipient, accepted_in, role_of

Wants = Callable[[str, int, str, int | None], bool]
"""Checks whether a sink, by name, wants a record, by its sequence, its type, and whether that
concerns this VM.
"""

MAX_UNCONFIRMED: Final = 1_000
"""How many records after the cursor may have arrived all the same: more than any sink takes at
once.
"""
NEWEST_RECORDS: Final = (
    "SELECT max(sequence) AS sequence FROM records "
    "WHERE event IN (SELECT key FROM events WHERE pending UNION SELECT event FROM ends_owed) "
    "GROUP BY event UNION SELECT max(sequence) FROM records "
    "WHERE affects AND event IN (SELECT event FROM ends_owed) GROUP BY event"
)
"""The newest record of each event that is pending, or whose end a sink may need. For a sink that
follows only events of this VM, there is also each event's newest record that concerns it.
"""
CATCH_UP_CONDITION: Final = (
    "event IN (SELECT key FROM events WHERE pending "
    "UNION SELECT event FROM ends_owed WHERE sink = ?1 AND role = ?2)"
)
"""A condition for `records`: their event is pending, or its end is owed to a sink (parameter 1) in
its role (2).
"""
NOT_MISSED_CONDITION: Final = (
    "NOT EXISTS (SELECT 1 FROM absences WHERE absences.sink = ?2 AND first < records.sequence "
    "AND records.sequence <= ifnull(last, records.sequence) "
    "AND records.sequence NOT IN (SELECT sequence FROM catch_up WHERE catch_up.sink = ?2))"
)
"""A condition for `records`: no absence of a sink (parameter 2) keeps them from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """The records after `first` and up to `last`: of these the sink gets only `catch_up`."""

    first: int
    last: int
    catch_up: frozenset[int]

    def hides(self, sequence: int) -> bool:
        """Check whether the sink does not get the record."""
        return self.first < sequence <= self.last and sequence not in self.catch_up


def reconcile(
    connection: sqlite3.Connection, sinks: Mapping[str, Recipient], *, head: int, wants: Wants
) -> None:
    """Compare the configured sinks with those of the run before. `head` is the newest sequence.
    Raises `sqlite3.Error`.

    "Newest" is the newest record of each event that is pending, or whose end the sink is owed.

    | the sink        | cursor                 | catch-up records   | ends owed               |
    | --------------- | ---------------------- | ------------------ | ----------------------- |
    | is new          | before the first of    | newest             | those that `hand_over`  |
    |                 | its catch-up records   |                    | noted, for this once    |
    | is removed      | stays                  | none               | noted for its role      |
    | is back         | stays: what waited     | newest, of those   | those of its role, for  |
    |                 | before the absence is  | of the absence     | this once               |
    |                 | still delivered        |                    |                         |
    | is of another   | back to before the     | newest             | noted for the former    |
    | kind            | first of its catch-up  |                    | role; those of its own  |
    |                 | records                |                    | for this once           |
    | begins or stops | as for another kind    | as for another     | as for another kind; of |
    | to prepare      |                        | kind               | its former role as well |
    | accepts other   | as for another kind    | newest, of those   | those of its role       |
    | records         |                        | that it left out   |                         |
    """
    rows = connection.execute("SELECT name, cursor, active, role FROM sinks").fetchall()
    choices = dict(connection.execute("SELECT name, choice FROM sinks WHERE choice != ''"))
    was: dict[str, tuple[bool, str]] = {}  # whether a sink was there, and its role
    for name, cursor, active, kept_role in rows:
        role = kept_role or role_in_0_2_0(connection, name) or sinks.get(name, UNKNOWN).kind
        was[name] = (bool(active), role)
        if active and (name not in sinks or sinks[name].role != role):
            note_ends_owed(connection, name, role, cursor, accepted_in(role, choices.get(name, "")))
        if active and name not in sinks:
            _mark_removed(connection, name, head)
    for name, recipient in sinks.items():
        active, role = was.get(name, (False, recipient.role))
        for table in ("acknowledged", "ends_owed"):
            connection.execute(
                # A sink that was removed from a store of 0.2.0 may have no role there.
                f"UPDATE OR IGNORE {table} SET role = ? WHERE sink = ? AND role = ''",  # noqa: S608
                (recipient.kind, name),
            )
        if role != recipient.role:
            _carry_over_ends(connection, name, recipient.kind, prepares=recipient.prepares)
            _owe_ends_of_retried(connection, name, recipient.role)
            _restart_in_role(connection, name, recipient.role)
        elif choices.get(name, recipient.choice) != recipient.choice:
            accepted = accepted_in(role, choices[name])
            _return_to_left_out(connection, name, recipient.role, wants, accepted)
        if not active:
            _add_sink(connection, name, recipient.role, head, is_new=name not in was)
            connection.execute(
                "INSERT INTO sinks (name, cursor, active) VALUES (?, ?, 1) "
                "ON CONFLICT (name) DO UPDATE SET active = 1",
                (name, _cursor_before_catch_up(connection, name, head)),
            )
        connection.execute(
            "DELETE FROM ends_owed WHERE sink = ? AND role = ?", (name, recipient.role)
        )
        connection.execute(
            "UPDATE sinks SET role = ?, choice = ? WHERE name = ?",
            (recipient.role, recipient.choice, name),
        )
    _delete_passed(connection)


def role_in_0_2_0(connection: sqlite3.Connection, sink: str) -> str | None:
    """Return the role of a sink in a store of 0.2.0, which kept it only with what the sink had
    acknowledged; None if that is nothing. Raises `sqlite3.Error`.
    """
    newest = connection.execute(
        "SELECT role FROM acknowledged WHERE sink = ? ORDER BY sequence DESC LIMIT 1", (sink,)
    ).fetchone()
    return None if newest is None else str(newest[0])


def note_ends_owed(
    connection: sqlite3.Connection, sink: str, role: str, cursor: int, accepted: Accepts
) -> None:
    """Note the events whose start a sink may have got in this role, but not their end. Called for a
    sink that is removed or gets another role. `accepted`: the records that it took. Raises
    `sqlite3.Error`.
    """
    connection.execute(
        "INSERT OR IGNORE INTO acknowledged (event, sink, role, sequence) "
        "SELECT event, ?2, ?1, 0 FROM records JOIN dead USING (sequence) "
        "WHERE sink = ?2 AND event IS NOT NULL",
        (role, sink),
    )
    unconfirmed = _unconfirmed(connection, sink, cursor, accepted)
    _note_unconfirmed(connection, sink, role, unconfirmed)
    connection.execute(
        "INSERT OR IGNORE INTO ends_owed (sink, role, event) "
        "SELECT ?1, ?2, key FROM events WHERE pending "
        # Not only after the cursor: the sink may have left an end out, and be back for it.
        "UNION SELECT ?1, ?2, event FROM acknowledged JOIN records USING (event) "
        "WHERE sink = ?1 AND role = ?2 AND records.sequence > acknowledged.sequence "
        "UNION SELECT ?1, ?2, event FROM (SELECT event FROM records WHERE sequence > ?3 "
        "ORDER BY sequence LIMIT ?4) WHERE event IS NOT NULL",
        (sink, role, cursor, MAX_UNCONFIRMED),
    )


def _unconfirmed(
    connection: sqlite3.Connection, sink: str, cursor: int, accepted: Accepts
) -> list[str]:
    """Return the events of which a sink may have got a record after its cursor, because its answer
    was not heard or not written: the bridge was killed, or the disk was full. Raises
    `sqlite3.Error`.
    """
    rows = connection.execute(
        "SELECT event, type, affects FROM records "  # noqa: S608  # ours
        f"WHERE event IS NOT NULL AND sequence > ?1 AND {NOT_MISSED_CONDITION} ORDER BY sequence",
        (cursor, sink),
    )
    taken = (
        event
        for event, kind, concerns in rows
        if accepted(kind, None if concerns is None else bool(concerns))
    )
    return list(islice(taken, MAX_UNCONFIRMED))


def _note_unconfirmed(
    connection: sqlite3.Connection, sink: str, role: str, events: Iterable[str]
) -> None:
    connection.executemany(
        "INSERT OR IGNORE INTO acknowledged (event, sink, role, sequence) VALUES (?, ?, ?, 0)",
        [(event, sink, role) for event in events],
    )


def _mark_removed(connection: sqlite3.Connection, sink: str, head: int) -> None:
    """Begin the absence of a sink that is not configured any more. Raises `sqlite3.Error`."""
    connection.execute(
        # Without a record since it was configured again, its last absence continues.
        "INSERT INTO absences (sink, first) VALUES (?, ?) "
        "ON CONFLICT (sink, first) DO UPDATE SET last = NULL",
        (sink, head),
    )
    connection.execute("UPDATE sinks SET active = 0 WHERE name = ?", (sink,))


def _carry_over_ends(
    connection: sqlite3.Connection, sink: str, kind: str, *, prepares: bool
) -> None:
    """Note that a sink that starts or stops to prepare is still owed the ends of the events that it
    got in its former role. Raises `sqlite3.Error`.
    """
    former = role_of(kind, prepares=not prepares)
    now = role_of(kind, prepares=prepares)
    table = "acknowledged" if prepares else "preparations"
    events = f"FROM ends_owed JOIN {table} USING (sink, role, event) WHERE sink = ?1 AND role = ?2"
    for change in (
        "INSERT OR IGNORE INTO acknowledged (event, sink, role, sequence) SELECT event, ?1, ?3, 0",
        "INSERT OR IGNORE INTO ends_owed (sink, role, event) SELECT ?1, ?3, event",
    ):
        connection.execute(f"{change} {events}", (sink, former, now))


def _owe_ends_of_retried(connection: sqlite3.Connection, sink: str, role: str) -> None:
    """Note the events of records that a person has let be tried again: they go to the sink in its
    new role. Raises `sqlite3.Error`.
    """
    connection.execute(
        "INSERT OR IGNORE INTO ends_owed (sink, role, event) "
        "SELECT ?1, ?2, event FROM records JOIN dead USING (sequence) "
        "WHERE sink = ?1 AND again AND event IS NOT NULL",
        (sink, role),
    )


def _add_sink(
    connection: sqlite3.Connection, sink: str, role: str, head: int, *, is_new: bool
) -> None:
    """End the absence of a sink that is configured again, or for the first time: choose its
    catch-up records. Raises `sqlite3.Error`.
    """
    if is_new:
        connection.execute("INSERT INTO absences (sink, first) VALUES (?, 0)", (sink,))
    # It also gets the records that waited for it before the absence, even if it had another role.
    connection.execute(
        "INSERT OR IGNORE INTO ends_owed (sink, role, event) "  # noqa: S608  # our own words
        "SELECT ?2, ?1, event FROM records WHERE event IS NOT NULL "
        f"AND sequence > (SELECT cursor FROM sinks WHERE name = ?2) AND {NOT_MISSED_CONDITION}",
        (role, sink),
    )
    connection.execute(
        "INSERT OR IGNORE INTO catch_up (sink, sequence) "  # noqa: S608  # our own words
        f"SELECT ?1, sequence FROM ({NEWEST_RECORDS}) JOIN records USING (sequence) "
        "WHERE sequence > (SELECT first FROM absences WHERE sink = ?1 AND last IS NULL) "
        f"AND {CATCH_UP_CONDITION}",
        (sink, role),
    )
    connection.execute("UPDATE absences SET last = ? WHERE sink = ? AND last IS NULL", (head, sink))


def _restart_in_role(connection: sqlite3.Connection, sink: str, role: str) -> None:
    """Begin with a sink's new role. The records up to its cursor went to its former role. It gets
    the catch-up records among them again, so its cursor moves back to before the first one. Raises
    `sqlite3.Error`.
    """
    cursor = _forget_passed(connection, sink)
    connection.execute(
        "INSERT OR IGNORE INTO catch_up (sink, sequence) "  # noqa: S608  # our own words
        f"SELECT ?1, sequence FROM ({NEWEST_RECORDS}) JOIN records USING (sequence) "
        # Also after the cursor, where an absence of the former role hides records.
        f"WHERE {CATCH_UP_CONDITION}",
        (sink, role),
    )
    _move_back(connection, sink, cursor)


def _return_to_left_out(
    connection: sqlite3.Connection,
    sink: str,
    role: str,
    wants: Wants,
    accepted: Accepts,
) -> None:
    """Give a sink that accepts other records than before those that it had left out: the newest
    record of each event that is pending or that it may have got. `wants` decides by sequence,
    type, and whether the record concerns this VM; `accepted`: the records that it took before.
    Raises `sqlite3.Error`.
    """
    cursor = _forget_passed(connection, sink)
    _note_unconfirmed(connection, sink, role, _unconfirmed(connection, sink, cursor, accepted))
    # The sink may still have to get records that it had left out, and accepted later.
    ((hidden,),) = connection.execute("SELECT max(last) FROM absences WHERE sink = ?", (sink,))
    rows = connection.execute(
        "SELECT sequence, type, affects FROM records WHERE sequence <= ?3 AND sequence IN ("
        "SELECT max(sequence) FROM records WHERE event IS NOT NULL GROUP BY event "
        "UNION SELECT max(sequence) FROM records WHERE affects GROUP BY event) "
        "AND (event IN (SELECT key FROM events WHERE pending) "
        "OR event IN (SELECT event FROM acknowledged WHERE sink = ?1 AND role = ?2) "
        # A person may have a dead record tried again.
        "OR event IN (SELECT event FROM records JOIN dead USING (sequence) WHERE sink = ?1)) "
        "AND NOT EXISTS (SELECT 1 FROM acknowledged WHERE sink = ?1 AND role = ?2 "
        "AND acknowledged.event = records.event AND acknowledged.sequence >= records.sequence) "
        "AND NOT EXISTS (SELECT 1 FROM dead WHERE sink = ?1 AND dead.sequence = records.sequence) "
        # What is tried again comes first: an older record after it would be the last word.
        "AND NOT EXISTS (SELECT 1 FROM dead JOIN records AS newer USING (sequence) "
        "WHERE sink = ?1 AND again AND newer.event = records.event "
        "AND newer.sequence > records.sequence)",
        (sink, role, max(cursor, hidden or 0)),
    ).fetchall()
    connection.executemany(
        "INSERT OR IGNORE INTO catch_up (sink, sequence) VALUES (?, ?)",
        [(sink, row[0]) for row in rows if wants(sink, *row)],
    )
    _move_back(connection, sink, cursor)


def _forget_passed(connection: sqlite3.Connection, sink: str) -> int:
    """Delete the catch-up records up to the sink's cursor, and return the cursor."""
    ((cursor,),) = connection.execute("SELECT cursor FROM sinks WHERE name = ?", (sink,))
    connection.execute("DELETE FROM catch_up WHERE sink = ? AND sequence <= ?", (sink, cursor))
    return int(cursor)


def _move_back(connection: sqlite3.Connection, sink: str, cursor: int) -> None:
    """Move the sink's cursor back to before its first catch-up record."""
    first = _cursor_before_catch_up(connection, sink, cursor)
    if first < cursor:
        connection.execute(
            "INSERT INTO absences (sink, first, last) VALUES (?1, ?2, ?3) "
            "ON CONFLICT (sink, first) DO UPDATE SET last = max(last, ?3)",
            (sink, first, cursor),
        )
        connection.execute("UPDATE sinks SET cursor = ? WHERE name = ?", (first, sink))


def _cursor_before_catch_up(connection: sqlite3.Connection, sink: str, head: int) -> int:
    """Return the cursor just before the sink's first catch-up record; `head` if it has none. Raises
    `sqlite3.Error`.
    """
    (first,) = connection.execute(
        "SELECT min(sequence) FROM catch_up WHERE sink = ?", (sink,)
    ).fetchone()
    return head if first is None else int(first) - 1


def _delete_passed(connection: sqlite3.Connection) -> None:
    """Delete the absences and catch-up records that each sink's cursor has passed. Raises
    `sqlite3.Error`.
    """
    cursor = "(SELECT cursor FROM sinks WHERE name = sink)"
    connection.execute(f"DELETE FROM absences WHERE last <= {cursor}")  # noqa: S608  # ours
    connection.execute(f"DELETE FROM catch_up WHERE sequence <= {cursor}")  # noqa: S608  # ours


def absences_of(connection: sqlite3.Connection, sinks: Iterable[str]) -> dict[str, list[Absence]]:
    """Return the absences of each sink that its cursor has not passed. Raises `sqlite3.Error`."""
    found: dict[str, list[Absence]] = {}
    for sink in sinks:
        rows = connection.execute("SELECT sequence FROM catch_up WHERE sink = ?", (sink,))
        catch_up = frozenset(sequence for (sequence,) in rows)
        found[sink] = [
            Absence(first=first, last=last, catch_up=catch_up)
            for first, last in connection.execute(
                "SELECT first, last FROM absences WHERE sink = ? AND last IS NOT NULL", (sink,)
            )
        ]
    return found
