"""An EventId is compared in any case: what comes in finds the event that is stored."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Two events whose ids differ in their case alone stay two, until the retention."""
    op.create_index("event_lower", "event", [sa.text("lower(event_id)")])
