"""The reason that an approver gave, with each receipt."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the column. Receipts that are stored already have no reason: their bridges sent none, or
    it was not kept.
    """
    op.add_column("receipt", sa.Column("why", sa.Text(), nullable=True))
