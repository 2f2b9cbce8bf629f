"""The events that list a name are read from the index of names alone."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Put id and scope into the index."""
    op.drop_index("resource_folded", "resource")
    op.create_index("resource_folded", "resource", ["folded", "event_id", "scope"])
