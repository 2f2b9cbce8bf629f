"""What a reporter says of an event is its report; an observation is what a record measured."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """The table has another name, and nothing else changes."""
    op.drop_index("observation_vm", table_name="observation")
    op.drop_index("observation_changed", table_name="observation")
    op.rename_table("observation", "report")
    op.create_index("report_vm", "report", ["vm_id", "over"], unique=False)
    op.create_index("report_changed", "report", ["changed"], unique=False)
