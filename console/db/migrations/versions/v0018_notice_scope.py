"""Two scopes may have an event of the same id: a notice says of which it tells."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """What was told before is of the event that was known first."""
    op.add_column("notice", sa.Column("scope", sa.Text(), nullable=False, server_default=""))
    op.execute(
        "UPDATE notice SET scope = coalesce((SELECT event.scope FROM event "
        "WHERE event.event_id = notice.subject ORDER BY event.first_at, event.scope LIMIT 1), '')"
    )
