"""A VM keeps the name, scope and site of its first contact, or those with which it was enrolled."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """VMs that are known keep what they have."""
    op.add_column("vm", sa.Column("said", sa.Text(), nullable=True))
    op.add_column("vm", sa.Column("withheld", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("vm", sa.Column("conflict_at", sa.Float(precision=53), nullable=True))
    op.add_column(
        "vm", sa.Column("accepted_at", sa.Float(precision=53), nullable=False, server_default="0")
    )
    op.create_index("vm_conflict", "vm", ["conflict_at"])
    op.add_column("enrolment", sa.Column("resource_id", sa.Text(), nullable=True))
    op.add_column("enrolment", sa.Column("site", sa.Text(), nullable=True))
    op.add_column("enrolment", sa.Column("enrolled_at", sa.Float(precision=53), nullable=True))
    op.create_table(
        "conflict_notice",
        sa.Column("vm_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("vm_id"),
    )
