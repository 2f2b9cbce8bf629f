"""The audit: rows that can only be added, and a chain that shows what was done to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError
from support.console.stage import ConsoleStage

from console.audit import audit_log
from console.audit.chain import START, Head, as_json, head_of, sealed, verify
from console.db.audit import AuditRow, WantedRows
from console.db.connection.opening import Database
from console.db.connection.transactions import next_change_number, read_from
from wire.strictjson import canonical_json

AT = 1_800_000_000.25


def appended(database: Database, *actions: str) -> list[AuditRow]:
    """Append rows of ada's, each in a transaction of its own."""
    rows = []
    for action in actions:
        with database.writing.begin() as connection:
            next_change_number(connection)
            rows.append(
                audit_log.append(
                    connection, at=AT, actor="ada", action=action, event_id="E", not_before="soon"
                )
            )
    return rows


def chain(length: int) -> list[AuditRow]:
    """Return rows that follow each other."""
    rows: list[AuditRow] = []
    for number in range(length):
        rows.append(
            sealed(
                head_of(rows[-1] if rows else None),
                at=AT + number,
                actor="ada",
                action=f"action {number}",
                event_id=None,
                jti=None,
                details={"reason": "why not"},
            )
        )
    return rows


def messages_about(rows: list[AuditRow], *known: Head) -> list[str]:
    """Return the sentences about some rows."""
    return [fault.message for fault in verify(rows, known=known)]


def test_rows_are_sorted_by_what_they_say(database: Database) -> None:
    """On both databases rows are sorted by a value in their JSON, such as the reason. A row without
    one comes first, and no value is mistaken for another field.
    """
    for reason in ("b", None, 'a","reason":"c', "c"):
        with database.writing.begin() as connection:
            next_change_number(connection)
            audit_log.append(connection, at=AT, actor="ada", action="approve", reason=reason)
    for sort, numbers in (
        ("reason", [2, 3, 1, 4]),
        ("-reason", [4, 1, 3, 2]),
        ("outcome", [1, 2, 3, 4]),
    ):
        with read_from(database.reading) as connection:
            rows, _ = audit_log.find_rows(connection, WantedRows(sort=sort), limit=9, page=1)
        assert [row.number for row in rows] == numbers


def test_a_row_is_json_whose_hash_anyone_can_make(database: Database) -> None:
    """The hash of a row is the SHA-256 of its canonical JSON without `hash`, and `at` is
    RFC 3339.
    """
    first, second = appended(database, "one", "two")
    shown = as_json(second)
    assert shown == {
        "number": 2,
        "at": "2027-01-15T08:00:00.250Z",
        "actor": "ada",
        "action": "two",
        "eventId": "E",
        "notBefore": "soon",
        "previous": first.hash,
        "hash": second.hash,
    }
    del shown["hash"]
    assert sha256(canonical_json(shown)).hexdigest() == second.hash
    assert as_json(first)["previous"] == START.hash == "0" * 64


def test_rows_come_back_as_they_were_added(database: Database) -> None:
    """Rows are read oldest first, after a number, as many as are wanted, and the chain has no
    fault.
    """
    rows = appended(database, "one", "two", "three")
    assert audit_log.read_rows(database.reading) == rows
    assert audit_log.read_rows(database.reading, after=1, limit=1) == rows[1:2]
    assert audit_log.read_rows(database.reading, event_id="other") == []
    end = head_of(rows[-1])
    assert audit_log.check(database.reading, [end]) == (end, None)
    with database.reading.begin() as connection:
        assert audit_log.head(connection) == Head(number=3, hash=rows[-1].hash)


def test_a_transaction_that_is_given_up_leaves_no_row(database: Database) -> None:
    """A transaction that is rolled back leaves no row in the audit."""
    with database.writing.connect() as connection, connection.begin() as transaction:
        next_change_number(connection)
        audit_log.append(connection, at=AT, actor="ada", action="approve")
        transaction.rollback()
    assert audit_log.read_rows(database.reading) == []


AGAIN = "INSERT INTO audit SELECT number, at, 'eve', action, event_id, jti, body, hash FROM audit"


@pytest.mark.parametrize(
    "statement",
    [
        *("UPDATE audit SET actor = 'eve'", "DELETE FROM audit"),
        f"{AGAIN} WHERE true ON CONFLICT (number) DO UPDATE SET actor = 'eve'",
        f"{AGAIN.replace('INSERT', 'INSERT OR REPLACE')}",
    ],
)
def test_the_database_refuses_to_change_a_row(database: Database, statement: str) -> None:
    """The table itself refuses a statement that would change a row."""
    appended(database, "one")
    words = "append-only" if database.is_sqlite or "REPLACE" not in statement else "syntax error"
    with (
        pytest.raises(DatabaseError, match=words),
        database.writing.begin() as connection,
    ):
        connection.execute(text(statement))
    assert [row.actor for row in audit_log.read_rows(database.reading)] == ["ada"]


