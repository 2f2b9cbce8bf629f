"""Runs Alembic over the connection that the console passes to it."""

from __future__ import annotations

from alembic import context

from console.db.schema import access_tables, decision_tables  # noqa: F401  # they add tables
from console.db.schema.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
