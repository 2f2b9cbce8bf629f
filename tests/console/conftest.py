"""What several tests of the console share: both databases, and clusters whose VMs take turns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from pydantic import SecretStr
from support.console.compiled_statements import compiled_once
from support.console.empty_database import database_on, put_database
from support.console.turn_cluster import EventOfTwo, TurnCluster
from support.postgresql import PostgreSql, served

from console.config.settings import ConsoleSettings
from console.db.connection.opening import Database, database_url

__all__ = ["compiled_once"]

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSql]:
    """One server for every test that wants a database of its own on it."""
    yield from served()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An open, empty database of either kind."""
    url = None
    if request.param == "postgresql":
        server: PostgreSql = request.getfixturevalue("postgresql")
        url = SecretStr(database_on(server, f"test_{next(_NUMBERS)}"))
    else:
        put_database(tmp_path)
    opened = Database(database_url(ConsoleSettings(state_dir=tmp_path, database=url)))
    opened.open()
    yield opened
    opened.close()


@pytest.fixture
def cluster(database: Database) -> Iterator[TurnCluster]:
    """Three VMs of which one may be away; their group approves by itself."""
    made = TurnCluster(database)
    yield made
    made.decisions.stop()


@pytest.fixture
def by_people(database: Database) -> Iterator[TurnCluster]:
    """Three VMs of which two may be away; their group approves nothing by itself."""
    made = TurnCluster(database, approve=None, at_most=2)
    yield made
    made.decisions.stop()


@pytest.fixture
def pair(database: Database) -> Iterator[EventOfTwo]:
    """Five VMs; the two that the event names prepare."""
    made = EventOfTwo(database)
    yield made
    made.cluster.decisions.stop()