def test_any_text_can_be_audited(database: Database) -> None:
    """NUL, half a surrogate pair and a long text are stored in a form that both databases
    accept.
    """
    with database.writing.begin() as connection:
        next_change_number(connection)
        audit_log.append(connection, at=AT, actor="a\0\ud800", action="x", event_id="漢" * 5000)
    (row,) = audit_log.read_rows(database.reading)
    assert row.actor == "a\N{REPLACEMENT CHARACTER}?"
    assert row.event_id == "漢" * 2000
    assert audit_log.check(database.reading)[1] is None


def test_a_good_chain_has_no_fault() -> None:
    """A good chain has no fault, nor has a part of it after the row before it, nor with heads that
    were kept.
    """
    rows = chain(5)
    assert messages_about(rows, *(head_of(row) for row in rows)) == []
    assert list(verify(rows[2:], start=head_of(rows[1]))) == []
    assert messages_about([]) == []


def changed(row: AuditRow) -> AuditRow:
    """Return the row with another actor; its body and hash fit each other."""
    body = row.body.replace("ada", "eve")
    return replace(row, actor="eve", body=body, hash=sha256(body.encode()).hexdigest())


def swapped(rows: list[AuditRow]) -> list[AuditRow]:
    """Return the rows with the second and the third in each other's place, with each other's
    numbers.
    """
    one, two = rows[1], rows[2]
    return [rows[0], replace(two, number=one.number), replace(one, number=two.number), *rows[3:]]


TAMPERED: list[tuple[str, Callable[[list[AuditRow]], list[AuditRow]], str]] = [
    ("column", lambda r: [r[0], replace(r[1], actor="eve"), *r[2:]], "row 2 is changed: its col"),
    (
        "time",
        lambda r: [r[0], replace(r[1], at=1.0), *r[2:]],
        "row 2 is changed: its column for at",
    ),
    ("body", lambda r: [r[0], replace(r[1], body="{}"), *r[2:]], "row 2 is changed: its hash"),
    ("not JSON", lambda r: [replace(r[0], body="{"), *r[1:]], "row 1 is changed: its hash"),
    ("resealed", lambda r: [r[0], changed(r[1]), *r[2:]], "row 3 does not follow row 2"),
    ("missing", lambda r: [*r[:2], *r[4:]], "rows 3 to 4 are missing"),
    ("one missing", lambda r: [*r[:2], *r[3:]], "row 3 is missing"),
    ("missing in front", lambda r: r[2:], "rows 1 to 2 are missing"),
    ("swapped", swapped, "row 2 does not follow row 1"),
    ("doubled", lambda r: [*r[:2], *r[1:]], "row 2 is out of order"),
]


@pytest.mark.parametrize(("what", "tamper", "words"), TAMPERED, ids=[each[0] for each in TAMPERED])
def test_what_was_done_to_the_rows_is_found(
    what: str, tamper: Callable[[list[AuditRow]], list[AuditRow]], words: str
) -> None:
    """A changed, a missing and a swapped row are each reported in a sentence with the
    row's number.
    """
    found = messages_about(tamper(chain(5)))
    assert any(words in each for each in found), found


def test_what_is_missing_at_the_end_needs_a_head() -> None:
    """Rows that are missing at the end, or an audit that was written all over again, are found only
    with a head that was kept.
    """
    rows = chain(5)
    assert messages_about(rows[:3]) == []
    assert messages_about(rows[:3], head_of(rows[4])) == ["rows 4 to 5 are missing at the end"]
    again = chain(1)
    forged = changed(rows[0])
    assert messages_about([forged]) == []
    assert messages_about([forged], head_of(again[0])) == [
        "row 1 is not the one whose hash was kept: the audit was rewritten"
    ]


def test_the_api_gives_lines_that_verify(tmp_path: Path) -> None:
    """The API returns rows that verify, oldest first and a page at a time; a parameter that is no
    number is refused.
    """
    with ConsoleStage(tmp_path) as stage:
        rows = appended(stage.console.database, "one", "two", "three")
        answer = stage.http.get(f"{stage.url}/api/v1/audit?after=1&limit=1", timeout=10)
        assert answer.headers["content-type"] == "application/x-ndjson"
        assert [json.loads(line) for line in answer.text.splitlines()] == [as_json(rows[1])]
        for bad in ("-1", "x", "1e3", "9" * 30):
            refused = stage.http.get(f"{stage.url}/api/v1/audit?after={bad}", timeout=10)
            assert refused.status_code == 422
