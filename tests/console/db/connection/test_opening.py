"""Opening a database: its schema may be of another version."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from console.db.connection.opening import Database
from sinks.shared.errors import ConfigurationError


def test_a_newer_schema_is_refused(database: Database) -> None:
    """A console does not open a database that a newer version has migrated."""
    with database.writing.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(ConfigurationError, match=r"9999 is newer .* upgrade the console"):
        database.open()
