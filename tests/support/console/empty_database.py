"""An empty database as the console makes it: made once in a run of tests, and copied for each test
that wants one. To make it takes a tenth of a second, and there are hundreds of such tests.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import pytest
from pydantic import SecretStr
from support.postgresql import PostgreSql

from console.config.settings import ConsoleSettings
from console.db.connection.opening import DATABASE_FILE, Database, database_url

_TEMPLATE = "seb_template"

ON_SQLITE = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
"""For modules about rules, which are Python: how they decide does not depend on the database. Tests
of the queries, of transactions and of several consoles run on both databases.
"""


def put_database(directory: Path) -> None:
    """Put an empty SQLite database into a console's directory, unless there is one."""
    file = directory / DATABASE_FILE
    if not file.exists():
        file.write_bytes(_made())


def database_on(server: PostgreSql, name: str) -> str:
    """The URL of a new database with the console's tables."""
    _make_on(server)
    return server.database(name, template=_TEMPLATE)


@cache
def _made() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        settings = ConsoleSettings(state_dir=Path(directory))
        _make(settings)
        return (settings.state_dir / DATABASE_FILE).read_bytes()


@cache
def _make_on(server: PostgreSql) -> None:
    _make(ConsoleSettings(database=SecretStr(server.database(_TEMPLATE))))


def _make(settings: ConsoleSettings) -> None:
    database = Database(database_url(settings))
    database.open()
    database.close()
