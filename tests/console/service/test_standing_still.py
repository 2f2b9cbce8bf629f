"""A database that stands still, and a console that does so while it holds a lock."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import text
from support.console.faulty_line import FaultyLine
from support.console.process import ConsoleProcess
from support.console.records import FakeVm
from support.eventually import eventually
from support.ports import free_port
from support.postgresql import PostgreSql

from console.config.settings import ConsoleSettings
from console.db.connection.errors import DatabaseFailedError
from console.db.connection.opening import Database, database_url
from console.db.connection.postgresql import Patience
from console.db.connection.transactions import read_from, write_to
from console.ingest.intake_counters import IntakeCounters
from console.ingest.source_batch import SourceBatch
from console.ingest.writer import Writer
from console.records.parse import parse_record

_NUMBERS = count(1)
SHORT = Patience(connect=2, answer=0.8, statement=0.6, lock=0.5, idle=0.5, pool=1)


@pytest.fixture
def url(postgresql: PostgreSql) -> str:
    """The URL of an empty database."""
    return postgresql.database(f"still_{next(_NUMBERS)}")


@pytest.fixture
def line(postgresql: PostgreSql) -> Iterator[FaultyLine]:
    """A connection to the server that a test can interrupt."""
    with FaultyLine(postgresql.port) as running:
        yield running


def opened(url: str, *, line: FaultyLine | None = None, patience: Patience = SHORT) -> Database:
    """Return an open database, behind a line if one is given."""
    address = database_url(ConsoleSettings(database=SecretStr(url)))
    if line is not None:
        address = address.set(port=line.port)
    database = Database(address, patience=patience)
    database.open()
    return database


def test_connections_that_vanish_without_a_word_are_given_up(url: str, line: FaultyLine) -> None:
    """If connections vanish without an end, new ones work at once, and the server ends the
    transactions that the old ones held.
    """
    database = opened(url, line=line)
    for _ in range(2):
        eventually(lambda: _vanishes(database, line), what="the end of the patience", timeout=30)
        eventually(lambda: _writes(database), what="a write", timeout=30)
    database.close()


def test_whoever_needs_a_connection_does_not_wait_long_for_those_that_vanished(
    url: str, line: FaultyLine
) -> None:
    """A connection from the pool is checked before it is used, with a shorter limit than a
    statement has.
    """
    database = opened(url, line=line, patience=replace(SHORT, answer=60.0, ping=0.5))
    assert _writes(database)
    line.forget()
    begun = time.monotonic()
    assert _writes(database)
    assert time.monotonic() - begun < 30
    database.close()


def _vanishes(database: Database, line: FaultyLine) -> bool:
    """Interrupt the line within a transaction; return whether the console has given up."""
    try:
        with write_to(database):
            line.forget()
    except DatabaseFailedError as error:
        return "no answer" in str(error)
    return False


@pytest.mark.parametrize("fault", ["silence", "freeze", "cut"])
def test_a_database_that_stands_still_is_known_and_its_return_too(
    url: str, line: FaultyLine, fault: str
) -> None:
    """The writer reports a database that does not answer although no record comes in, and works
    again by itself.
    """
    database = opened(url, line=line)
    writer = Writer(database, on_open=lambda: None, on_commit=lambda: None)
    writer.start()
    try:
        assert writer.opened.wait(30)
        getattr(line, fault)()
        eventually(lambda: writer.progress.trouble is not None, what="the trouble", timeout=30)
        line.mend()
        eventually(lambda: writer.progress.trouble is None, what="its end", timeout=30)
    finally:
        line.mend()
        writer.stop()
        database.close()


def test_a_console_that_stands_still_loses_its_lock(url: str, line: FaultyLine) -> None:
    """If a console stands still in a transaction, others write again after seconds; its own
    transaction fails, and it is told so.
    """
    frozen, other = opened(url, line=line), opened(url)
    with pytest.raises(DatabaseFailedError):
        _stand_still(frozen, line, other)
    assert _writes(frozen)
    frozen.close()
    other.close()


def _stand_still(frozen: Database, line: FaultyLine, other: Database) -> None:
    """Hold the lock until another console has it."""
    with write_to(frozen):
        line.freeze()
        eventually(lambda: _writes(other), what="a write of the other", timeout=30)
        line.mend()


def _writes(database: Database) -> bool:
    try:
        with write_to(database):
            return True
    except DatabaseFailedError:
        return False


def test_a_statement_that_takes_too_long_is_ended(url: str) -> None:
    """The server ends a statement that takes too long, so that it does not work on a result that
    nobody awaits.
    """
    database = opened(url)
    with (
        pytest.raises(DatabaseFailedError, match="statement timeout"),
        read_from(database.reading) as found,
    ):
        found.execute(text("SELECT pg_sleep(60)"))
    with read_from(database.reading) as found:
        assert found.execute(text("SELECT 1")).scalar() == 1
    database.close()


def test_what_takes_too_long_at_once_is_taken_in_pieces(url: str) -> None:
    """If the server ends a transaction about all that waits, because it is slow, the writer commits
    less at a time.
    """
    database = opened(url)
    with database.writing.begin() as connection:
        connection.execute(
            text(
                "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN PERFORM pg_sleep(0.04); RETURN NEW; END $$"
            )
        )
        trigger = "CREATE TRIGGER slow BEFORE INSERT ON record FOR EACH ROW EXECUTE FUNCTION slow()"
        connection.execute(text(trigger))
    writer = Writer(database, on_open=lambda: None, on_commit=lambda: None)
    vm, stored, wanted = FakeVm(), threading.Semaphore(0), 40

    def on_end(answer: bool) -> None:  # as Delivery.on_end
        assert answer
        stored.release()

    for number in range(wanted):
        body = vm.event(f"E{number}").body
        record = parse_record(body, source="s", received_at=1_800_000_000.0)
        writer.put(SourceBatch(source="s", items=[record], on_end=on_end))
    writer.start()
    try:
        for _ in range(wanted):
            assert stored.acquire(timeout=60)
    finally:
        writer.stop()
        database.close()


def test_a_change_of_the_schema_has_time(url: str) -> None:
    """Of two consoles that start at once on an empty database, one makes the schema and the other
    waits.
    """
    made = [threading.Thread(target=lambda: opened(url).close()) for _ in range(2)]
    for each in made:
        each.start()
    for each in made:
        each.join(60)
    database = opened(url)
    assert _writes(database)
    database.close()


def test_a_database_that_does_not_answer_is_trouble_before_it_fails() -> None:
    """The console reports a database that has not answered for five seconds, whatever the limits of
    its connections are.
    """
    now = 100.0
    progress = IntakeCounters(lambda: now)
    progress.note_begin()
    now += 4
    assert progress.trouble is None
    now += 2
    assert progress.trouble is not None
    progress.note_success()
    assert progress.trouble is None


def test_a_stranger_is_not_told_where_the_database_is(tmp_path: Path) -> None:
    """/readyz reports that the database is away; its address is only in the log."""
    port = free_port()
    url = f"postgresql://seb:hunter2@127.0.0.1:{port}/seb"
    console = ConsoleProcess(tmp_path, DATABASE=url).start(ready=False)
    try:
        answer = console.http.get(f"{console.url}/readyz", timeout=10)
        assert answer.status_code == 503
        assert str(port) not in answer.text
        assert "127.0.0.1" not in answer.text
        shown = console.http.get(f"{console.url}/api/v1/vms", timeout=20)
        assert shown.status_code == 503
        assert str(port) not in shown.text
        eventually(lambda: str(port) in console.log, what="the reason in the log")
        assert "hunter2" not in console.log
    finally:
        console.kill()
