"""The statements that SQLAlchemy has compiled, shared by all databases of a run of tests.

SQLAlchemy keeps them for each engine, and each test has a database, and so an engine, of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event


class CompiledStatements(dict[Any, Any]):
    """Compiled statements by the kind of the database. SQLAlchemy's keys begin with the dialect of
    one engine.
    """

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the statement that any engine of this kind has compiled."""
        return super().get(_of_its_kind(key), default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(_of_its_kind(key), value)


def _of_its_kind(key: Any) -> Any:
    dialect, *statement = key
    return (dialect.name, dialect.driver, *statement)


@pytest.fixture(scope="session", autouse=True)
def compiled_once() -> Iterator[None]:
    """Has every engine of this process use the same compiled statements."""
    statements = CompiledStatements()

    def use(connection: Connection) -> None:
        connection.execution_options(compiled_cache=statements)

    event.listen(Engine, "engine_connect", use)
    yield
    event.remove(Engine, "engine_connect", use)
