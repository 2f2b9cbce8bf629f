"""Tags that an admin gave a VM count, whatever it says."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """No VM has any until it is enrolled with them."""
    op.add_column("vm", sa.Column("bound_tags", sa.Text(), nullable=False, server_default="{}"))
    op.add_column("enrolment", sa.Column("tags", sa.Text(), nullable=True))
