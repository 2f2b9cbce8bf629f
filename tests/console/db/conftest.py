"""A database of either kind into which a test commits what VMs send."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.console.intake import Intake
from support.console.writer_bench import WriterBench

from console.db.connection.opening import Database


@pytest.fixture
def intake(database: Database) -> Intake:
    """An empty database, and a clock that the test moves."""
    return Intake(database)


@pytest.fixture
def writer_bench(database: Database) -> Iterator[WriterBench]:
    """A running writer, which ends before its database."""
    made = WriterBench(database)
    yield made
    made.writer.stop()
