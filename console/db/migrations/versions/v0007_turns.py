"""Adds the preparations of VMs, and the turns of events."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the tables, and add the columns that say what a command asked for."""
    op.add_column("vm", _number("prepares"))
    op.add_column("receipt", sa.Column("act", sa.Text(), nullable=True))
    act = sa.Column("act", sa.Text(), nullable=False, server_default="approve")
    op.add_column("command", act)
    op.create_table(
        "preparation",
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("vm_id", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("cause", sa.Text(), nullable=True),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("time", sa.Float(precision=53), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("event_id", "scope", "vm_id"),
    )
    op.create_index("preparation_vm", "preparation", ["vm_id"], unique=False)
    op.create_index("preparation_state", "preparation", ["state"], unique=False)
    op.create_index("preparation_changed", "preparation", ["changed"], unique=False)
    op.create_table(
        "turn",
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("since", sa.Float(precision=53), nullable=False),
        sa.Column("taken_at", sa.Float(precision=53), nullable=True),
        sa.Column("over_at", sa.Float(precision=53), nullable=True),
        sa.Column("by", sa.Text(), nullable=True),
        sa.Column("asked", sa.Text(), nullable=True),
        _number("is_forced"),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("ended_by", sa.Text(), nullable=True),
        _number("is_free"),
        sa.Column("groups", sa.Text(), nullable=False),
        sa.Column("holders", sa.Text(), nullable=False),
        sa.Column("held_by", sa.Text(), nullable=False),
        sa.Column("behind", sa.Text(), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("event_id", "scope"),
    )
    op.create_index("turn_state", "turn", ["state"], unique=False)
    op.create_index("turn_changed", "turn", ["changed"], unique=False)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer(), nullable=False, server_default="0")
