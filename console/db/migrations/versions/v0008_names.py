"""Makes identities stable. A VM keeps the name, scope, site and tags of its first contact, or those
with which it was enrolled. The audit keeps the number and hash of its last row.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the columns. VMs that are known keep what they have."""
    op.add_column("vm", sa.Column("bound_tags", sa.Text(), nullable=False, server_default="{}"))
    op.add_column("vm", sa.Column("reported_as", sa.Text()))
    op.add_column("vm", sa.Column("withheld", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("vm", sa.Column("conflict_at", sa.Float(53)))
    op.add_column("vm", sa.Column("accepted_at", sa.Float(53), nullable=False, server_default="0"))
    op.create_index("vm_conflict", "vm", ["conflict_at"])
    for name in ("resource_id", "site", "tags"):
        op.add_column("enrolment", sa.Column(name, sa.Text()))
    op.add_column("enrolment", sa.Column("enrolled_at", sa.Float(53)))
    op.create_table(
        "conflict_notice",
        sa.Column("vm_id", sa.Text(), primary_key=True),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(53), nullable=False),
    )
    _create_audit_head()


def _create_audit_head() -> None:
    """Create a table with one row beside the audit, so that a deletion of its last rows is
    detected: number and hash of the newest row, or of a row before the first.
    """
    op.create_table(
        "audit_head",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
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
