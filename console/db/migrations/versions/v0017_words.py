"""The types and ends that events have are read from an index, not from every event."""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Index both columns."""
    op.create_index("event_type", "event", ["event_type"])
    op.create_index("event_status", "event", ["status"])
