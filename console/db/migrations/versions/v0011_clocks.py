"""By how much the clock of a VM is behind is estimated from its heartbeats."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Every clock is right until heartbeats say otherwise."""
    op.add_column("vm", sa.Column("behind", sa.Float(53), nullable=False, server_default="0"))
    op.add_column("stream", sa.Column("beat_lag", sa.Float(53)))
