"""A turn says whether a person may approve its event now."""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Until the next look at an event, no decision on it is shown as due."""
    op.execute("ALTER TABLE turn RENAME COLUMN needs_people TO is_free")
    op.execute("UPDATE turn SET is_free = 0")
