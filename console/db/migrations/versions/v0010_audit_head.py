"""The end of the audit is kept beside it, so that rows deleted from its end are missed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """One row: number and hash of the newest row of the audit."""
    op.create_table(
        "audit_head",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.execute(
        "INSERT INTO audit_head (id, number, hash) "
        "SELECT 1, number, hash FROM audit ORDER BY number DESC LIMIT 1"
    )
    op.execute(
        "INSERT INTO audit_head (id, number, hash) "
        "SELECT 1, 0, '00000000000000000000000000000000' || '00000000000000000000000000000000' "
        "WHERE NOT EXISTS (SELECT 1 FROM audit_head)"
    )
