"""Decisions, their audit, and who may make them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_REFUSING = (
    "CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'the audit is append-only'; END $$"
)


def upgrade() -> None:
    """Make the tables, and keep the audit's rows from being changed."""
    op.create_table(
        "audit",
        sa.Column("number", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=True),
        sa.Column("jti", sa.Text(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_index("audit_event", "audit", ["event_id"], unique=False)
    op.create_table(
        "decision",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("second_actor", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("not_before", sa.Float(precision=53), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("outcome_reason", sa.Text(), nullable=True),
        sa.Column("over_at", sa.Float(precision=53), nullable=True),
        sa.Column("claimed_by", sa.Text(), nullable=True),
        sa.Column("claimed_until", sa.Float(precision=53), nullable=True),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("decision_changed", "decision", ["changed"], unique=False)
    op.create_index("decision_event", "decision", ["event_id"], unique=False)
    op.create_index("decision_state", "decision", ["state"], unique=False)
    op.create_index(
        "decision_one_open",
        "decision",
        ["event_id"],
        unique=True,
        sqlite_where=sa.text("state <> 'over'"),
        postgresql_where=sa.text("state <> 'over'"),
    )
    op.create_table(
        "command",
        sa.Column("jti", sa.Text(), nullable=False),
        sa.Column("decision_id", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("vm_id", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("made_at", sa.Float(precision=53), nullable=False),
        sa.Column("expires_at", sa.Float(precision=53), nullable=False),
        sa.Column("sent_at", sa.Float(precision=53), nullable=True),
        sa.Column("unanswered_at", sa.Float(precision=53), nullable=True),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("jti"),
    )
    op.create_index("command_changed", "command", ["changed"], unique=False)
    op.create_index("command_decision", "command", ["decision_id"], unique=False)
    op.create_index("command_event", "command", ["event_id"], unique=False)
    op.create_index("command_vm", "command", ["vm_id"], unique=False)
    op.create_table(
        "notice",
        sa.Column("number", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        sa.UniqueConstraint("id"),
    )
    op.create_index("notice_at", "notice", ["at"], unique=False)
    op.create_table(
        "notice_cursor",
        sa.Column("sink", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("claimed_by", sa.Text(), nullable=True),
        sa.Column("claimed_until", sa.Float(precision=53), nullable=True),
        sa.PrimaryKeyConstraint("sink"),
    )
    op.create_table(
        "asked",
        sa.Column("vm_id", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(precision=53), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("vm_id"),
    )
    op.create_index("asked_changed", "asked", ["changed"], unique=False)
    op.create_table(
        "token",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("site", sa.Text(), nullable=True),
        sa.Column("made_by", sa.Text(), nullable=False),
        sa.Column("made_at", sa.Float(precision=53), nullable=False),
        sa.Column("ends_at", sa.Float(precision=53), nullable=False),
        sa.Column("revoked_at", sa.Float(precision=53), nullable=True),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
        sa.UniqueConstraint("hash"),
    )
    op.create_table(
        "session",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("groups", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Float(precision=53), nullable=False),
        sa.Column("seen_at", sa.Float(precision=53), nullable=False),
        sa.Column("ends_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("hash"),
    )
    op.create_index("session_ends", "session", ["ends_at"], unique=False)
    op.create_table(
        "login",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("ends_at", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("hash"),
    )
    op.create_index("login_ends", "login", ["ends_at"], unique=False)
    op.create_table(
        "enrolment",
        sa.Column("vm_id", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("revoked_at", sa.Float(precision=53), nullable=True),
        sa.Column("changed", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("vm_id"),
    )
    op.create_index("enrolment_changed", "enrolment", ["changed"], unique=False)
    if op.get_bind().dialect.name == "postgresql":
        op.execute(_REFUSING)
        op.execute(
            "CREATE TRIGGER audit_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
            "FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only()"
        )
    else:
        for what in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER audit_stays_{what.lower()} BEFORE {what} ON audit "
                "BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END"
            )
