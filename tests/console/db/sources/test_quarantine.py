"""Messages that are not records of ours."""

from __future__ import annotations

from sqlalchemy import select
from support.console.writer_bench import AT, WriterBench

from console.db.connection.opening import Database
from console.db.schema import tables
from console.ingest.source_batch import QuarantinedMessage


def test_quarantine_has_one_row_per_reason(database: Database, writer_bench: WriterBench) -> None:
    """Many invalid messages make one row for each reason, with a count."""
    bad = [QuarantinedMessage(reason="not_json", message="m", sample=b"\xff" * 9000, at=AT)] * 50
    writer_bench.take(*bad)
    writer_bench.take(*bad, QuarantinedMessage(reason="too_large", message="m", sample=b"", at=AT))
    with database.reading.begin() as connection:
        found = connection.execute(
            select(tables.quarantine.c.reason, tables.quarantine.c.count)
        ).all()
    assert dict(map(tuple, found)) == {"not_json": 100, "too_large": 1}
