"""Stores the open incidents of VMs, so that the notice of an incident's end has the key of its
beginning.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_FILL = """
INSERT INTO incident (vm_id, key, kind, size, at)
SELECT n.subject, n.subject, n.kind, 1, n.at FROM notice n
WHERE n.kind IN ('vm-silent', 'vm-not-back') AND n.subject <> 'fleet' AND n.number = (
    SELECT max(o.number) FROM notice o
    WHERE o.subject = n.subject AND o.kind IN ('vm-silent', 'vm-not-back', 'vm-heard')
)
"""


def upgrade() -> None:
    """Create the table, and fill it from the last notice about each VM. Notices about groups of VMs
    had no end before.
    """
    op.create_table(
        "incident",
        sa.Column("vm_id", sa.Text(), primary_key=True),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(53), nullable=False),
    )
    op.execute(_FILL)
