"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create every table."""
    op.create_table(
        "change",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "checkpoint",
        sa.Column("hub", sa.Text(), nullable=False),
        sa.Column("consumer_group", sa.Text(), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("offset", sa.Text(), nullable=False),
        sa.Column("sequence_number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("hub", "consumer_group", "partition"),
    )
    op.create_table(
        "event",
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("shown_by", sa.Text(), nullable=False),
        sa.Column("shown_at", sa.Float(precision=53), nullable=False),
        sa.Column("first_at", sa.Float(precision=53), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=True),
        sa.Column("sites", sa.Text(), nullable=False),
        sa.Column("words", sa.Text(), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("event_id"),
    )
    op.create_index("event_changed", "event", ["changed"], unique=False)
    op.create_index("event_over", "event", ["state", "shown_at"], unique=False)
    op.create_table(
        "gap",
        sa.Column("vm_id", sa.Text(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("found_at", sa.Float(precision=53), nullable=False),
        sa.Column("seconds", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("vm_id", "stream", "first"),
    )
    op.create_table(
        "ownership",
        sa.Column("hub", sa.Text(), nullable=False),
        sa.Column("consumer_group", sa.Text(), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("owner_id", sa.Text(), nullable=False),
        sa.Column("etag", sa.Text(), nullable=False),
        sa.Column("modified_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("hub", "consumer_group", "partition"),
    )
    op.create_table(
        "quarantine",
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("first_at", sa.Float(precision=53), nullable=False),
        sa.Column("last_at", sa.Float(precision=53), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("sample", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("source", "reason"),
    )
    op.create_table(
        "receipt",
        sa.Column("record_id", sa.Text(), nullable=False),
        sa.Column("jti", sa.Text(), nullable=False),
        sa.Column("vm_id", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("record_id"),
    )
    op.create_index("receipt_changed", "receipt", ["changed"], unique=False)
    op.create_index("receipt_event", "receipt", ["event_id"], unique=False)
    op.create_index("receipt_jti", "receipt", ["jti"], unique=False)
    op.create_table(
        "record",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("vm_id", sa.Text(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("time", sa.Float(precision=53), nullable=False),
        sa.Column("received_at", sa.Float(precision=53), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("record_event", "record", ["event_id"], unique=False)
    op.create_index("record_received", "record", ["received_at"], unique=False)
    op.create_index("record_vm", "record", ["vm_id", "time"], unique=False)
    op.create_table(
        "sighting",
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("vm_id", sa.Text(), nullable=False),
        sa.Column("record_id", sa.Text(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("time", sa.Float(precision=53), nullable=False),
        sa.Column("first_at", sa.Float(precision=53), nullable=False),
        sa.Column("over", sa.Integer(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("event_id", "vm_id"),
    )
    op.create_index("sighting_changed", "sighting", ["changed"], unique=False)
    op.create_index("sighting_vm", "sighting", ["vm_id", "over"], unique=False)
    op.create_table(
        "stream",
        sa.Column("vm_id", sa.Text(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("low", sa.BigInteger(), nullable=False),
        sa.Column("high", sa.BigInteger(), nullable=False),
        sa.Column("high_time", sa.Float(precision=53), nullable=False),
        sa.Column("beat_time", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("vm_id", "stream"),
    )
    op.create_table(
        "vm",
        sa.Column("vm_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("site", sa.Text(), nullable=False),
        sa.Column("resource_id", sa.Text(), nullable=True),
        sa.Column("subscription_id", sa.Text(), nullable=True),
        sa.Column("resource_group", sa.Text(), nullable=True),
        sa.Column("location", sa.Text(), nullable=True),
        sa.Column("zone", sa.Text(), nullable=True),
        sa.Column("scale_set", sa.Text(), nullable=True),
        sa.Column("tags", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=True),
        sa.Column("session", sa.Text(), nullable=True),
        sa.Column("stream", sa.Text(), nullable=True),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("record_time", sa.Float(precision=53), nullable=False),
        sa.Column("heard_at", sa.Float(precision=53), nullable=False),
        sa.Column("heard_by", sa.Text(), nullable=False),
        sa.Column("interval", sa.Float(precision=53), nullable=True),
        sa.Column("stopped_at", sa.Float(precision=53), nullable=True),
        sa.Column("lost_at", sa.Float(precision=53), nullable=True),
        sa.Column("lost_session", sa.Text(), nullable=True),
        sa.Column("retired_at", sa.Float(precision=53), nullable=True),
        sa.Column("retired_by", sa.Text(), nullable=True),
        sa.Column("commands", sa.Text(), nullable=True),
        sa.Column("missing", sa.BigInteger(), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("vm_id"),
    )
    op.create_index("vm_changed", "vm", ["changed"], unique=False)
    op.create_index("vm_name", "vm", ["name"], unique=False)
    op.execute("INSERT INTO change (id, number) VALUES (1, 0)")
