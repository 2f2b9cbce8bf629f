"""SQLite's INSERT OR REPLACE cannot change the audit either: it fires no trigger of a DELETE."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Only a row with a new, higher number is taken; PostgreSQL's triggers refuse the rest."""
    if op.get_bind().dialect.name == "sqlite":
        op.execute(
            "CREATE TRIGGER audit_stays_insert BEFORE INSERT ON audit "
            "WHEN NEW.number <= (SELECT max(number) FROM audit) "
            "BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END"
        )
