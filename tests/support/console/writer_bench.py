"""A running writer into a database, and what a test reads of the rows that it leaves."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

from sqlalchemy import text

from console.db.connection.opening import Database
from console.db.snapshot import Snapshot, Snapshots
from console.db.sources.checkpoints import Checkpoint
from console.ingest.source_batch import QuarantinedMessage, SourceBatch
from console.ingest.writer import Writer
from console.records.incoming import IncomingMessage
from console.records.parse import parse_record
from wire.record import Record

AT = 1_800_000_000.0
"""When everything is received, unless a test says otherwise."""


class WriterBench:
    """A writer, each of whose deliveries is committed."""

    def __init__(self, database: Database) -> None:
        self.writer = Writer(database, on_open=lambda: None, on_commit=lambda: None)
        self.writer.start()

    def take(
        self, *items: IncomingMessage | QuarantinedMessage, checkpoint: Checkpoint | None = None
    ) -> None:
        """Pass on a delivery, and wait for its commit."""
        stored = threading.Event()
        answers: list[bool] = []

        def on_end(answer: bool) -> None:
            answers.append(answer)
            stored.set()

        delivery = SourceBatch(source="s", items=items, on_end=on_end, checkpoint=checkpoint)
        self.writer.put(delivery, timeout=10)
        assert stored.wait(30)
        assert answers == [True]


def received(record: Record, at: float = AT) -> IncomingMessage:
    """Return a record as it comes in."""
    return parse_record(record.body, source="s", received_at=at)


def count_rows(database: Database, table: str) -> int:
    """Return how many rows a table has."""
    with database.reading.begin() as connection:
        number: int = connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
        return number


def open_snapshot(database: Database) -> AbstractContextManager[Snapshot]:
    """Return what the rows say, at `AT`."""
    return Snapshots(database, clock=lambda: AT).open()
